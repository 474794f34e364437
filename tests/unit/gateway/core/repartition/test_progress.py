"""A repartition from its marker to its end, and what it waits for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.repartition.progress import AbortRefused, Left, NodeSaid, aborted, next_step
from gateway.core.repartition.record import Move, Pace, Phase, Repartition, from_text, to_text

NOW_MS = 1_000_000
RECORD = Repartition(
    topic="orders",
    topic_id="00" * 16,
    before=4,
    after=8,
    partitioner=None,
    pace=Pace(adoption_ms=30_000, settle_ms=5_000, late_ms=120_000),
)


def in_phase(*moves: Move) -> Repartition:
    record = RECORD
    for move in moves:
        record = record.moved(move)
    return record


def said(record: Repartition, producers: int = 0) -> dict[str, NodeSaid]:
    return {node: NodeSaid(record.version, producers) for node in "ab"}


def test_partitions_are_created_once_all_nodes_hide_them() -> None:
    waits = next_step(RECORD, "ab", {"a": NodeSaid(1)}, (), NOW_MS)
    assert waits.move is None
    assert waits.reasons == ("node b does not act by it yet",)
    assert next_step(RECORD, "ab", said(RECORD), (), NOW_MS).move is Move.CREATE
    assert (RECORD.shown, in_phase(Move.CREATE).shown) == (4, 4)


def test_it_opens_once_nobody_produces_by_the_old_metadata() -> None:
    created = in_phase(Move.CREATE)
    shown = created.moved(Move.SHOW)
    assert shown.shown == 8
    waits = next_step(shown, "ab", said(shown, producers=2), (), NOW_MS)
    assert waits.move is None
    assert len(waits.reasons) == 2
    assert next_step(shown, "a", said(shown), (), NOW_MS).move is Move.OPEN
    assert next_step(shown, "a", said(shown) | {"b": NodeSaid(9, 5)}, (), NOW_MS).move is Move.OPEN


def test_the_new_partitions_are_shown_once_nobody_is_told_of_the_old_ones_alone() -> None:
    created = in_phase(Move.CREATE)
    assert next_step(created, "ab", {}, (), NOW_MS).move is Move.PREPARE
    prepared = created.moved(Move.PREPARE, prepared=True)
    waits = next_step(prepared, "ab", {"a": NodeSaid(3), "b": NodeSaid(2)}, (), NOW_MS)
    assert (waits.move, waits.reasons) == (None, ("node b does not act by it yet",))
    assert next_step(prepared, "ab", said(prepared), (), NOW_MS).move is Move.SHOW
    assert (prepared.shown, aborted(prepared).phase) == (4, Phase.ABORTED)


def test_boundaries_are_raised_once_nothing_can_be_late() -> None:
    opened = replace(in_phase(Move.CREATE, Move.SHOW, Move.OPEN), opened_ms=NOW_MS)
    early = next_step(opened, "ab", said(opened), (), NOW_MS + 119_000)
    assert early.reasons == ("late records may come for 1 s",)
    assert next_step(opened, "ab", said(opened), (), NOW_MS + 120_000).move is Move.RAISE
    late = said(opened) | {"a": NodeSaid(opened.version, late_ms=NOW_MS + 60_000)}
    waits = next_step(opened, "ab", late, (), NOW_MS + 120_000)
    assert waits.reasons == ("late records came, and may come again for 60 s",)
    assert next_step(opened, "ab", late, (), NOW_MS + 180_000).move is Move.RAISE


def test_it_ends_when_all_groups_have_passed_and_hold_no_key_that_moves() -> None:
    draining = in_phase(Move.CREATE, Move.SHOW, Move.OPEN, Move.RAISE)
    left = [Left("g", 1, 7, keys=2), Left("h", 0, 0, keys=1), Left("i", 0, 0), Left("j", 0, 0, 0)]
    waits = next_step(draining, "ab", said(draining), left, NOW_MS)
    assert waits.reasons == (
        "group g: up to 7 records of 2 keys in partition 1",
        "group h: late records of 1 keys in partition 0",
    )
    assert next_step(draining, "ab", said(draining), left[2:], NOW_MS).move is Move.FINISH
    finished = draining.moved(Move.FINISH)
    assert draining.runs
    assert draining.holds
    assert not finished.runs
    assert next_step(finished, "ab", {}, (), NOW_MS).move is None


def test_only_what_clients_have_not_seen_can_be_aborted() -> None:
    assert aborted(RECORD).phase is Phase.ABORTED
    assert aborted(in_phase(Move.CREATE)).shown == 4, "they stay hidden"
    for seen in (in_phase(Move.CREATE, Move.SHOW), aborted(RECORD)):
        with pytest.raises(AbortRefused):
            aborted(seen)
    with pytest.raises(KeyError):
        RECORD.moved(Move.OPEN)


def test_a_record_is_read_as_it_was_written() -> None:
    record = replace(in_phase(Move.CREATE), boundaries=(1, 2, 3, 4), groups=("g",))
    assert from_text(to_text(record)) == record


def test_of_a_topic_that_moves() -> None:
    moving = replace(RECORD, after=7, into="new")
    assert [moving.place_of(number) for number in (3, 4, 6)] == [
        ("orders", 3),
        ("new", 0),
        ("new", 2),
    ]
    assert moving.sources_of(5) == range(4)
    assert RECORD.place_of(5) == ("orders", 5)
    assert RECORD.sources_of(5) == range(1, 2)
    assert from_text(to_text(moving)) == moving
    opened = replace(moving, phase=Phase.OPEN, opened_ms=NOW_MS)
    waits = next_step(opened, "ab", said(opened), (), NOW_MS + 119_000)
    assert waits.reasons == ("records of topic orders may come for 1 s",)
