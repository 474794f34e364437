"""Raw connections to a Kafka port, for requests that no stock client would send.

WireClient speaks any API in any version through the project's codec (which the conformance tests
check against Kafka's own serializer). ShareSession is a share group member by hand: it decides its
epochs itself.
"""

from __future__ import annotations

import socket
import ssl
import time
import uuid
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from typing import Any, Self

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import decode_response, encode_request
from gateway.core.wire.frames import parse_response_header, request_frame
from gateway.core.wire.records import read_records
from gateway.core.wire.schema import Message
from tests.rig.patience import patient_s

ANSWER_SECONDS_MAX = 60.0
CLIENT_ID = "wire-client"
COORDINATOR_STARTS = {14, 15, 16}  # loading, not available, not this broker: ask again


class WireClient:
    """One TCP connection; `tls`: in it TLS, with the address's host as the server's name. Raises
    ConnectionError when the peer closes in the middle of an answer.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout_s: float = ANSWER_SECONDS_MAX,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        host, _, port = address.rpartition(":")
        self.address = address
        self._line = socket.create_connection((host, int(port)), timeout=timeout_s)
        if tls is not None:
            self._line = tls.wrap_socket(self._line, server_hostname=host)
        self._correlation_id = 0

    def call(self, key: int, version: int, body: Message) -> Message:
        """One request and its answer."""
        return decode_response(key, version, *self.call_raw(key, version, body))

    def call_raw(self, key: int, version: int, body: Message) -> tuple[bytes, int]:
        """One request; the bytes of its answer (without size) and where the body starts in them."""
        sent = self.send(key, version, body)
        frame = self.receive_frame()
        header = parse_response_header(key, version, frame)
        assert header.correlation_id == sent, "answers come in the order of the requests"
        return frame, header.body_at

    def send(self, key: int, version: int, body: Message) -> int:
        """Sends a request without waiting; returns its correlation id."""
        self._correlation_id += 1
        encoded = encode_request(key, version, body)
        frame = request_frame(key, version, self._correlation_id, CLIENT_ID, encoded)
        self._line.sendall(frame)
        return self._correlation_id

    def send_bytes(self, data: bytes) -> None:
        self._line.sendall(data)

    def receive_frame(self) -> bytes:
        """The next answer without its size. Raises ConnectionError, TimeoutError."""
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def closed_within(self, seconds: float) -> bool:
        """True if the peer closes (or resets) the connection within that time without sending
        more.
        """
        self._line.settimeout(seconds)
        try:
            return self._line.recv(65_536) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def finish_sending(self) -> None:
        """Half-close: the peer sees the end of the stream, answers can still come."""
        self._line.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self._line.recv(min(size - len(data), 1 << 20))
            if not chunk:
                raise ConnectionError(f"closed by {self.address} after {len(data)} of {size} bytes")
            data += chunk
        return bytes(data)


def fresh_member_id() -> str:
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class Fetched:
    """One partition of a ShareFetch answer. `records`: those that were sent; `acquired`:
    (offset, delivery count) of each.
    """

    error: int
    acknowledge_error: int
    records: list[tuple[int, bytes | None, bytes | None]]
    acquired: list[tuple[int, int]]
    ranges: list[tuple[int, int, int]]
    raw_records: bytes | None

    @property
    def offsets(self) -> list[int]:
        return [offset for offset, _ in self.acquired]


AckBatch = tuple[int, int, list[int]]  # first offset, last offset, types: one, or one per offset


@dataclass
class ShareSession:
    """One member of a share group and its session with the leader of partition 0 of `topic`."""

    bootstrap: str
    group: str
    topic: str
    member_id: str = field(default_factory=fresh_member_id)
    version: int = 1
    epoch: int = 0
    member_epoch: int = 0
    topic_id: bytes = b""
    partitions: list[int] = field(default_factory=list)
    leader: WireClient = field(init=False)
    coordinator: WireClient = field(init=False)

    def __post_init__(self) -> None:
        with WireClient(self.bootstrap) as first:
            found = first.call(ApiKey.METADATA, 12, {"Topics": [{"Name": self.topic}]})
            brokers = {
                node["NodeId"]: f"{node['Host']}:{node['Port']}" for node in found["Brokers"]
            }
            topic = found["Topics"][0]
            assert topic["ErrorCode"] == 0, topic
            self.topic_id = topic["TopicId"]
            leaders = {
                partition["PartitionIndex"]: partition["LeaderId"]
                for partition in topic["Partitions"]
            }
            mine = brokers[leaders[0]]
            self.partitions = sorted(at for at, node in leaders.items() if node == leaders[0])
            coordinator = self._coordinator(first)
        self.leader = WireClient(mine)
        self.coordinator = WireClient(coordinator)

    def _coordinator(self, client: WireClient) -> str:
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while True:
            asked = {"KeyType": 0, "CoordinatorKeys": [self.group]}
            answer = client.call(ApiKey.FIND_COORDINATOR, 4, asked)["Coordinators"][0]
            if answer["ErrorCode"] == 0:
                return f"{answer['Host']}:{answer['Port']}"
            assert time.monotonic() < deadline, answer
            time.sleep(0.1)

    def heartbeat(self, epoch: int, *, topics: list[str] | None = None) -> Message:
        """One ShareGroupHeartbeat at this member epoch (0 joins, -1 leaves)."""
        body: Message = {
            "GroupId": self.group,
            "MemberId": self.member_id,
            "MemberEpoch": epoch,
            "SubscribedTopicNames": topics,
        }
        return self.coordinator.call(ApiKey.SHARE_GROUP_HEARTBEAT, 1, body)

    def join(self, within_s: float = 20.0) -> Self:
        """Joins and waits for the assignment of the topic. Closed if that fails: nobody holds the
        session then.
        """
        try:
            return self._joined(within_s)
        except BaseException:
            self.disconnect()
            raise

    def _joined(self, within_s: float) -> Self:
        deadline = time.monotonic() + patient_s(within_s)
        answer = self.heartbeat(0, topics=[self.topic])
        while True:
            assert answer["ErrorCode"] in (0, *COORDINATOR_STARTS), answer
            if answer["ErrorCode"] == 0:
                self.member_epoch = answer["MemberEpoch"]
                assigned = (answer["Assignment"] or {}).get("TopicPartitions", [])
                if any(part["TopicId"] == self.topic_id for part in assigned):
                    return self
            assert time.monotonic() < deadline, f"no assignment of {self.topic}: {answer}"
            time.sleep(0.1)
            topics = [self.topic] if self.member_epoch == 0 else None
            answer = self.heartbeat(self.member_epoch, topics=topics)

    def fetch_message(
        self,
        *,
        epoch: int | None = None,
        acks: dict[int, list[AckBatch]] | None = None,
        partitions: list[int] | None = None,
        max_records: int = 500,
        max_wait_ms: int = 500,
        topic_id: bytes | None = None,
        **fields: Any,
    ) -> Message:
        """One ShareFetch; the answer as it is. `epoch` None: the session's next one, which then
        advances. `fields` replace those of the request.
        """
        body = self.fetch_body(
            epoch=epoch,
            acks=acks,
            partitions=partitions,
            max_records=max_records,
            max_wait_ms=max_wait_ms,
            topic_id=topic_id,
        )
        answer = self.leader.call(ApiKey.SHARE_FETCH, self.version, {**body, **fields})
        if epoch is None and answer["ErrorCode"] == 0:
            self.epoch += 1
        return answer

    def fetch_body(
        self,
        *,
        epoch: int | None = None,
        acks: dict[int, list[AckBatch]] | None = None,
        partitions: list[int] | None = None,
        max_records: int = 500,
        max_wait_ms: int = 500,
        topic_id: bytes | None = None,
    ) -> Message:
        """A ShareFetch request; `epoch` None: the session's next one."""
        sent = self.epoch if epoch is None else epoch
        listed = partitions if partitions is not None else (self.partitions if sent == 0 else [])
        return {
            "GroupId": self.group,
            "MemberId": self.member_id,
            "ShareSessionEpoch": sent,
            "MaxWaitMs": max_wait_ms,
            "MinBytes": 1 if max_records else 0,
            "MaxBytes": 1 << 20,
            "MaxRecords": max_records,
            "BatchSize": max_records,
            "Topics": self._topics(listed, acks or {}, topic_id),
            "ForgottenTopicsData": [],
        }

    def fetch(
        self,
        *,
        acks: dict[int, list[AckBatch]] | None = None,
        max_records: int = 500,
        max_wait_ms: int = 500,
    ) -> dict[int, Fetched]:
        """One ShareFetch at the next epoch; every answered partition. Fails on a top-level
        error.
        """
        answer = self.fetch_message(acks=acks, max_records=max_records, max_wait_ms=max_wait_ms)
        assert answer["ErrorCode"] == 0, answer
        return fetched_partitions(answer)

    def fetch_some(
        self, *, within_s: float = 15.0, max_records: int = 500, partition: int = 0
    ) -> Fetched:
        """Fetches until the partition hands out records; fails at the deadline."""
        deadline = time.monotonic() + patient_s(within_s)
        while True:
            got = self.fetch(max_records=max_records).get(partition)
            if got is not None and got.acquired:
                return got
            assert time.monotonic() < deadline, f"nothing acquired within {within_s} s"

    def fetch_count(self, count: int, *, within_s: float = 15.0, partition: int = 0) -> Fetched:
        """Fetches until the partition has handed out `count` records in all, and returns them as
        one answer: an answer leaves with the first records there are.
        """
        parts: list[Fetched] = []
        while sum(len(part.acquired) for part in parts) < count:
            parts.append(self.fetch_some(within_s=within_s, partition=partition))
        return Fetched(
            error=0,
            acknowledge_error=0,
            records=[row for part in parts for row in part.records],
            acquired=[row for part in parts for row in part.acquired],
            ranges=[row for part in parts for row in part.ranges],
            raw_records=b"".join(part.raw_records or b"" for part in parts),
        )

    def acknowledge(
        self,
        acks: dict[int, list[AckBatch]],
        *,
        epoch: int | None = None,
        renewing: bool = False,
    ) -> dict[int, int]:
        """One ShareAcknowledge; the error code per partition, or {-1: code} for a top-level
        error.
        """
        sent = self.epoch if epoch is None else epoch
        body: Message = {
            "GroupId": self.group,
            "MemberId": self.member_id,
            "ShareSessionEpoch": sent,
            "Topics": self._topics([], acks, None),
            "IsRenewAck": renewing,
        }
        answer = self.leader.call(ApiKey.SHARE_ACKNOWLEDGE, self.version, body)
        if answer["ErrorCode"] != 0:
            return {-1: answer["ErrorCode"]}
        if epoch is None:
            self.epoch += 1
        return {
            part["PartitionIndex"]: part["ErrorCode"]
            for topic in answer["Responses"]
            for part in topic["Partitions"]
        }

    def leave(self) -> None:
        """Closes the session (its records go back) and leaves the group."""
        self.acknowledge({}, epoch=-1)
        self.heartbeat(-1)

    def disconnect(self) -> None:
        """Drops both connections without a word, as a crash."""
        self.leader.close()
        self.coordinator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def _topics(
        self, partitions: list[int], acks: dict[int, list[AckBatch]], topic_id: bytes | None
    ) -> list[Message]:
        indexes = sorted(set(partitions) | set(acks))
        parts = [
            {
                "PartitionIndex": index,
                "AcknowledgementBatches": [
                    (first, last, bytes(kind & 0xFF for kind in types))
                    for first, last, types in acks.get(index, [])
                ],
            }
            for index in indexes
        ]
        return [{"TopicId": topic_id or self.topic_id, "Partitions": parts}] if parts else []


def fetched_partitions(answer: Message) -> dict[int, Fetched]:
    """The partitions of a ShareFetch answer about one topic."""
    found = {}
    for topic in answer["Responses"]:
        for part in topic["Partitions"]:
            data = part["Records"]
            ranges = list(part["AcquiredRecords"])
            found[part["PartitionIndex"]] = Fetched(
                part["ErrorCode"],
                part["AcknowledgeErrorCode"],
                [(record.offset, record.key, record.value) for record in read_records(data or b"")],
                [(at, count) for first, last, count in ranges for at in range(first, last + 1)],
                ranges,
                data,
            )
    return found
