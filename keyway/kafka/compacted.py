"""A compacted topic of one partition in which a service keeps its state: the latest value of a key
counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from keyway.clusters.core.internal import STATE_TOPIC_CONFIG
from keyway.kafka.log_ends import NO_LEADERS, LogEnds
from keyway.kafka.topics import answered, described
from keyway.kafka.transactions import NO_TOPICS

QUIET = 2  # librdkafka's own log: its errors reach the caller
ANSWER_S_MAX = 30.0  # for one request, retries included: a leader that moves takes some seconds
RECORD_BYTES_MAX = 8 * 1024 * 1024  # to send; the topic's own limit is a lower one
RECORDS_AT_ONCE = 10_000  # a few MB
_WAIT_S = 0.05
_CREATED_POLL_S = 0.1
# Brokers learn one after the other of a topic that was created a moment ago.
_NOT_YET = (
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    NO_LEADERS,
)
_NOT_TOLD = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED)
_PASSING = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)

Record = tuple[bytes, bytes | None]
Take = Callable[[bytes | None, bytes | None], object]


class CompactedTopic:
    """One thread at a time may use it. `close` it. All methods block, and raise KafkaException if
    the cluster does not answer or refuses.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        name: str,
        *,
        answer_s: float = ANSWER_S_MAX,
        compression: str = "none",
    ) -> None:
        """`compression`: of what is written. The topic's limit is one of compressed records."""
        self.name = name
        self._compression = compression
        self._settings = {**settings, "log_level": QUIET}
        self._answer_s = answer_s
        self._created_s: float | None = None
        self._consumer: Consumer | None = None
        self._position = 0

    @cached_property
    def _ends(self) -> LogEnds:
        return LogEnds(self._settings, self._answer_s, self._admin)

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient(self._settings)

    @cached_property
    def _producer(self) -> Producer:
        return Producer(
            {
                **self._settings,
                **NO_TOPICS,
                "enable.idempotence": True,
                "message.timeout.ms": int(self._answer_s * 1_000),
                "message.max.bytes": RECORD_BYTES_MAX,
                "compression.type": self._compression,
            }
        )

    def exists(self) -> bool:
        """Whether Kafka knows the topic, and this user may describe it."""
        return self.topic_id() is not None

    def topic_id(self) -> str | None:
        """A topic that is deleted and created again has another one. None if it does not exist, or
        if this user may not describe it.
        """
        (answer,) = described(self._admin, [self.name], self._answer_s).values()
        if not isinstance(answer, KafkaError):
            return answer[0]
        if answer.code() in _NOT_TOLD:
            return None
        raise KafkaException(answer)

    def ensure(self, configs: Mapping[str, str] = STATE_TOPIC_CONFIG) -> bool:
        """Creates the topic, with the brokers' default number of replicas, unless it exists.
        Returns whether it did.
        """
        if self.exists():
            return False
        new, created = NewTopic(self.name, 1, -1, config=dict(configs)), True
        asked = self._admin.create_topics([new], request_timeout=self._answer_s)[self.name]
        try:
            answered(asked, self._answer_s)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            created = False
        self._created_s = time.monotonic()
        return created

    def end(self) -> int:
        """Where the committed records end now. This is asked on a connection of its own: behind a
        consumer's fetch it would wait for that fetch.
        """
        while True:
            try:
                return self._end()
            except KafkaException as error:
                new_s = self._created_s
                new = new_s is not None and time.monotonic() - new_s < self._answer_s
                if not new or error.args[0].code() not in _NOT_YET:
                    raise
                time.sleep(_CREATED_POLL_S)

    def _end(self) -> int:
        (end,) = self._ends.ends([(self.name, 0)]).values()
        if isinstance(end, KafkaError):
            raise KafkaException(end)
        return end

    def read(self, take: Take, *, for_s: float | None = None) -> bool:
        """Gives `take` what was written since the last read, up to the topic's present end. Returns
        False if `for_s` was over before. Without `for_s` it reads for as long as records come.
        """
        end = self.end()
        if end < self._position:  # the topic was made anew
            self.forget()
        until = time.monotonic() + (for_s or self._answer_s)
        while self._position < end:
            if time.monotonic() > until:
                if for_s is None:
                    raise _late()
                return False
            try:
                came = self._take(take)
            except BaseException:
                self._stop_reading()  # the rest of the messages comes again
                raise
            if came and for_s is None:
                until = time.monotonic() + self._answer_s
        return True

    def _take(self, take: Take) -> bool:
        if self._consumer is None:
            self._consumer = self._reading()
        messages = consumed(self._consumer, _WAIT_S)
        for message in messages:
            error, offset = message.error(), message.offset()
            if error is None:
                assert offset is not None
                take(message.key(), message.value())
                self._position = offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                self._position = max(self._position, offset or 0)  # past a transaction's marker
            elif error.code() not in _PASSING:
                raise KafkaException(error)
        return bool(messages)

    def _reading(self) -> Consumer:
        consumer = Consumer(
            {
                **self._settings,
                "group.id": "keyway-state-reader",  # required; nothing is committed
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,
            }
        )
        consumer.assign([TopicPartition(self.name, 0, self._position)])
        return consumer

    def forget(self) -> None:
        """The next read begins at the topic's start."""
        self._stop_reading()
        self._position = 0

    def write(self, records: Iterable[Record]) -> None:
        """Returns when all records are durable."""
        records = tuple(records)
        if not records:
            return
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: object) -> None:
            if error is not None:
                failed.append(error)

        for key, value in records:
            self._produce(key, value, delivered)
        left = self._producer.flush(2 * self._answer_s)
        if failed or left:
            self._producer.purge()
            raise KafkaException(failed[0]) if failed else _late()

    def _produce(self, key: bytes, value: bytes | None, delivered: Callable[..., None]) -> None:
        while True:
            try:
                self._producer.produce(self.name, value, key, 0, on_delivery=delivered)
            except BufferError:
                self._producer.poll(0.1)  # full: wait until some are delivered
            else:
                return

    def _stop_reading(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def close(self) -> None:
        """Drops records that have not been delivered: nobody wants them any more."""
        self._stop_reading()
        if "_producer" in self.__dict__:
            self._producer.purge()


def consumed(consumer: Consumer, wait_s: float) -> list[Message]:
    """The messages that are there now; waits at most `wait_s` for the first one. `consume` by
    itself waits all that time unless the batch is full. Raises KafkaException.
    """
    first = consumer.poll(wait_s) if wait_s else None
    rest = consumer.consume(RECORDS_AT_ONCE, 0.0)
    return rest if first is None else [first, *rest]


def _late() -> KafkaException:
    return KafkaException(KafkaError(KafkaError._TIMED_OUT))
