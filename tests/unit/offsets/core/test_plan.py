"""The commits on a target, and every reason for a refusal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from keyway.commit_metadata.core import metadata as settled_metadata
from offsets.core.entries import Applied, Entry
from offsets.core.model import Progress, Stream
from offsets.core.plan import (
    Committed,
    Mode,
    Refusal,
    Row,
    TargetPartition,
    decide,
    is_due,
    mode_of,
)
from offsets.core.translate import Located, Unsafe

A = Stream("A", "topic", 0)
ENTRY = Entry(
    "group",
    "topic",
    0,
    source="A",
    committed_ms=1_000_000,
    offset=50,
    log_end=60,
    partitions=4,
    timestamp_ms=800_000,
    margin_ms=60_000,
    exact=True,
    progress=Progress({A: 50}, {A: 50}),
    metadata="streams",
)
TARGET = TargetPartition(partitions=4, log_end=100, located=Located(40, 3, (), 850_000))


def decided(
    target: TargetPartition = TARGET,
    entry: Entry = ENTRY,
    mode: Mode = Mode.EXACT,
    *,
    force: bool = False,
    rewind: bool = False,
    earliest: bool = False,
) -> Row:
    return decide(
        entry,
        target,
        mode,
        metadata=entry.metadata,
        force=force,
        rewind=rewind,
        earliest=earliest,
    )


def test_exact_takes_what_the_search_found() -> None:
    row = decided(replace(TARGET, committed=Committed(30, committed_ms=5)))
    assert (row.old, row.new, row.delta, row.replay, row.replay_ms) == (30, 40, 10, 3, 10_000)
    assert (row.metadata, row.refusals, row.changes) == ("streams", (), True)


def test_a_timestamp_takes_the_first_record_at_or_after_it() -> None:
    row = decided(replace(TARGET, first=70), mode=Mode.TIMESTAMP)
    assert (row.new, row.replay) == (70, 30)


def test_no_record_that_late_is_the_log_end_of_the_target() -> None:
    row = decided(replace(TARGET, first=None), mode=Mode.TIMESTAMP)
    assert (row.new, row.replay, row.refusals) == (100, 0, ())


@pytest.mark.parametrize(("source_end", "replay"), [(0, 0), (60, 80)])
def test_an_entry_without_a_timestamp_is_the_log_start_of_the_target(
    source_end: int, replay: int
) -> None:
    """The source had no record, so any that is there now may have come since. Going on at the log
    end of each look would pass them all.
    """
    entry = replace(ENTRY, timestamp_ms=None, offset=source_end, log_end=source_end)
    target = replace(TARGET, log_start=20, first=None)
    row = decided(target, entry, mode=Mode.TIMESTAMP)
    assert (row.new, row.replay, row.replay_ms) == (20, replay, None if replay else 0)


@pytest.mark.parametrize(("found", "new"), [(3, 10), (10, 10), (100, 100), (999, 100)])
def test_the_position_is_inside_the_log(found: int, new: int) -> None:
    assert decided(replace(TARGET, log_start=10, located=Located(found, 0))).new == new
    assert decided(replace(TARGET, log_start=10, first=found), mode=Mode.TIMESTAMP).new == new


def test_auto_takes_exact_where_records_have_origins() -> None:
    assert mode_of(ENTRY, Mode.AUTO) is Mode.EXACT
    assert mode_of(replace(ENTRY, exact=False), Mode.AUTO) is Mode.TIMESTAMP
    assert mode_of(replace(ENTRY, progress=None), Mode.AUTO) is Mode.TIMESTAMP
    assert mode_of(ENTRY, Mode.TIMESTAMP) is Mode.TIMESTAMP


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        (replace(TARGET, partitions=None), Refusal.TOPIC_MISSING),
        (replace(TARGET, partitions=8), Refusal.PARTITIONS_DIFFER),
        (replace(TARGET, indexed=False, located=None), Refusal.NOT_INDEXED),
        (replace(TARGET, active=True), Refusal.GROUP_ACTIVE),
        (replace(TARGET, committed=Committed(41, committed_ms=5)), Refusal.TARGET_AHEAD),
        (replace(TARGET, committed=Committed(30, committed_ms=2_000_000)), Refusal.OVERTAKEN),
    ],
)
def test_facts_of_the_target_refuse(changed: TargetPartition, refusal: Refusal) -> None:
    assert decided(changed).refusals == (refusal,)
    assert not decided(changed).changes


@pytest.mark.parametrize("entry_side", [True, False])
@pytest.mark.parametrize("mode", [Mode.TIMESTAMP, Mode.EXACT])
def test_log_append_time_is_refused(mode: Mode, *, entry_side: bool) -> None:
    """Its timestamps are not the producers', and no seal fits there."""
    entry = replace(ENTRY, create_time=not entry_side)
    target = replace(TARGET, create_time=entry_side, first=5)
    assert decided(target, entry, mode).refusals == (Refusal.LOG_APPEND_TIME,)


