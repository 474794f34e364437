"""An answer of Metadata, of which only what changes is decoded.

Its brokers get other addresses, and its topics go on as the bytes that came: a cluster has
thousands, and decoded and encoded again 20,000 partitions hold all other clients up for 74 ms. The
walk through them tells their names, ids and numbers of partitions. A topic that is to change is
opened first: it is decoded with the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, final

from librt.strings import read_i16_be, read_i32_be
from mypy_extensions import i64

from gateway.core.cluster.topology import Topic
from gateway.core.wire.codec import decode_response, encode_response
from gateway.core.wire.decode import STRING_MAX, UUID_SIZE, Reader
from gateway.core.wire.errors import BadLength, BadText, EncodeError
from gateway.core.wire.schema import Message

_METADATA: Final = 3
_NO_TOPIC_ID: Final = bytes(UUID_SIZE)
NOT_TOLD: Final = -2_147_483_648  # operations that were not asked for


@final
class ListedTopic:
    """A topic of an answer, and where in the answer it stands."""

    def __init__(
        self,
        name: str | None,
        topic_id: bytes,
        error_code: int,
        partitions: int,
        operations: int = NOT_TOLD,
        begin: int = 0,
        end: int = 0,
    ) -> None:
        self.name: Final = name
        self.topic_id: Final = topic_id  # zeros where the version has none
        self.error_code: Final = error_code
        self.partitions: Final = partitions  # their number
        self.operations: Final = operations  # TopicAuthorizedOperations
        self.begin: Final = begin
        self.end: Final = end


def tell_of_new_partitions(topics: Iterable[ListedTopic], known: Mapping[str, Topic]) -> bool:
    """Whether a topic of these has more partitions than one that is known."""
    for topic in topics:
        before = None if topic.name is None else known.get(topic.name)
        if before is not None and topic.partitions > len(before.partitions):
            return True
    return False


@final
class MetadataAnswer:
    """`message` is the answer without the topics that are not open. Raises WireError."""

    def __init__(self, version: int, payload: bytes, body_at: int) -> None:
        self._version = version
        self._payload = payload
        self._flexible = version >= 9
        reader = Reader(payload, body_at)
        _pass_head(reader, version)
        self._head = payload[body_at : int(reader.at)]
        count = _count(reader, self._flexible, "Topics")
        self._closed = [_topic(reader, version) for _ in range(count)]
        self._tail = payload[int(reader.at) :]
        self._bare = b""  # a head without brokers
        self.message: Message = self._decoded([])

    @property
    def topics(self) -> list[ListedTopic]:
        """All of them; an open one as it is now."""
        return self._closed + [
            ListedTopic(
                topic["Name"],
                topic["TopicId"],
                topic["ErrorCode"],
                len(topic["Partitions"]),
                topic["TopicAuthorizedOperations"],
            )
            for topic in self.message["Topics"]
        ]

    def open(self, names: Iterable[str | None] | None = None) -> None:
        """Puts topics into the message. None: all."""
        wanted = None if names is None else set(names)
        chosen = [each for each in self._closed if wanted is None or each.name in wanted]
        if chosen:
            self._closed = [
                each for each in self._closed if wanted is not None and each.name not in wanted
            ]
            self.message["Topics"] = self.message["Topics"] + self._decoded(chosen)["Topics"]

    def raw(self, topic: ListedTopic) -> bytes:
        """The bytes of a topic that is not open."""
        return self._payload[topic.begin : topic.end]

    def row(self, topic: ListedTopic) -> Message:
        """A topic that is not open, decoded; it stays as it is."""
        if not self._bare:
            message = {**self.message, "Brokers": [], "Topics": []}
            self._bare = self._before_topics(encode_response(_METADATA, self._version, message))
        whole = b"".join([self._bare, self._counted(1), self.raw(topic), self._tail])
        found: Message = decode_response(_METADATA, self._version, whole)["Topics"][0]
        return found

    def body(self) -> list[bytes | memoryview]:
        """The parts of what stands behind the header of the answer. Raises EncodeError."""
        opened = self.message["Topics"]
        self.message["Topics"] = []
        head = self._before_topics(encode_response(_METADATA, self._version, self.message))
        self.message["Topics"] = opened
        rows = b""
        if opened:
            whole = encode_response(_METADATA, self._version, self.message)
            begin = len(head) + len(self._counted(len(opened)))
            rows = whole[begin : len(whole) - len(self._tail)]
        count = self._counted(len(self._closed) + len(opened))
        return [head, count, *self._stretches(), rows, self._tail]

    def _before_topics(self, bare: bytes) -> bytes:
        """The head of an encoded answer that has no topics. Raises EncodeError."""
        ending = self._counted(0) + self._tail
        if not bare.endswith(ending):
            raise EncodeError("Metadata: it ends otherwise than upstream's")
        return bare[: len(bare) - len(ending)]

    def _stretches(self) -> list[bytes | memoryview]:
        """The topics that are not open; neighbours are one stretch."""
        view = memoryview(self._payload)
        found: list[bytes | memoryview] = []
        begin = end = 0
        for topic in self._closed:
            if topic.begin != end:
                found.append(view[begin:end])
                begin = topic.begin
            end = topic.end
        found.append(view[begin:end])
        return found

    def _decoded(self, chosen: list[ListedTopic]) -> Message:
        rows = [self._payload[topic.begin : topic.end] for topic in chosen]
        whole = b"".join([self._head, self._counted(len(rows)), *rows, self._tail])
        return decode_response(_METADATA, self._version, whole)

    def _counted(self, count: int) -> bytes:
        if not self._flexible:
            return count.to_bytes(4, "big")
        left = count + 1
        number = b""
        while left >= 0x80:
            number += bytes([left & 0x7F | 0x80])
            left >>= 7
        return number + bytes([left])


def _pass_head(reader: Reader, version: int) -> None:
    flexible = version >= 9
    if version >= 3:
        reader.skip(4)  # ThrottleTimeMs
    for _ in range(_count(reader, flexible, "Brokers")):
        reader.skip(4)
        _pass_string(reader, flexible)
        reader.skip(4)
        if version >= 1:
            _pass_string(reader, flexible)
        if flexible:
            _pass_tags(reader)
    if version >= 2:
        _pass_string(reader, flexible)  # ClusterId
    if version >= 1:
        reader.skip(4)  # ControllerId


def _topic(reader: Reader, version: int) -> ListedTopic:
    flexible = version >= 9
    begin = reader.at
    error_code: int = read_i16_be(reader.data, int(reader.skip(2)))
    size = _string_size(reader, flexible)
    name: str | None = None
    if size >= 0:
        at = reader.skip(size)
        try:
            name = reader.data[at : at + size].decode("utf-8")
        except UnicodeDecodeError:
            raise BadText("Name") from None
    topic_id = _NO_TOPIC_ID
    if version >= 10:
        at = reader.skip(UUID_SIZE)
        topic_id = reader.data[at : at + UUID_SIZE]
    if version >= 1:
        reader.skip(1)  # IsInternal
    partitions = _count(reader, flexible, "Partitions")
    # ErrorCode, PartitionIndex, LeaderId; LeaderEpoch
    fixed: i64 = 14 if version >= 7 else 10
    arrays: i64 = 3 if version >= 5 else 2  # ReplicaNodes, IsrNodes; OfflineReplicas
    for _ in range(partitions):
        reader.skip(fixed)
        for _array in range(arrays):
            reader.skip(4 * _count(reader, flexible, "nodes"))
        if flexible:
            _pass_tags(reader)
    operations = NOT_TOLD
    if version >= 8:
        operations = read_i32_be(reader.data, int(reader.skip(4)))
    if flexible:
        _pass_tags(reader)
    return ListedTopic(
        name, topic_id, error_code, int(partitions), operations, int(begin), int(reader.at)
    )


def _count(reader: Reader, flexible: bool, name: str) -> i64:
    count: i64 = reader.uvarint() - 1 if flexible else reader.i32()
    if count < 0:
        raise BadLength(f"{name}: length {count}")
    return count


def _string_size(reader: Reader, flexible: bool) -> i64:
    """-1: null. Where that may be, upstream knows."""
    size: i64 = reader.uvarint() - 1 if flexible else reader.i16()
    if size < -1 or size > STRING_MAX:
        raise BadLength(f"string of {size} bytes")
    return size


def _pass_string(reader: Reader, flexible: bool) -> None:
    size = _string_size(reader, flexible)
    if size > 0:
        reader.skip(size)


def _pass_tags(reader: Reader) -> None:
    count = reader.uvarint()
    while count > 0:
        count -= 1
        reader.uvarint()
        reader.skip(reader.uvarint())
