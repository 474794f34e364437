"""A registry's contents read from its log, `_schemas`."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Mapping
from functools import cached_property

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from keyway.kafka.topics import described
from schema_dist.core.contents import Contents
from schema_dist.core.records import decode
from schema_dist.errors import AwayError, LogError
from schema_dist.limits import (
    ANSWER_S_MAX,
    CREATED_POLL_S,
    CREATED_S_MAX,
    LEFT_ALONE,
    READ_BATCH,
    READ_TURN_S,
    RECORD_BYTES_MAX,
)

_Record = tuple[int, bytes | None, bytes | None]  # offset, key, value


_NOT_YET = frozenset(
    {
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    }
)
NO_RECORD = f"no record within {ANSWER_S_MAX:.0f} s"


def consume(consumer: Consumer) -> list[Message]:
    """The next records, or the end of a partition; empty if none came in time."""
    until = time.monotonic() + ANSWER_S_MAX
    while True:
        messages = consumer.consume(READ_BATCH, READ_TURN_S)
        if messages or time.monotonic() > until:
            return messages


class LogReader:
    """Follows one `_schemas` topic. Each `read` goes on where the last one ended."""

    def __init__(self, client_settings: Mapping[str, str], topic: str) -> None:
        self._topic = topic
        self._address = client_settings["bootstrap.servers"]
        self._consumer = Consumer(
            {
                **client_settings,
                "group.id": "keyway-schemas-reader",  # required; nothing is committed
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "message.max.bytes": RECORD_BYTES_MAX,
                "log_level": 2,
            }
        )
        self._settings = dict(client_settings)
        self._position: int | None = None  # None: from the beginning
        self._topic_id = ""  # not known yet
        self.contents = Contents()

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient({**self._settings, "log_level": 2})

    async def read(self) -> Contents:
        """The contents up to the log's present end. Raises AwayError, LogError."""
        asked, anew, left_alone = None, self._position is None, 0
        while True:
            # The thread only reads: users of the contents never see half of a batch meanwhile.
            end, records = await asyncio.to_thread(self._read, asked)
            for offset, key, value in records:
                self.contents.apply(decode(key, value), offset)
            at_end = self._position is not None and self._position >= end
            if anew and len(self.contents) - left_alone > (READ_BATCH if at_end else LEFT_ALONE):
                # They stay, and have no cycles. Each full collection would go through all of them,
                # and hold the event loop for seconds.
                gc.freeze()
                left_alone = len(self.contents)
            if at_end:
                return self.contents
            asked = end

    def close(self) -> None:
        self._consumer.close()

    def _read(self, end: int | None) -> tuple[int, list[_Record]]:
        """The log's end, asked for unless it is given, and some records before it."""
        try:
            if end is None:
                end = self._end()
                if self._position is None or end < self._position or self._is_made_anew():
                    self._start_over()
            if self._position is not None and self._position >= end:
                return end, []
            messages = consume(self._consumer)
            if not messages:
                raise AwayError(f"{self._topic} at {self._address}: {NO_RECORD}; its end is {end}")
            return end, [record for record in map(self._taken, messages) if record is not None]
        except KafkaException as error:
            raise AwayError(f"{self._topic} at {self._address}: {error.args[0].str()}") from error

    def _end(self) -> int:
        found = self._consumer.list_topics(self._topic, timeout=ANSWER_S_MAX).topics[self._topic]
        if found.error is not None:
            if found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise LogError(f"there is no topic {self._topic} at {self._address}")
            raise KafkaException(found.error)
        if len(found.partitions) != 1:
            count = len(found.partitions)
            raise LogError(f"topic {self._topic} at {self._address} has {count} partitions, not 1")
        watermarks = self._watermarks()
        if watermarks is None:
            raise AwayError(f"{self._topic} at {self._address}: its end was not told in time")
        return int(watermarks[1])

    def _is_made_anew(self) -> bool:
        """Whether this is another topic of that name than at the last look. The end of its log
        alone does not tell: by now it may be beyond our position. Commands read once and do not
        ask, because the first answer to an admin client may take seconds.
        """
        found = described(self._admin, [self._topic], ANSWER_S_MAX)[self._topic]
        if isinstance(found, KafkaError):
            raise KafkaException(found)
        before, (self._topic_id, _) = self._topic_id, found
        return before not in ("", self._topic_id)

    def _watermarks(self) -> tuple[int, int] | None:
        """Brokers learn one after the other of a topic that was created a moment ago, so an unknown
        topic is asked for again for a while.
        """
        until = time.monotonic() + CREATED_S_MAX
        while True:
            try:
                return self._consumer.get_watermark_offsets(
                    TopicPartition(self._topic, 0), timeout=ANSWER_S_MAX
                )
            except KafkaException as error:
                if error.args[0].code() not in _NOT_YET or time.monotonic() > until:
                    raise
                time.sleep(CREATED_POLL_S)

    def _start_over(self) -> None:
        self.contents = Contents()
        self._position = None
        self._consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])

    def _taken(self, message: Message) -> _Record | None:
        offset = message.offset()
        assert offset is not None
        error = message.error()
        if error is None:
            self._position = offset + 1
            return offset, _bytes(message.key()), _bytes(message.value())
        if error.code() != KafkaError._PARTITION_EOF:
            if error.code() == KafkaError._AUTO_OFFSET_RESET:
                self._position = None  # truncated behind our back: all of it again
            raise KafkaException(error)
        self._position = offset
        return None


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
