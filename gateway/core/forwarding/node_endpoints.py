"""Finds the node endpoints of a Fetch (v16-18) or Produce (v10-13) response without decoding it.

They are tag 0 of the tagged fields that end the body (KIP-951). On the way there everything is
skipped by length, records too, so a response of 50 MB costs a few steps per partition. The walk is
fed the bytes of one response as they come and keeps no byte: its state is the meaning of the next
varint, and the number of bytes before it.
"""

from __future__ import annotations

from typing import Final

# The meaning of the next varint.
_TAG_COUNT: Final = 0
_TAG_NUMBER: Final = 1
_TAG_SIZE: Final = 2
_TOPICS: Final = 3
_TOPIC_NAME: Final = 4
_PARTITIONS: Final = 5
_ITEMS: Final = 6  # Fetch: AbortedTransactions; Produce: RecordErrors
_ITEM_MESSAGE: Final = 7  # Produce: BatchIndexErrorMessage
_BYTES: Final = 8  # Fetch: Records; Produce: ErrorMessage
_TAIL: Final = 9  # the tagged fields that end the body

# Where a section of tagged fields leads.
_TO_TOPICS: Final = 0
_TO_NEXT_TOPIC: Final = 1
_TO_NEXT_PARTITION: Final = 2
_TO_NEXT_ITEM: Final = 3

_CORRELATION_BYTES: Final = 4
_TOPIC_ID_BYTES: Final = 16
_PARTITION_BYTES: Final = 30  # both APIs: i32, i16 and three i64 before the first varint
_ABORTED_BYTES: Final = 16  # ProducerId, FirstOffset
_BATCH_INDEX_BYTES: Final = 4
_FETCH_TOP_BYTES: Final = 10  # ThrottleTimeMs, ErrorCode, SessionId
_PREFERRED_REPLICA_BYTES: Final = 4
_THROTTLE_BYTES: Final = 4

_VARINT_SHIFT_MAX: Final = 28
_NODE_ENDPOINTS_TAG: Final = 0
# No Kafka response defines it: a reader keeps or skips it as an unknown tagged field.
_NEUTRAL_TAG: Final = 127


class MalformedResponse(Exception):
    """The upstream sent bytes that are no response of this API and version."""


class TailWalk:
    """The walk over one response, from its correlation id on."""

    def __init__(self, *, fetch: bool, topic_ids: bool) -> None:
        self._fetch = fetch
        self._topic_ids = topic_ids
        self._skip = _CORRELATION_BYTES
        self._expect = _TAG_COUNT
        self._after_tags = _TO_TOPICS
        self._value = 0  # of a varint cut by the end of a chunk
        self._shift = 0
        self._topics = 0
        self._partitions = 0
        self._items = 0
        self._tags = 0

    def feed(self, data: bytes, at: int, end: int) -> int:
        """The index in data[at:end] where the last tagged fields begin; -1: not in here.

        Raises MalformedResponse.
        """
        while True:
            if self._skip > end - at:
                self._skip -= end - at
                return -1
            at += self._skip
            self._skip = 0
            if self._expect == _TAIL:
                return at
            if at == end:
                return -1
            byte = data[at]
            at += 1
            self._value |= (byte & 0x7F) << self._shift
            if byte & 0x80:
                self._shift += 7
                if self._shift > _VARINT_SHIFT_MAX:
                    raise MalformedResponse("varint of more than 5 bytes")
                continue
            value = self._value
            self._value = 0
            self._shift = 0
            self._varint(value)

    def _varint(self, value: int) -> None:
        expect = self._expect
        length = value - 1 if value else 0  # compact: 0 is null, n + 1 is n
        if expect == _TAG_COUNT:
            self._tags = value
            self._next_tag()
        elif expect == _TAG_NUMBER:
            self._expect = _TAG_SIZE
        elif expect == _TAG_SIZE:
            self._skip = value
            self._next_tag()
        elif expect == _TOPICS:
            self._topics = length
            self._next_topic()
        elif expect == _TOPIC_NAME:
            self._skip = length
            self._expect = _PARTITIONS
        elif expect == _PARTITIONS:
            self._partitions = length
            self._next_partition()
        elif expect == _ITEMS:
            self._items = length
            self._next_item()
        elif expect == _ITEM_MESSAGE:
            self._skip = length
            self._tagged_then(_TO_NEXT_ITEM)
        else:
            assert expect == _BYTES
            self._skip = length
            self._tagged_then(_TO_NEXT_PARTITION)

    def _tagged_then(self, where: int) -> None:
        self._expect = _TAG_COUNT
        self._after_tags = where

    def _next_tag(self) -> None:
        if self._tags:
            self._tags -= 1
            self._expect = _TAG_NUMBER
        elif self._after_tags == _TO_TOPICS:
            self._skip += _FETCH_TOP_BYTES if self._fetch else 0
            self._expect = _TOPICS
        elif self._after_tags == _TO_NEXT_TOPIC:
            self._next_topic()
        elif self._after_tags == _TO_NEXT_PARTITION:
            self._next_partition()
        else:
            self._next_item()

    def _next_topic(self) -> None:
        if self._topics == 0:
            self._skip += 0 if self._fetch else _THROTTLE_BYTES
            self._expect = _TAIL
            return
        self._topics -= 1
        if self._topic_ids:
            self._skip += _TOPIC_ID_BYTES
            self._expect = _PARTITIONS
        else:
            self._expect = _TOPIC_NAME

    def _next_partition(self) -> None:
        if self._partitions == 0:
            self._tagged_then(_TO_NEXT_TOPIC)
            return
        self._partitions -= 1
        self._skip += _PARTITION_BYTES
        self._expect = _ITEMS

    def _next_item(self) -> None:
        if self._items == 0:
            self._skip += _PREFERRED_REPLICA_BYTES if self._fetch else 0
            self._expect = _BYTES
            return
        self._items -= 1
        if self._fetch:
            self._skip += _ABORTED_BYTES
            self._tagged_then(_TO_NEXT_ITEM)
        else:
            self._skip += _BATCH_INDEX_BYTES
            self._expect = _ITEM_MESSAGE


def neutralised(tail: bytes) -> bytes:
    """The tagged fields `tail` at the same length, without node endpoints.

    A client that gets a new leader id and no endpoint for it asks for metadata: the two never
    disagree. Raises MalformedResponse.
    """
    result = bytearray(tail)
    count, at = _read_varint(tail, 0)
    for _ in range(count):
        tag_at = at
        tag, at = _read_varint(tail, at)
        size, at = _read_varint(tail, at)
        if size > len(tail) - at:
            raise MalformedResponse("tagged field beyond the end of the frame")
        if tag == _NODE_ENDPOINTS_TAG:
            if tail[tag_at]:
                raise MalformedResponse("tag 0 in more than one byte")
            result[tag_at] = _NEUTRAL_TAG
            result[at : at + size] = bytes(size)
        at += size
    if at != len(tail):
        raise MalformedResponse("bytes after the last tagged field")
    return bytes(result)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    shift = 0
    while at < len(data) and shift <= _VARINT_SHIFT_MAX:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise MalformedResponse("varint cut off or of more than 5 bytes")
