"""The cases of timestamp lookup and translation, with the offsets that Kafka 3.9.1 answered."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from offsets.core.index import PartitionIndex
from offsets.core.model import Cut, Progress, Rows, Stream
from offsets.core.translate import (
    Located,
    SourceFacts,
    Unsafe,
    by_timestamp,
    first_at_or_after,
    locate,
    source_facts,
)
from tests.rig.offset_histories import answered

A, B = Stream("A", "topic", 0), Stream("B", "topic", 0)
Line = tuple[int, Stream, int, int]  # offset, stream, origin, seconds


class Log:
    """A partition of hand-made records, with its index."""

    def __init__(
        self, own: Stream, lines: Sequence[Line], *, start: int = 0, end: int | None = None
    ) -> None:
        self.lines = list(lines)
        self.index = PartitionIndex(own, start, segment_records=2)
        self.index.extend(self.rows(start, 10**9), end if end is not None else len(lines) + start)

    def rows(self, first: int, last: int) -> Rows:
        chosen = [line for line in self.lines if first <= line[0] <= last]
        return Rows(
            [line[0] for line in chosen],
            [line[3] * 1_000 for line in chosen],
            [line[1] for line in chosen],
            [line[2] for line in chosen],
        )

    def facts(self, committed: int) -> SourceFacts:
        search = source_facts(self.index, committed, window_ms=3_600_000)
        return answered(search, self.rows)

    def first(self, seconds: float) -> int | None:
        return answered(first_at_or_after(self.index, round(seconds * 1_000)), self.rows)

    def locate(self, progress: Progress) -> Located:
        return answered(locate(self.index, progress), self.rows)


def plain(own: Stream, seconds: Sequence[int], **more: int) -> Log:
    start = more.get("start", 0)
    return Log(
        own, [(start + at, own, start + at, second) for at, second in enumerate(seconds)], **more
    )


@pytest.mark.parametrize(
    ("seconds", "asked", "answer"),
    [
        ([0, 1, 2, 3, 4], 0.5, 1),
        ([0, 1, 2, 3, 4], -99, 0),
        ([0, 1, 2, 3, 4], 4.001, None),
        ([0, 0, 0, 1, 1], 0, 0),
        ([0, 0, 0, 1, 1], 0.001, 3),
        ([0, 0, 0, 1, 1], 1, 3),
        ([0, 0, 0, 1, 1], 1.001, None),
        ([0, 5, 1, 2, 9, 3], 0.001, 1),
        ([0, 5, 1, 2, 9, 3], 3, 1),
        ([0, 5, 1, 2, 9, 3], 5.001, 4),
        ([], 0, None),
    ],
)
def test_timestamps_as_kafka_answers(seconds: list[int], asked: float, answer: int | None) -> None:
    assert plain(A, seconds).first(asked) == answer


def test_after_delete_records_the_first_that_is_left() -> None:
    log = plain(A, range(10))
    log.lines = log.lines[6:]
    log.index.forget(6)
    assert log.first(0) == 6


def test_a_record_that_compaction_took_is_followed_by_the_next() -> None:
    log = plain(A, range(8))
    log.lines = log.lines[5:]
    assert log.first(0) == 5
    assert log.first(3) == 5


def facts_and_timestamp(log: Log, committed: int, margin_s: int = 0) -> tuple[SourceFacts, int]:
    facts = log.facts(committed)
    by = by_timestamp(facts, margin_ms=margin_s * 1_000, margin_ms_max=0, several_origins=False)
    assert by.unsafe == ()
    assert by.timestamp_ms is not None
    return facts, by.timestamp_ms


def test_the_timestamp_is_that_of_the_next_record_less_the_margin() -> None:
    facts, timestamp = facts_and_timestamp(plain(A, [100, 200, 300]), 1, margin_s=60)
    assert timestamp == 140_000
    assert facts.remaining == 2


def test_with_a_commit_at_the_log_end_the_last_record_counts() -> None:
    facts, timestamp = facts_and_timestamp(plain(A, [100, 200, 300]), 3, margin_s=60)
    assert timestamp == 240_000
    assert (facts.remaining, facts.earliest_ms, facts.last_ms) == (0, None, 300_000)


def test_a_commit_beyond_the_log_end_is_at_the_log_end() -> None:
    """KAFKA-12635: Kafka accepts 999 of 5."""
    facts = plain(A, range(5)).facts(999)
    assert facts.offset == 5
    assert facts.progress.vector == {A: 5}


def test_with_reversed_timestamps_the_earliest_of_all_that_is_left_counts() -> None:
    _, timestamp = facts_and_timestamp(plain(A, [0, 9, 5, 7, 2]), 1)
    assert timestamp == 2_000


def test_the_record_at_the_commit_may_be_missing() -> None:
    """Compaction took it, or it is a marker of a transaction."""
    log = Log(A, [(0, A, 0, 10), (1, A, 1, 20), (3, A, 3, 40), (4, A, 4, 50)], end=6)
    _, timestamp = facts_and_timestamp(log, 2)
    assert timestamp == 40_000
    facts, timestamp = facts_and_timestamp(log, 5)  # the last marker: nothing is left
    assert (facts.remaining, timestamp) == (0, 50_000)
    assert facts.offset == 5


def test_a_margin_longer_than_the_timestamps_is_the_log_start() -> None:
    """Kafka takes -1 and -3 for the latest record and the end, and records may have no time, -1."""
    assert facts_and_timestamp(plain(A, [1, 2]), 2, margin_s=3)[1] == 0
    target = Log(B, [(0, A, 0, -1), (1, A, 1, 0), (2, A, 2, 5)])
    assert [target.first(offset) for offset in (-3, -1, 0, 1)] == [0, 0, 0, 2]


def test_an_empty_partition_has_no_timestamp() -> None:
    facts = plain(A, []).facts(0)
    by = by_timestamp(facts, margin_ms=60_000, margin_ms_max=0, several_origins=False)
    assert by.timestamp_ms is None
    assert facts.progress.vector == {A: 0}


def test_an_empty_partition_after_retention_remembers_its_last_record() -> None:
    log = plain(A, [100, 200])
    log.lines = []
    log.index.forget(2)
    facts, timestamp = facts_and_timestamp(log, 2)
    assert timestamp == 200_000
    assert facts.log_start == facts.log_end == 2


def test_a_commit_before_the_log_start_is_unsafe_by_timestamp() -> None:
    log = plain(A, range(10))
    log.lines = log.lines[6:]
    log.index.forget(6)
    by = by_timestamp(log.facts(3), margin_ms=0, margin_ms_max=0, several_origins=False)
    assert by.unsafe == (Unsafe.BEFORE_START,)


# ------------------------------------------------------------ two origins, a link away for 120 s

ON_A = [(0, A, 0, 0), (1, A, 1, 10), (2, A, 2, 130), (3, B, 0, 5), (4, B, 1, 100)]
ON_B = [(0, B, 0, 5), (1, A, 0, 0), (2, B, 1, 100), (3, A, 1, 10), (4, A, 2, 130)]


def test_the_outage_loses_a_record_by_timestamp_and_is_unsafe() -> None:
    """The group commits 2 while nothing of B has reached A."""
    source, target = Log(A, ON_A[:3]), Log(B, ON_B)
    facts = source.facts(2)
    by = by_timestamp(facts, margin_ms=60_000, margin_ms_max=60_000, several_origins=True)
    assert by.timestamp_ms == 70_000
    assert target.first(70) == 2, "b0, at 0, is skipped and was never processed"
    assert by.unsafe == (Unsafe.ORIGINS,)


def test_the_outage_loses_nothing_exactly() -> None:
    source, target = Log(A, ON_A[:3]), Log(B, ON_B)
    assert target.locate(source.facts(2).progress) == Located(0, 2, [], 5_000)
    later = Log(A, ON_A)
    assert target.locate(later.facts(2).progress).offset == 0
    assert later.facts(4).progress.vector == {A: 4, B: 1}


def test_the_lag_that_the_log_shows_raises_the_margin() -> None:
    facts = Log(A, ON_A).facts(4)
    assert facts.late_ms == 125_000
    by = by_timestamp(facts, margin_ms=60_000, margin_ms_max=600_000, several_origins=False)
    assert by.margin_ms == 125_000
    assert by.unsafe == (Unsafe.LAG,)
    capped = by_timestamp(facts, margin_ms=60_000, margin_ms_max=90_000, several_origins=False)
    assert capped.margin_ms == 90_000


# ----------------------------------------------------------------------------------------- vectors


def test_a_rewound_link_makes_records_come_again_and_loses_none() -> None:
    lines = [(0, B, 0, 0), (1, B, 5, 5), (2, B, 3, 3), (3, B, 6, 6)]
    assert Log(A, lines).facts(2).progress.vector == {A: 2, B: 3}
    assert Log(A, lines).facts(3).progress.vector == {A: 3, B: 6}


def test_a_stream_that_retention_took_is_remembered() -> None:
    log = Log(A, [(0, B, 7, 0), (1, B, 8, 1), (2, A, 2, 2), (3, A, 3, 3)])
    log.lines = log.lines[2:]
    log.index.forget(2)
    assert log.facts(3).progress.vector == {A: 3, B: 9}


def test_a_log_that_is_read_from_its_middle_takes_the_next_record_of_a_stream() -> None:
    lines = [(10, A, 10, 0), (11, A, 11, 1), (12, B, 40, 2)]
    assert Log(A, lines, start=10, end=13).facts(11).progress.vector == {A: 11, B: 40}
    assert Log(A, lines, start=0, end=13).facts(11).progress.vector == {A: 11}, "it saw all of it"
    assert Log(A, lines, start=10, end=13).facts(9).progress.vector == {A: 9}, "not sure: all of B"


def test_nothing_unprocessed_is_the_log_end_of_the_target() -> None:
    target = Log(B, [(0, A, 0, 0), (1, A, 1, 1)], end=4)
    assert target.locate(Progress({A: 2}, {A: 2})) == Located(4, 0)
    assert plain(B, []).locate(Progress({A: 2}, {A: 2})) == Located(0, 0)


def test_progress_beyond_the_log_end_is_of_an_earlier_life_of_the_topic() -> None:
    """The topic was deleted and created again on A: its offsets begin at 0 once more."""
    target = Log(A, [(0, B, 7, 0), (1, A, 1, 1), (2, A, 2, 2), (3, A, 3, 3)])

    def find(processed: int) -> int:
        settled = {A: [(1, 1)]}
        return target.locate(Progress({A: processed, B: 8}, {}, settled)).offset

    assert not target.index.compare(4, log_end=4)
    assert [find(offset) for offset in (3, 4)] == [3, 4]
    assert not target.index.compare(20, log_end=20), "the index is behind"
    assert target.index.compare(20, log_end=4)
    assert not target.index.compare(20, log_end=4), "it is known"
    assert [find(offset) for offset in (3, 4, 20)] == [1, 1, 1]
    assert not target.index.compare(21, log_end=30), "as long as the earlier one by now"
    assert [find(offset) for offset in (20, 21)] == [1, 4]


def test_another_life_of_a_topic_is_another_stream() -> None:
    """C's topic was deleted and created again; the group on A has seen one record of each life."""
    old, new = Stream("C", "topic", 0, "old"), Stream("C", "topic", 0, "new")
    progress = Log(A, [(0, old, 7, 0), (1, new, 0, 1)]).facts(2).progress
    target = Log(B, [(0, old, 7, 0), (1, new, 0, 1), (2, new, 1, 2), (3, new, 2, 3)])
    assert target.locate(progress).offset == 2


