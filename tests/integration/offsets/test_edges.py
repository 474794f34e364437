"""The edges of timestamp lookup and translation on real Kafkas: one round of services, one topic
and one group for each case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from offsets.core.plan import Mode, Refusal, Row
from tests.integration.offsets.conftest import Addresses
from tests.rig.kafka import create_topic, end_transaction, log_end
from tests.rig.offset_clusters import PlainLink, Services, commit, produce_at, write_config
from tests.rig.patience import wait_until

pytestmark = [pytest.mark.deep, pytest.mark.integration]
BASE = 1_700_000_000_000
COMPACTING = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.001",
    "segment.ms": "100",
    "delete.retention.ms": "100",
}


@dataclass
class Case:
    """One topic on both clusters, and one group of the topic's name on A."""

    pair: Addresses
    topic: str
    links: list[PlainLink] = field(default_factory=list)

    def produce(self, *seconds: float, on: str = "A") -> None:
        lines = [
            (BASE + int(second * 1_000), f"{on}{at}".encode()) for at, second in enumerate(seconds)
        ]
        produce_at(self.pair[on], self.topic, lines)

    def copy(self) -> None:
        if not self.links:
            self.links.append(PlainLink(("A", self.pair["A"]), self.pair["B"]))
        self.links[0].copy(self.topic)

    def commit(self, offset: int, *, group: str | None = None) -> None:
        commit(self.pair["A"], group or self.topic, self.topic, offset)


def reversed_timestamps(case: Case) -> None:
    case.produce(0, 5, 1, 2, 9, 3)
    case.copy()
    case.commit(3)


def equal_timestamps(case: Case) -> None:
    case.produce(0, 0, 0, 1, 1)
    case.copy()
    case.commit(2)


def at_the_log_end(case: Case) -> None:
    case.produce(0, 1, 2)
    case.copy()
    case.commit(3)


def beyond_the_log_end(case: Case) -> None:
    case.produce(0, 1, 2, 3, 4)
    case.copy()
    case.commit(999)


def empty(case: Case) -> None:
    case.commit(0)


def emptied(case: Case) -> None:
    """Retention took all of A's records; B still has them, behind records of its own."""
    case.produce(0, 1, on="B")
    case.produce(0, 1, 2)
    case.copy()
    delete(case, 3)
    case.commit(3)


def before_the_log_start(case: Case) -> None:
    case.produce(*range(10))
    case.copy()
    case.commit(3)
    delete(case, 6)


def control_record(case: Case) -> None:
    """a b [marker] c [marker]; the group stands on the first marker."""
    producer = Producer({"bootstrap.servers": case.pair["A"], "transactional.id": case.topic})
    producer.init_transactions(30)
    for values in ((b"a", b"b"), (b"c",)):
        producer.begin_transaction()
        for value in values:
            producer.produce(case.topic, value, partition=0, timestamp=BASE)
        end_transaction(producer, case.pair["A"], case.topic)
    assert log_end(case.pair["A"], case.topic) == 5
    case.copy()
    case.commit(2)


def last_marker(case: Case) -> None:
    control_record(case)
    case.commit(5)