@pytest.mark.parametrize(
    ("unsafe", "refusal"),
    [
        (Unsafe.LAG, Refusal.UNSAFE_LAG),
        (Unsafe.ORIGINS, Refusal.UNSAFE_ORIGINS),
        (Unsafe.BEFORE_START, Refusal.BEFORE_LOG_START),
    ],
)
def test_what_is_unsafe_needs_force(unsafe: Unsafe, refusal: Refusal) -> None:
    entry, target = replace(ENTRY, unsafe=(unsafe,)), replace(TARGET, first=70)
    assert decided(target, entry, Mode.TIMESTAMP).refusals == (refusal,)
    assert decided(target, entry, Mode.TIMESTAMP, force=True).changes
    assert decided(target, entry, Mode.EXACT).changes, "origins need no timestamp"


def test_records_of_another_origin_on_the_target_are_unsafe_by_timestamp() -> None:
    target = replace(TARGET, first=70, origins=2)
    assert decided(target, mode=Mode.TIMESTAMP).refusals == (Refusal.UNSAFE_ORIGINS,)


def test_behind_the_log_start_earliest_may_be_chosen() -> None:
    entry = replace(ENTRY, unsafe=(Unsafe.BEFORE_START,))
    target = replace(TARGET, first=70, log_start=12)
    row = decided(target, entry, Mode.TIMESTAMP, earliest=True)
    assert (row.new, row.replay, row.refusals) == (12, 88, ())


def test_rewind_and_nothing_else_goes_back() -> None:
    target = replace(TARGET, committed=Committed(41, committed_ms=5))
    assert not decided(target, force=True).changes
    assert decided(target, rewind=True).changes
    assert decided(target, rewind=True).delta == -1


def test_force_does_not_touch_a_group_at_work() -> None:
    target = replace(TARGET, active=True)
    assert decided(target, force=True, rewind=True).refusals == (Refusal.GROUP_ACTIVE,)


FAILED = Applied(9, "", "A", 1_000_000, before=2, before_ms=1_000_005)


@pytest.mark.parametrize(
    ("committed", "applied", "due"),
    [
        (None, None, True),
        (None, Applied(9, "", "A", 999), True),  # the group was deleted here
        (Committed(5, committed_ms=999), None, True),  # older than the commit on the source
        (Committed(5, committed_ms=1_000_001), None, False),  # it worked here since
        (Committed(5), None, True),  # not known when
        (Committed(9, committed_ms=1_000_005), Applied(9, "", "A", 1_000_000), True),  # ours
        (Committed(9, committed_ms=5), Applied(9, "", "C", 1_000_001), False),  # C was later
        (Committed(2, committed_ms=1_500_000), Applied(9, "", "A", 1_000_000), False),  # reset here
        (Committed(2, committed_ms=900_000), Applied(9, "", "A", 800_000), True),  # and moved since
        (Committed(2, committed_ms=1_000_005), FAILED, True),  # our commit was not made
        (Committed(2), FAILED, True),
        (Committed(2, committed_ms=1_000_006), FAILED, False),  # made, and reset to the same
        (Committed(3, committed_ms=1_000_005), FAILED, False),
        (Committed(2, committed_ms=1_000_005), replace(FAILED, before_ms=None), False),
        (Committed(2, committed_ms=5), replace(FAILED, committed_ms=1_000_001), False),
    ],
)
def test_who_moved_the_group_last_counts(
    *, committed: Committed | None, applied: Applied | None, due: bool
) -> None:
    assert is_due(ENTRY, replace(TARGET, committed=committed, applied=applied)) is due


ONE_SETTLED, THREE_SETTLED = (
    settled_metadata.encode(9, [(10, last)], origin=7_000, settled_ms=ms)
    for last, ms in ((10, 900_000), (12, 1_500_000))
)


@pytest.mark.parametrize(
    ("there", "due"), [(ONE_SETTLED, True), (THREE_SETTLED, False)], ids=["ours", "worked here"]
)
def test_a_key_shared_group_works_behind_a_cursor_that_stays(*, there: str, due: bool) -> None:
    """One record hangs in retries, others are settled: an entry of before is no news."""
    told = settled_metadata.read_times(9, there).settled_ms
    target = replace(
        TARGET,
        committed=Committed(9, there, committed_ms=told),
        applied=Applied(9, ONE_SETTLED, "A", 900_000),
    )
    assert is_due(ENTRY, target) is due


def test_what_a_key_shared_group_is_told_does_not_come_again() -> None:
    target = replace(TARGET, located=Located(40, 9, (((42, 45), 4),), 850_000))
    assert decide(ENTRY, target, Mode.EXACT, metadata="kw1:", told=4).replay == 5
    told_all = decide(ENTRY, target, Mode.EXACT, metadata="kw1:", told=9)
    assert (told_all.replay, told_all.replay_ms) == (0, 0)


@pytest.mark.parametrize("there_ms", [860_000, 900_000])
def test_records_that_come_again_from_behind_the_position_are_not_0_s_old(there_ms: int) -> None:
    """The first record that is not done is where the group goes on; those behind it were done."""
    target = replace(TARGET, located=Located(40, 11_703, (), there_ms))
    row = decide(ENTRY, target, Mode.EXACT, metadata="")
    assert (row.replay, row.replay_ms) == (11_703, None)


def test_rows_are_shown_as_json() -> None:
    shown = decided(replace(TARGET, active=True)).shown()
    assert shown["refusals"] == ["group-active"]
    assert (shown["new"], shown["delta"], shown["mode"]) == (40, 40, "exact")