@pytest.mark.parametrize(
    ("told", "offset"),
    [({"": 2}, 2), ({"first": 2}, 2), ({"former": 2}, 0), ({"former": 3, "": 1}, 1)],
)
def test_a_header_without_a_life_counts_for_the_least_progress(
    told: dict[str, int], offset: int
) -> None:
    lives = {A._replace(life=life): at for life, at in told.items()}
    target = Log(
        A._replace(life="first"), [(at, A._replace(life="first"), at, 0) for at in (0, 1, 2)]
    )
    assert target.locate(Progress(lives, lives)).offset == offset
    untold = Log(B, [(at, A, at, 0) for at in (0, 1, 2)])
    assert untold.locate(Progress(lives, lives)).offset == min(told.values())


@pytest.mark.parametrize("start", [0, 10])
def test_copies_that_do_not_tell_their_life_come_before_those_that_do(start: int) -> None:
    """An update of the links began to tell it in the middle of the log. The group is before that:
    that no copy with a life was processed does not mean that all earlier ones were.
    """
    own = A._replace(life="first")
    lines = [(start + at, A if at < 4 else own, at, at) for at in range(8)]
    source = Log(B._replace(life="other"), lines, start=start, end=start + 8)
    target = Log(own, [(at, own, at, at) for at in range(8)])
    for processed in range(9):
        assert target.locate(source.facts(start + processed).progress).offset == processed