def open_transaction(case: Case) -> None:
    """The group has read uncommitted records on A; nobody gets them on B yet."""
    case.produce(0, 1, 2)
    case.copy()
    producer = Producer({"bootstrap.servers": case.pair["A"], "transactional.id": case.topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(case.topic, b"open", partition=0, timestamp=BASE)
    assert producer.flush(30) == 0
    case.commit(4)
    OPEN.append(producer)


OPEN: list[Producer] = []  # a producer that ends aborts


def compacted(case: Case) -> None:
    """The record at the commit is gone on A, and still on B."""
    lines = [(BASE + at * 1_000, b"key" if at < 5 else b"k%d" % at) for at in range(8)]
    produce_at(case.pair["A"], case.topic, lines)
    case.copy()
    push(case)
    case.commit(2)


def push(case: Case) -> None:
    """Waits until the log cleaner has been there; it needs a new segment for that."""
    counter = iter(range(10_000))

    def cleaned() -> bool:
        produce_at(case.pair["A"], case.topic, [(BASE + 60_000, b"push%d" % next(counter))])
        return first_offset(case) >= 4

    wait_until(cleaned, what="compaction", deadline_s=60)


def first_offset(case: Case) -> int:
    consumer = Consumer(
        {"bootstrap.servers": case.pair["A"], "group.id": "look", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.assign([TopicPartition(case.topic, 0, 0)])
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        return int(message.offset() or 0)
    finally:
        consumer.close()


def delete(case: Case, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": case.pair["A"], "log_level": 0})
    (asked,) = admin.delete_records([TopicPartition(case.topic, 0, before)]).values()
    asked.result(30)


def ordinary(case: Case) -> None:
    case.produce(0, 100, 200)
    case.copy()
    case.commit(1)


# name: set up, config of A, partitions and config of B
CASES: dict[str, tuple[Callable[[Case], None], Any, int, Any]] = {
    "reversed": (reversed_timestamps, None, 1, None),
    "equal": (equal_timestamps, None, 1, None),
    "at-the-end": (at_the_log_end, None, 1, None),
    "beyond-the-end": (beyond_the_log_end, None, 1, None),
    "empty": (empty, None, 1, None),
    "emptied": (emptied, None, 1, None),
    "before-the-start": (before_the_log_start, None, 1, None),
    "control-record": (control_record, None, 1, None),
    "last-marker": (last_marker, None, 1, None),
    "open-transaction": (open_transaction, None, 1, None),
    "compacted": (compacted, COMPACTING, 1, None),
    "append-time": (ordinary, None, 1, {"message.timestamp.type": "LogAppendTime"}),
    "more-partitions": (ordinary, None, 4, None),
    "missing": (ordinary, None, 0, None),
}
Rows = dict[str, Row]


@pytest.fixture(scope="module")
def cases(pair: Addresses) -> Iterator[dict[str, Case]]:
    made = {}
    for name, (set_up, config, partitions, config_b) in CASES.items():
        topic = f"edge-{name}"
        create_topic(pair["A"], topic, config=config)
        if partitions:
            create_topic(pair["B"], topic, partitions=partitions, config=config_b)
        else:
            create_topic(pair["B"], f"{topic}-elsewhere")
        made[name] = Case(pair, topic)
        if name == "missing":
            made[name].produce(0, 1)
            made[name].commit(1)
        else:
            set_up(made[name])
    yield made
    for case in made.values():
        for link in case.links:
            link.close()


def rows_of(cases: dict[str, Case], directory: Path, **offsets: Any) -> Rows:
    path = write_config(directory, next(iter(cases.values())).pair, apply=False, **offsets)
    with Services.of(path) as services:
        entries = services.by_name["B"].state_topic.state.entries
        margin_ms = services.config.offsets.margin_ms

        def decided(topic: str) -> bool:
            """By an entry of this run: those of an earlier one are there, too."""
            told = entries.get(((topic, topic, 0), "A"))
            fresh = told is not None and told.margin_ms == margin_ms
            return fresh and services.decided("B", topic, topic)

        services.until(
            lambda: all(decided(case.topic) for case in cases.values()),
            what="all decided",
            deadline_s=120,
        )
        services.rounds(3)
        return {name: services.row("B", case.topic, case.topic) for name, case in cases.items()}


@pytest.fixture(scope="module")
def exact(cases: dict[str, Case], tmp_path_factory: pytest.TempPathFactory) -> Rows:
    return rows_of(cases, tmp_path_factory.mktemp("exact"), mode="exact")


@pytest.fixture(scope="module")
def by_time(cases: dict[str, Case], tmp_path_factory: pytest.TempPathFactory) -> Rows:
    return rows_of(cases, tmp_path_factory.mktemp("time"), mode="timestamp", margin_ms=0)


@pytest.mark.parametrize(
    ("name", "new", "replay"),
    [
        ("reversed", 3, 0),
        ("equal", 2, 0),
        ("at-the-end", 3, 0),
        ("beyond-the-end", 5, 0),
        ("empty", 0, 0),
        ("before-the-start", 3, 0),
        ("control-record", 2, 0),  # B has no markers: c is 2 there
        ("last-marker", 3, 0),
        ("open-transaction", 3, 0),
        ("emptied", 0, 3),  # B's own records were never on A: they come first
        ("compacted", 2, 0),
    ],
)
def test_exact(exact: Rows, name: str, new: int, replay: int) -> None:
    row = exact[name]
    assert row.mode is Mode.EXACT
    assert (row.new, row.replay, row.refusals) == (new, replay, ())


@pytest.mark.deep
@pytest.mark.parametrize(
    ("name", "new"),
    [
        ("reversed", 1),  # T = 2 s, the earliest that is left: the first record at or after is 5 s
        ("equal", 0),
        ("at-the-end", 2),
        ("beyond-the-end", 4),
        ("empty", 0),
        ("control-record", 0),
        ("open-transaction", 2),
    ],
)
def test_by_timestamp(by_time: Rows, name: str, new: int) -> None:
    row = by_time[name]
    assert row.mode is Mode.TIMESTAMP
    assert (row.new, row.refusals) == (new, ())


@pytest.mark.deep
@pytest.mark.parametrize(
    ("name", "refusals"),
    [
        ("append-time", (Refusal.LOG_APPEND_TIME,)),
        ("more-partitions", (Refusal.PARTITIONS_DIFFER,)),
        ("missing", (Refusal.TOPIC_MISSING,)),
        ("before-the-start", (Refusal.BEFORE_LOG_START,)),
        ("emptied", (Refusal.UNSAFE_ORIGINS,)),
    ],
)
def test_refused_by_name(by_time: Rows, name: str, refusals: tuple[Refusal, ...]) -> None:
    assert by_time[name].refusals == refusals


@pytest.mark.parametrize("name", ["more-partitions", "missing", "append-time"])
def test_origins_do_not_mend_a_topic_that_differs(exact: Rows, name: str) -> None:
    assert len(exact[name].refusals) == 1
