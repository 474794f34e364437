"""What each API that names partitions says of one, asked by hand."""

from __future__ import annotations

from functools import partial

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.schema import Message
from tests.rig.clients.wire_client import COORDINATOR_STARTS, WireClient
from tests.rig.patience import wait_until

_Asked = tuple[ApiKey, int, Message]


def codes_about(address: str, topic: str, topic_id: bytes, partition: int) -> dict[str, list[int]]:
    """The errors of partition 0 and of this one, by the kind of request."""
    codes = {}
    with WireClient(address) as client:
        client.call(ApiKey.FIND_COORDINATOR, 4, {"CoordinatorKeys": [_group(topic)]})
        for what, asked in _requests(topic, topic_id, (0, partition)).items():
            answers: list[list[int]] = []
            wait_until(partial(_answered, client, asked, answers), what=what, deadline_s=30)
            codes[what] = answers[-1]
    return codes


def _answered(client: WireClient, asked: _Asked, answers: list[list[int]]) -> bool:
    """The group's coordinator may start only now."""
    answers.append(_codes_in(client.call(*asked)))
    return not COORDINATOR_STARTS & set(answers[-1])


def _requests(topic: str, topic_id: bytes, both: tuple[int, int]) -> dict[str, _Asked]:
    by_name, by_id = {"Name": topic}, {"TopicId": topic_id}
    rows = [{"PartitionIndex": at} for at in both]
    sent = [{**by_id, "PartitionData": [{"Index": at, "Records": batch()} for at in both]}]
    read = [{"Partition": at, "PartitionMaxBytes": 1_000} for at in both]
    fetched = {"MaxWaitMs": 9, "Topics": [{**by_id, "Partitions": read}]}
    times = [{**by_name, "Partitions": [{**row, "Timestamp": -1} for row in rows]}]
    epochs = [{"Topic": topic, "Partitions": [{"Partition": at, "LeaderEpoch": 0} for at in both]}]
    leave = [{**by_name, "Partitions": [{**row, "Offset": 0} for row in rows]}]
    places = [{**row, "CommittedOffset": 0, "CommittedMetadata": ""} for row in rows]
    commits = [{**by_name, "Partitions": places}]
    return {
        "produce": (ApiKey.PRODUCE, 13, {"Acks": -1, "TimeoutMs": 5_000, "TopicData": sent}),
        "fetch, of a session": (ApiKey.FETCH, 17, {**fetched, "SessionEpoch": 0}),
        "fetch": (ApiKey.FETCH, 17, {**fetched, "SessionEpoch": -1}),
        "offsets": (ApiKey.LIST_OFFSETS, 7, {"Topics": times}),
        "epochs": (ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, {"ReplicaId": -1, "Topics": epochs}),
        "delete": (ApiKey.DELETE_RECORDS, 2, {"TimeoutMs": 5_000, "Topics": leave}),
        "commit": (ApiKey.OFFSET_COMMIT, 9, {"GroupId": _group(topic), "Topics": commits}),
    }


def _group(topic: str) -> str:
    return f"of-{topic}"


def _codes_in(answer: Message) -> list[int]:
    """By partition."""
    (topic,) = answer.get("Topics") or answer["Responses"]
    rows = topic.get("Partitions") or topic["PartitionResponses"]
    names = ("Index", "Partition", "PartitionIndex")
    found = {next(row[name] for name in names if name in row): row["ErrorCode"] for row in rows}
    return [found[partition] for partition in sorted(found)]


def batch() -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    builder.append(0, timestamp=1, key=b"k", value=b"v", headers=[])
    return bytes(builder.build())
