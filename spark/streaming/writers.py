"""The producers and consumers of a Python worker, kept from batch to batch.

A producer's transactional id belongs to link and partition. Opening it (`init_transactions`) fences
the writer before, and ends its open transaction. A producer that this worker has opened is used
again without that, as long as the position on the target is the one that it has committed last:
then nobody else has written since. Another worker may have opened the id meanwhile and written
nothing; then the broker refuses this one's next transaction, nothing of it stands, the producer is
closed, and Spark tries the task again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from keyway.kafka.transactions import NO_TOPICS, opened
from spark.streaming.core.pace import Pace
from spark.streaming.limits import (
    ANSWER_S,
    CONSUMERS_KEPT_MAX,
    FLUSH_LOOK_S,
    KEPT_S,
    PRODUCERS_KEPT_MAX,
    QUEUE_KBYTES,
    QUIET,
    RECORD_BYTES_MAX,
)
from spark.streaming.orders import Settings


@dataclass(slots=True)
class Writer:
    """One producer. `name` is its transactional id; `topic` is one it writes to."""

    settings: Settings
    name: str
    topic: str
    timeout_s: float
    exactly_once: bool
    pace: Pace = field(init=False)
    producer: Producer = field(init=False)
    failed: KafkaError | None = field(default=None, init=False)  # the first record that failed
    position: int = field(default=-1, init=False)  # that it has committed last
    used_s: float = field(default_factory=monotonic, init=False)

    def __post_init__(self) -> None:
        self.pace = Pace(self.timeout_s)
        timeout_ms = int(self.timeout_s * 1_000)
        way: Settings = {"enable.idempotence": "true", "delivery.timeout.ms": timeout_ms}
        if self.exactly_once:
            way = {"transactional.id": self.name, "transaction.timeout.ms": timeout_ms}
        settings = {
            "message.max.bytes": RECORD_BYTES_MAX,  # the topic decides, not this client
            "queue.buffering.max.messages": 0,  # no bound by number, but by bytes
            "queue.buffering.max.kbytes": QUEUE_KBYTES,
            "linger.ms": 5,
            "delivery.report.only.error": True,
            "on_delivery": self._told,
            "log_level": QUIET,
            **way,
            **self.settings,
        }
        if self.exactly_once:
            self.producer = opened(settings, self.topic, ANSWER_S)
        else:
            self.producer = Producer({**settings, **NO_TOPICS})

    def _told(self, error: KafkaError | None, _message: object) -> None:
        if error is not None and self.failed is None:
            self.failed = error

    def begin(self) -> None:
        if self.exactly_once:
            self.producer.begin_transaction()

    def check(self) -> None:
        """Raises the failure of a record, if one is known."""
        self.producer.poll(0)
        if self.failed is not None:
            raise KafkaException(self.failed)

    def flush(self, failed: Callable[[], bool] = lambda: False) -> None:
        """Returns when all records are on the target, or when one has failed, which `failed` may
        say, too. Raises KafkaException.
        """
        end_s = monotonic() + self.timeout_s
        # Behind a record that failed nothing of a transaction is sent, and a flush waits in vain.
        while self.producer.flush(FLUSH_LOOK_S) and not failed() and self.failed is None:
            if monotonic() > end_s:
                raise KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT))
        if self.failed is not None:
            raise KafkaException(self.failed)

    def commit(self, consumer: Consumer, place: TopicPartition) -> None:
        """Commits the records since `begin` and the position behind them. Raises KafkaException."""
        self.flush()
        if self.exactly_once:
            metadata = consumer.consumer_group_metadata()
            self.producer.send_offsets_to_transaction([place], metadata, ANSWER_S)
            self.producer.commit_transaction(self.timeout_s)
        else:
            (done,) = consumer.commit(offsets=[place], asynchronous=False)
            if done.error is not None:
                raise KafkaException(done.error)
        self.position = place.offset
        self.used_s = monotonic()

    def close(self) -> None:
        """Closes as far as it can: the next writer of the id ends a transaction that is open."""
        try:
            self.producer.purge()
            if self.exactly_once:
                self.producer.abort_transaction(ANSWER_S)
        except KafkaException:
            return


class Kept:
    """One per process. Only one task at a time uses it."""

    def __init__(self) -> None:
        self._consumers: OrderedDict[tuple[object, ...], Consumer] = OrderedDict()
        self._writers: OrderedDict[tuple[object, ...], Writer] = OrderedDict()

    def consumer(self, client: Settings, group: str) -> Consumer:
        """One of `group` that never subscribes: it reads and commits positions."""
        key = (group, *sorted(client.items()))
        found = self._consumers.pop(key, None)
        if found is None:
            found = consumer_of(client, group)
        self._consumers[key] = found
        while len(self._consumers) > CONSUMERS_KEPT_MAX:
            self._consumers.popitem(last=False)[1].close()
        found.poll(0)  # its errors are of no interest, and take room
        return found

    def taken(self, settings: Settings, name: str, timeout_s: float) -> Writer | None:
        """The writer that was left here. It must be given back by `leave`, or closed."""
        found = self._writers.pop(_key(settings, name, timeout_s), None)
        return found if found is not None and monotonic() - found.used_s < KEPT_S else None

    def leave(self, writer: Writer) -> None:
        self._writers[_key(writer.settings, writer.name, writer.timeout_s)] = writer
        while len(self._writers) > PRODUCERS_KEPT_MAX:
            self._writers.popitem(last=False)

    def close(self) -> None:
        self._writers.clear()
        while self._consumers:
            self._consumers.popitem()[1].close()


def _key(settings: Settings, name: str, timeout_s: float) -> tuple[object, ...]:
    return (name, timeout_s, *sorted(settings.items()))


def consumer_of(client: Settings, group: str) -> Consumer:
    return Consumer({**client, "group.id": group, "enable.auto.commit": False, "log_level": QUIET})


@contextmanager
def positions_of(client: Settings, group: str) -> Iterator[Consumer]:
    """A consumer of `group` that never subscribes, for a moment."""
    consumer = consumer_of(client, group)
    try:
        yield consumer
    finally:
        consumer.close()
