"""How far members of plain groups may read the new partitions, by what their groups commit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from gateway.core.repartition.holding import WHOLE, LogEnds, Look, Report
from gateway.core.repartition.record import Move, Pace, Repartition
from gateway.repartition.limits import RECORD_THERE_MS, STANDING_MS, UNCOMMITTED_MS
from gateway.repartition.plain_groups import PlainGroups
from gateway.repartition.survey import Survey
from gateway.upstream.commits import Commits, Committed
from gateway.upstream.errors import Unreachable
from tests.rig.virtual_time import run

TOPIC, GROUP = "orders", "billing"
SETTLE_MS, HOLD_MS = 1_000, 600_000
NOT_KNOWN: frozenset[str] = frozenset()


@dataclass
class Kafka:
    """Commits of one group by partition, and where the first record behind a position is."""

    committed: dict[int, int] = field(default_factory=dict)
    first: dict[int, int] = field(default_factory=dict)  # by position
    away: bool = False
    read: list[int] = field(default_factory=list)

    async def fetch_all(self, group: str) -> dict[tuple[str, int], Committed]:
        assert group == GROUP
        if self.away:
            raise Unreachable("away")
        places = {(TOPIC, at): Committed(offset, -1, "") for at, offset in self.committed.items()}
        return places | {("other", 0): Committed(5, -1, "")}

    async def first_record(self, _record: Repartition, _partition: int, position: int) -> int:
        if self.away:
            raise Unreachable("away")
        self.read.append(position)
        return self.first.get(position, position)


class Story:
    """A topic of one partition that gets a second one."""

    def __init__(self, kafka: Kafka) -> None:
        pace = Pace(adoption_ms=0, settle_ms=SETTLE_MS, late_ms=0, consumer_hold_ms=HOLD_MS)
        marked = Repartition(
            topic=TOPIC, topic_id="", before=1, after=2, partitioner=None, pace=pace
        )
        created = marked.moved(Move.CREATE)
        self.record = created.moved(Move.SHOW, consumers=(GROUP,), shown_ms=0)
        self.kafka = kafka
        self.log_ends = LogEnds()
        self.groups = PlainGroups(self.record, cast(Commits, kafka), cast(Survey, kafka))

    def opened(self, boundary: int) -> None:
        self.record = self.record.moved(Move.OPEN, boundaries=(boundary,))

    def raised(self, boundary: int, at_ms: int = 150) -> None:
        self.record = self.record.moved(Move.RAISE, boundaries=(boundary,), raised_ms=at_ms)

    def look(self, at_ms: int, *, old: int, new: int) -> int | None:
        """At the ends of both logs. The end of the new one, as a member sees it."""
        ends = {0: old, 1: new}
        self.log_ends.saw(Look(at_ms, at_ms, ends), {0: "a"}, self.record)
        run(self.groups.look(self.record, self.log_ends, ends, at_ms))
        return self.groups.ends.end_for(frozenset({GROUP}), 1)


def test_a_group_sees_what_was_there_when_it_had_committed_all_before() -> None:
    story = Story(kafka := Kafka({0: 5}))
    story.opened(7)
    assert story.look(100, old=8, new=3) == 0, "its commit is from before the first look"
    kafka.committed[0] = 8
    assert story.look(600, old=9, new=4) == 0, "none was seen a second before 100"
    kafka.committed[0] = 9
    assert story.look(1_700, old=9, new=6) == 4, "what was there at 600"
    assert story.look(3_000, old=12, new=9) == 4, "new records of the old one wait for a commit"


def test_who_names_no_group_sees_what_was_there_for_a_while() -> None:
    """Spark: it reads up to the ends that it was told, of all partitions at a time."""
    story = Story(Kafka({0: 99}))

    def seen() -> int | None:
        return story.groups.ends.end_for(NOT_KNOWN, 1)

    story.opened(7)
    story.look(100, old=8, new=3)
    assert seen() == 0
    story.look(1_200, old=9, new=6)
    assert seen() == 3, "what was there a second before"
    story.look(2_300, old=9, new=7)
    assert seen() == 6
    story.raised(9, 3_500)
    story.look(3_400, old=9, new=8)
    assert seen() == 7, "the group has passed, and nothing else waits for a commit"
    story.look(3_600, old=9, new=9)
    assert seen() == WHOLE, "nothing of before can come any more"


def test_it_has_passed_once_the_boundaries_are_final() -> None:
    story = Story(kafka := Kafka({0: 9}))
    story.opened(7)
    assert story.look(100, old=9, new=3) == 0
    story.raised(10)
    assert [left.offsets for left in story.groups.left(story.record)] == [1]
    assert story.look(200, old=10, new=3) == 0
    kafka.committed[0] = 10
    assert story.look(300, old=10, new=3) is None
    assert story.groups.left(story.record) == []
    assert story.groups.given_up == []


def test_a_group_that_does_not_commit_is_given_up_when_its_time_is_over() -> None:
    story = Story(Kafka({0: 1}))
    story.opened(7)
    assert story.look(HOLD_MS - 1, old=9, new=3) == 0
    assert story.look(HOLD_MS, old=9, new=3) is None
    assert story.groups.given_up == [GROUP]


def test_a_group_that_was_deleted_holds_up_nobody() -> None:
    story = Story(Kafka())
    story.opened(7)
    assert story.look(100, old=9, new=3) is None


def test_nothing_is_known_while_its_coordinator_is_away() -> None:
    story = Story(kafka := Kafka({0: 9}, away=True))
    story.opened(7)
    story.raised(7)
    assert story.look(100, old=9, new=3) == 0
    assert story.look(200 + STANDING_MS, old=9, new=3) == 0
    kafka.away = False
    assert story.look(300 + STANDING_MS, old=9, new=3) is None


def test_what_is_no_record_need_not_be_committed() -> None:
    """Markers of transactions up to 8, and a record at 10 behind others."""
    story = Story(kafka := Kafka({0: 5}, first={5: 8, 8: 10}))
    story.opened(10)
    story.raised(10)
    assert story.look(0, old=12, new=3) == 0
    assert story.look(STANDING_MS - 1, old=12, new=3) == 0
    assert kafka.read == [], "it may go on"
    assert story.look(STANDING_MS, old=12, new=3) == 0
    assert [left.offsets for left in story.groups.left(story.record)] == [2]
    story.look(STANDING_MS + 1, old=12, new=3)
    assert story.look(2 * STANDING_MS + 1, old=12, new=3) is None
    assert kafka.read == [5, 8]


def test_a_record_that_a_group_stands_before_is_read_once_a_minute() -> None:
    """Nobody runs the group any more."""
    story = Story(kafka := Kafka({0: 5}))
    story.opened(10)
    minute = range(0, STANDING_MS + RECORD_THERE_MS, 200)
    for at_ms in minute:
        assert story.look(at_ms, old=12, new=3) == 0
    assert kafka.read == [5]
    story.look(minute.stop, old=12, new=3)
    assert kafka.read == [5, 5]
    kafka.committed[0] = 6
    for at_ms in range(minute.stop, minute.stop + STANDING_MS + 1, 200):
        story.look(at_ms, old=12, new=3)
    assert kafka.read == [5, 5, 6], "it moves on"


def test_a_group_that_began_at_the_end_need_not_commit() -> None:
    """It has a position in another partition, and its member fetches at 9 all the time."""
    story = Story(Kafka({1: 0}))
    story.opened(9)
    story.raised(9)
    story.groups.ends.fetches(frozenset({GROUP}), 0, 8)
    assert story.look(0, old=9, new=3) == 0
    story.groups.ends.fetches(frozenset({GROUP}), 0, 9)
    assert story.look(1, old=9, new=3) == 0
    assert story.look(UNCOMMITTED_MS, old=9, new=3) == 0
    assert story.look(UNCOMMITTED_MS + 1, old=9, new=3) is None
    assert story.groups.given_up == []


def test_what_a_group_has_committed_counts_and_not_where_it_fetches() -> None:
    story = Story(Kafka({0: 5}))
    story.opened(9)
    story.raised(9)
    story.groups.ends.fetches(frozenset({GROUP}), 0, 9)
    for at_ms in range(0, 2 * UNCOMMITTED_MS, UNCOMMITTED_MS // 2):
        assert story.look(at_ms, old=9, new=3) == 0


def test_another_node_saw_where_a_group_began() -> None:
    story = Story(kafka := Kafka({1: 0}))
    story.opened(9)
    story.raised(9)
    report = Report(0, below=0, cursor=9, keys=None)
    story.groups.heard({(GROUP, 0): report})
    assert story.look(0, old=9, new=3) == 0, "perhaps it has committed something"
    story.groups.heard({("another", 0): report})
    assert story.look(1, old=9, new=3) == 0
    kafka.committed[0] = 0
    assert story.look(2, old=9, new=3) == 0
    story.groups.heard({(GROUP, 0): report})
    assert story.look(3, old=9, new=3) == 0, "it has"
    del kafka.committed[0]
    assert story.look(4, old=9, new=3) == 0
    story.groups.heard({(GROUP, 0): report})
    assert story.look(5, old=9, new=3) is None