def test_memory_is_bounded_and_answers_stay_the_same() -> None:
    lines = [(at, A, at, at) for at in range(500)]
    small = PartitionIndex(B, 0, segment_records=2, segments_max=8)
    log = Log(B, [])
    log.lines = lines
    small.extend(log.rows(0, 499), 500)
    assert len(small) <= 8
    assert sum(small.records) == 500

    def find(origin: int) -> int:
        return answered(locate(small, Progress({A: origin}, {A: origin})), log.rows).offset

    assert [find(at) for at in (0, 1, 249, 250, 499, 500)] == [0, 1, 249, 250, 499, 500]


@pytest.mark.parametrize(
    ("processed", "offset"),
    [(2, 2), (3, 3), (4, 3), (6, 3), (7, 7), (8, 8)],
    ids=["before", "up-to-it", "one-lost", "all-lost", "beyond-the-lost", "at-the-end"],
)
def test_records_in_the_places_of_lost_ones_come(processed: int, offset: int) -> None:
    """Of six records the log lost the last three; five others were written behind the third."""
    log, done = plain(A, range(8)), Progress({A: processed}, {A: processed})
    log.index.cut = Cut(A.life, end=6, epoch=4)
    assert log.locate(done).offset == processed, "none of a later epoch has been read"
    for at in range(8):
        log.index.read_epoch(at, 4 if at < 3 else 7)
    assert log.locate(done).offset == offset
    settled = Progress({A: 2}, {A: 2}, {A: [(2, 3), (5, 6)]})
    assert log.locate(settled).offset == 3, "the third is settled, the fourth is another one"
    behind = answered(locate(log.index, settled, behind=9), log.rows).settled
    assert [span for span, _ in behind] == [(6, 6)]


def test_what_two_cuts_doubt_is_doubted() -> None:
    first, second = Cut("life", end=6, epoch=4), Cut("life", end=9, epoch=2)
    assert first.besides(second) == second.besides(first) == Cut("life", end=9, epoch=2)
    assert first.besides(None) == first.besides(Cut("other", end=9, epoch=2)) == first
