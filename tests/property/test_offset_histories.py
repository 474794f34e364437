"""1,000 random histories: nothing unprocessed is ever skipped, and no more repeated than said."""

from __future__ import annotations

import pytest

from offsets.core.limits import SETTLED_SPAN_OFFSETS
from offsets.core.model import Range, joined
from offsets.core.translate import (
    Located,
    SourceFacts,
    by_timestamp,
    first_at_or_after,
    locate,
    source_facts,
)
from tests.rig.offset_histories import History, Log, Place, answered

HISTORIES = 1_000
WINDOW_MS = 10**12
STEPS = 45


def facts_of(history: History, settled: list[Range] | None = None) -> SourceFacts:
    history.follow("A")
    search = source_facts(
        history.indexes["A"], history.committed, settled=settled or [], window_ms=WINDOW_MS
    )
    return answered(search, history.logs["A"].rows)


def located_on_b(history: History, facts: SourceFacts, *, behind: int = 0) -> Located:
    history.follow("B")
    search = locate(history.indexes["B"], facts.progress, behind=behind)
    return answered(search, history.logs["B"].rows)


def go_on(history: History) -> None:
    """Time passes between the look at the source and the one at the target."""
    history.group_at_work = False
    history.run(history.random.choice((0, 3, 20)))


def before(log: Log, offset: int) -> set[Place]:
    return {(record.stream, record.origin) for at, record in log.records.items() if at < offset}


def behind(log: Log, offset: int) -> list[Place]:
    return [(record.stream, record.origin) for at, record in log.records.items() if at >= offset]


@pytest.mark.parametrize("first", range(0, HISTORIES, 100))
def test_exact_skips_nothing_and_repeats_no_more_than_it_says(first: int) -> None:
    for seed in range(first, first + 100):
        producers = ("A", "B", "C") if seed % 3 else ("A", "B")
        history = History(seed, producers=producers, live=seed % 2 == 0, lives=seed % 5 == 0)
        history.run(STEPS)
        facts, passed, missed = facts_of(history), history.passed(), history.missed()
        go_on(history)
        located = located_on_b(history, facts)
        target = history.logs["B"]
        skipped = before(target, located.offset) - passed
        assert skipped <= missed, f"seed {seed}: a record is skipped"
        again = [place for place in behind(target, located.offset) if place in passed]
        if not history.live:  # the log does not tell of all that the group has passed
            again = [place for place in again if facts.progress.has(*place)]
        assert len(again) <= located.replay, f"seed {seed}: more comes again than said"


@pytest.mark.parametrize("first", range(0, HISTORIES, 100))
def test_settled_records_of_a_key_shared_group_do_not_come_again(first: int) -> None:
    for seed in range(first, first + 100):
        history = History(seed, producers=("A", "B", "C"))
        history.run(STEPS)
        facts = facts_of(history, joined(sorted(history.settled)))
        done = history.passed() | history.settled_behind() | history.missed()
        on_a = {(record.stream, record.origin) for record in history.logs["A"].records.values()}
        known = history.passed() | (history.settled_behind() & on_a)
        go_on(history)
        located = located_on_b(history, facts, behind=SETTLED_SPAN_OFFSETS)
        target = history.logs["B"]
        assert before(target, located.offset) <= done, f"seed {seed}: a record is skipped"
        told = {
            (record.stream, record.origin)
            for at, record in target.records.items()
            if any(low <= at <= high for (low, high), _ in located.settled)
        }
        assert told <= done, f"seed {seed}: a record counts as settled that is not"
        covered = {place for place in known if facts.progress.has(*place)}
        again = [p for p in behind(target, located.offset) if p in covered and p not in told]
        assert not again, f"seed {seed}: a settled record comes again"
        assert len(told) == sum(records for _, records in located.settled)


@pytest.mark.parametrize("first", range(0, HISTORIES, 100))
def test_a_timestamp_skips_nothing_of_one_origin(first: int) -> None:
    for seed in range(first, first + 100):
        history = History(seed, producers=("A",), losses=seed % 2 == 0)
        history.run(STEPS)
        facts = facts_of(history)
        owed = {
            (record.stream, record.origin)
            for at, record in history.logs["A"].records.items()
            if at >= history.committed
        }
        end = history.logs["A"].end
        by = by_timestamp(
            facts,
            margin_ms=history.random.choice((0, 30)),
            margin_ms_max=1_000,
            several_origins=False,
        )
        go_on(history)
        history.follow("B")
        target = history.logs["B"]
        offset = target.start
        if by.timestamp_ms is not None:
            search = first_at_or_after(history.indexes["B"], by.timestamp_ms)
            found = answered(search, target.rows)
            assert found == target.first_at_or_after(by.timestamp_ms), "as ListOffsets answers"
            offset = target.end if found is None else found
        skipped = before(target, offset)
        assert not skipped & owed, f"seed {seed}: a record is skipped"
        if not history.losses:
            # The target loses nothing: records that came after the look are not skipped either.
            later = {place for place in skipped if place[1] >= end}
            assert not later, f"seed {seed}: a later record is skipped"


WORTH = {
    "behind",
    "at the end",
    "before the start",
    "holes",
    "late",
    "several",
    "settled",
    "replay",
    "nothing left",
}


def test_the_histories_are_worth_it() -> None:
    """They do have the hard cases: losses, records behind the log's start, late links."""
    seen: set[str] = set()
    for seed in range(200):
        history = History(seed, producers=("A", "B", "C") if seed % 2 else ("A",))
        history.run(STEPS)
        facts = facts_of(history)
        log = history.logs["A"]
        seen |= {"behind"} if facts.remaining else {"at the end"}
        seen |= {"before the start"} if history.committed < log.start else set()
        seen |= {"holes"} if len(log.records) < log.end - log.start else set()
        seen |= {"late"} if facts.late_ms else set()
        seen |= {"several"} if facts.origins == 3 else set()
        seen |= {"settled"} if history.settled else set()
        located = located_on_b(history, facts)
        seen |= {"replay"} if located.replay else set()
        seen |= {"nothing left"} if located.offset == history.logs["B"].end else set()
    assert not WORTH - seen
