"""The walk through a Produce request, a Fetch response or a Produce response, without decoding it.

It counts the bytes of records by topic, and finds the tagged fields that end a response (KIP-951:
node endpoints). On the way there everything is skipped by length, records too, so a response of
50 MB costs a few steps per partition. The walk is fed the bytes of one message as they come. Its
state is the meaning of the next number, the number of bytes before it, and of a topic's name the
part that it has.

A number is a varint in flexible versions, and has two or four bytes in older ones. Each step takes
at least one byte, whatever a message says about its own length. Records count once they have
passed: a length alone adds nothing.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import read_i32_be
from mypy_extensions import i64

from gateway.core.forwarding.topic_bytes import TopicBytes, TopicTraffic
from gateway.core.limits import WALK_NUMBERS_MAX

NOT_YET: Final = -1
LOST: Final = -2

# The meaning of the next number; of _TOPIC_KEY and the last two: no number is next.
_TAG_COUNT: Final = 0
_TAG_NUMBER: Final = 1
_TAG_SIZE: Final = 2
_TOPICS: Final = 3
_TOPIC_NAME: Final = 4  # its length
_TOPIC_KEY: Final = 5  # the bytes of its name or id
_PARTITIONS: Final = 6
_ITEMS: Final = 7  # Fetch: AbortedTransactions; Produce response: RecordErrors
_ITEM_MESSAGE: Final = 8  # Produce response: BatchIndexErrorMessage
_BYTES: Final = 9  # Records; Produce response: ErrorMessage
_TAIL: Final = 10  # all that is looked for has come; the tagged fields that end the body are left
_ASTRAY: Final = 11  # above all others, as is _TAIL

# Where a section of tagged fields leads.
_TO_TOPICS: Final = 0
_TO_NEXT_TOPIC: Final = 1
_TO_NEXT_PARTITION: Final = 2
_TO_NEXT_ITEM: Final = 3

PRODUCE_ENDPOINTS_FROM: Final = 10
FETCH_ENDPOINTS_FROM: Final = 16

_TOPIC_ID_BYTES: Final = 16
_TOPIC_NAME_BYTES_MAX: Final = 249  # Kafka's own; a longer one is no topic's
_VARINT_BYTES_MAX: Final = 5


@final
class Layout:
    """The layout of one kind of message in one version. Lengths are those of fields of a fixed
    size.
    """

    def __init__(
        self,
        *,
        flexible: bool,
        topic_ids: bool,
        partition_bytes: int,
        head_bytes: int = 0,
        header_tags: bool = False,
        item_bytes: int = 0,
        item_messages: bool = False,
        before_bytes: int = 0,
        tail_bytes: int = 0,
        ends_with_records: bool = False,
        produced: bool = False,
        fetched: bool = False,
    ) -> None:
        self.flexible: Final = flexible
        self.topic_ids: Final = topic_ids
        self.header_tags: Final = header_tags  # the header ends with tagged fields
        self.head_bytes: Final[i64] = head_bytes  # of the body, before the topics
        self.partition_bytes: Final[i64] = partition_bytes  # before the first number
        self.item_bytes: Final[i64] = item_bytes  # 0: there are no items
        self.item_messages: Final = item_messages
        self.before_bytes: Final[i64] = before_bytes  # between the items and `_BYTES`
        self.tail_bytes: Final[i64] = tail_bytes  # behind the last topic
        self.ends_with_records: Final = ends_with_records  # nothing is looked for behind the last
        self.produced: Final = produced  # `_BYTES` are records that a client sends,
        self.counted: Final = produced or fetched  # ... or gets; or they are none


def _produce_request(version: int) -> Layout:
    """The walk begins behind `acks`."""
    return Layout(
        flexible=version >= 9,
        topic_ids=version >= 13,
        partition_bytes=4,  # Index
        ends_with_records=True,
        produced=True,
    )


def _fetch_response(version: int) -> Layout:
    """The walk begins behind the correlation id."""
    since_4 = version >= 4
    return Layout(
        flexible=version >= 12,
        topic_ids=version >= 13,
        header_tags=version >= 12,
        head_bytes=4 * (version >= 1) + 6 * (version >= 7),  # ThrottleTimeMs; ErrorCode, SessionId
        # PartitionIndex, ErrorCode, HighWatermark; LastStableOffset; LogStartOffset
        partition_bytes=14 + 8 * since_4 + 8 * (version >= 5),
        item_bytes=16 * since_4,  # ProducerId, FirstOffset
        before_bytes=4 * (version >= 11),  # PreferredReadReplica
        ends_with_records=version < FETCH_ENDPOINTS_FROM,
        fetched=True,
    )


def _produce_response(version: int) -> Layout:
    """The walk begins behind the correlation id. Only of versions that may end in endpoints."""
    return Layout(
        flexible=True,
        topic_ids=version >= 13,
        header_tags=True,
        partition_bytes=30,  # Index, ErrorCode, BaseOffset, LogAppendTimeMs, LogStartOffset
        item_bytes=4,  # BatchIndex
        item_messages=True,
        tail_bytes=4,  # ThrottleTimeMs
    )


# By version.
PRODUCE_REQUESTS: Final = [_produce_request(version) for version in range(14)]
FETCH_RESPONSES: Final = [_fetch_response(version) for version in range(19)]
PRODUCE_RESPONSES: Final = {
    version: _produce_response(version) for version in range(PRODUCE_ENDPOINTS_FROM, 14)
}


@final
class PartitionWalk:
    """Walks through one message after the other. The caller owns `topics`."""

    def __init__(self, topics: TopicBytes) -> None:
        self._counts: Final = topics
        self.watched: Final[set[str]] = set()  # topics that are, and were produced to
        self._layout: Layout = PRODUCE_REQUESTS[0]
        self._flexible = False
        self._expect: i64 = _ASTRAY
        self._after_tags: i64 = _TO_TOPICS
        self._skip: i64 = 0
        self._value: i64 = 0  # of a number that is cut by the end of a chunk,
        self._taken: i64 = 0  # ... and its bytes so far
        self._numbers: i64 = 0  # so far
        self._topics: i64 = 0  # still to come, as all below
        self._partitions: i64 = 0
        self._items: i64 = 0
        self._tags: i64 = 0
        self._key_left: i64 = 0
        self._key = b""  # the beginning of a topic's name or id that is cut off
        self._records: i64 = 0  # bytes of records that are being skipped
        self._topic: TopicTraffic = topics.unnamed

    def begin(self, layout: Layout, skip: i64) -> None:
        """A message whose first `skip` bytes are not described by its layout."""
        self._layout = layout
        self._flexible = layout.flexible
        self._skip = skip
        self._value = self._taken = self._records = self._numbers = 0
        self._key = b""
        if layout.header_tags:
            self._tagged_then(_TO_TOPICS)
        else:
            self._skip += layout.head_bytes
            self._expect = _TOPICS

    def feed(self, data: bytes, at: i64, end: i64) -> i64:
        """The index in data[at:end] where the last tagged fields begin. NOT_YET: not in here. LOST:
        this is no such message. Of a message that has no endpoints, it may be an earlier index.
        """
        while True:
            if self._skip > end - at:
                self._skip -= end - at
                return NOT_YET
            at += self._skip
            self._skip = 0
            if self._records:
                self._count()
            if self._expect >= _TAIL:
                return at if self._expect == _TAIL else LOST
            if at == end:
                return NOT_YET
            if self._expect == _TOPIC_KEY:
                at = self._take_key(data, at, end)
            else:
                at = self._take_number(data, at, end)
                self._numbers += 1
                # Upstream's answers are walked to their end, for their endpoints.
                if self._numbers > WALK_NUMBERS_MAX and self._layout.produced:
                    self._expect = _ASTRAY

    def _take_number(self, data: bytes, at: i64, end: i64) -> i64:
        """Where the number ends, or the byte that is here."""
        byte: i64 = data[at]
        if self._taken == 0:  # the usual cases: it is all here
            if self._flexible and byte < 0x80:
                self._number(byte)
                return at + 1
            if not self._flexible and end - at >= 4 and self._expect != _TOPIC_NAME:
                self._number(i64(read_i32_be(data, at)))
                return at + 4
        if self._is_whole(byte):
            value = self._value
            self._value = self._taken = 0
            self._number(value)
        return at + 1

    def _is_whole(self, byte: i64) -> bool:
        """The number is, with this byte."""
        self._taken += 1
        if not self._flexible:
            # Its first byte has the sign.
            before: i64 = -1 if self._taken == 1 and byte >= 0x80 else self._value
            self._value = before << 8 | byte
            return self._taken == (2 if self._expect == _TOPIC_NAME else 4)
        self._value |= (byte & 0x7F) << (self._taken - 1) * 7
        if byte < 0x80:
            return True
        if self._taken == _VARINT_BYTES_MAX:
            self._expect = _ASTRAY
        return False

    def _count(self) -> None:
        """The records that were skipped have passed."""
        if self._layout.produced:
            self._topic.produced += self._records
        else:
            self._topic.fetched += self._records
        self._records = 0

    def _take_key(self, data: bytes, at: i64, end: i64) -> i64:
        """Where the name or id of the topic ends, or the bytes that are here."""
        part_end = at + self._key_left
        if part_end > end:
            part_end = end
        part = data[at:part_end]
        key = self._key + part if self._key else part
        self._key_left -= part_end - at
        if self._key_left:
            self._key = key
            return part_end
        self._key = b""
        known = self._counts.by_id if self._layout.topic_ids else self._counts.by_name
        self._topic = known.get(key, self._counts.unnamed)
        if self._topic.watched and self._layout.produced:
            self.watched.add(self._topic.name)
        self._expect = _PARTITIONS
        return part_end

    def _number(self, value: i64) -> None:
        expect = self._expect
        if expect == _TAG_COUNT:
            self._tags = value
            self._next_tag()
        elif expect == _TAG_NUMBER:
            self._expect = _TAG_SIZE
        elif expect == _TAG_SIZE:
            self._skip = value
            self._next_tag()
        else:
            # Compact: n + 1 is n, and 0 is null. Else -1 is null, of the length 0 as well.
            length = value - 1 if self._flexible else value
            self._length(expect, length if length > 0 else 0)

    def _length(self, expect: i64, length: i64) -> None:
        if expect == _BYTES:
            self._skip = length
            if self._layout.counted:
                self._records = length
            if self._partitions or self._topics or not self._layout.ends_with_records:
                self._tagged_then(_TO_NEXT_PARTITION)
            else:
                self._expect = _TAIL
        elif expect == _TOPICS:
            self._topics = length
            self._next_topic()
        elif expect == _TOPIC_NAME:
            self._next_key(length)
        elif expect == _PARTITIONS:
            self._partitions = length
            self._next_partition()
        elif expect == _ITEMS:
            if not self._flexible:  # nothing stands between them
                self._skip = length * self._layout.item_bytes
                length = 0
            self._items = length
            self._next_item()
        else:
            assert expect == _ITEM_MESSAGE
            self._skip = length
            self._tagged_then(_TO_NEXT_ITEM)

    def _tagged_then(self, where: i64) -> None:
        self._after_tags = where
        if self._flexible:
            self._expect = _TAG_COUNT
        else:
            self._tags = 0
            self._next_tag()

    def _next_tag(self) -> None:
        if self._tags:
            self._tags -= 1
            self._expect = _TAG_NUMBER
        elif self._after_tags == _TO_TOPICS:
            self._skip += self._layout.head_bytes
            self._expect = _TOPICS
        elif self._after_tags == _TO_NEXT_TOPIC:
            self._next_topic()
        elif self._after_tags == _TO_NEXT_PARTITION:
            self._next_partition()
        else:
            self._next_item()

    def _next_topic(self) -> None:
        if self._topics == 0:
            self._skip += self._layout.tail_bytes
            self._expect = _TAIL
            return
        self._topics -= 1
        if self._layout.topic_ids:
            self._next_key(_TOPIC_ID_BYTES)
        else:
            self._expect = _TOPIC_NAME

    def _next_key(self, length: i64) -> None:
        if self._layout.counted and 0 < length <= _TOPIC_NAME_BYTES_MAX:
            self._key_left = length
            self._expect = _TOPIC_KEY
        else:
            self._skip += length
            self._topic = self._counts.unnamed
            self._expect = _PARTITIONS

    def _next_partition(self) -> None:
        if self._partitions == 0:
            self._tagged_then(_TO_NEXT_TOPIC)
            return
        self._partitions -= 1
        self._skip += self._layout.partition_bytes
        self._expect = _ITEMS if self._layout.item_bytes else _BYTES

    def _next_item(self) -> None:
        if self._items == 0:
            self._skip += self._layout.before_bytes
            self._expect = _BYTES
            return
        self._items -= 1
        self._skip += self._layout.item_bytes
        if self._layout.item_messages:
            self._expect = _ITEM_MESSAGE
        else:
            self._tagged_then(_TO_NEXT_ITEM)
