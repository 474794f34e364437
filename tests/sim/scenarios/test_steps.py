"""Acceptance scenarios of Key-Shared dispatch that need many steps, so without the recount at each
(10, 11, 24)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from random import Random
from types import FrameType

import pytest

from dispatcher.core import dispatcher
from dispatcher.core.dispatcher import Dispatcher
from dispatcher.core.model import (
    Acknowledge,
    Acquire,
    Event,
    Key,
    Member,
    MemberId,
    MembersChanged,
    NotSent,
    Policy,
    RecordsRead,
    SessionClosed,
    SessionId,
    SessionLost,
    SessionOpened,
    Ticked,
)
from dispatcher.core.steps import (
    AckResult,
    Delivered,
    MembersReady,
    Notice,
    Noticed,
    ReadOn,
    Snapshot,
    Step,
)

NOW_MS = 1_000


class Run:
    """One core over a log that is complete before it begins, and members that never fail."""

    def __init__(self, policy: Policy, keys: Sequence[bytes], *names: str) -> None:
        self.keys: list[Key] = list(keys)
        self.core = Dispatcher(policy, Snapshot(cursor=0))
        self.wish: ReadOn | None = None
        self.ready: set[str] = set()
        self.steps = 0
        self.on(MembersChanged(tuple(Member(MemberId(name)) for name in names), NOW_MS))

    def on(self, event: Event) -> Step:
        self.steps += 1
        step = self.core.handle(event)
        for effect in step.effects:
            if isinstance(effect, ReadOn):
                self.wish = effect
            elif isinstance(effect, MembersReady):
                self.ready.update(effect.members)
        return step

    def read(self, count: int = 1_000_000) -> None:
        """At most `count` of the records that the core asked for; none at the log's end."""
        wish, self.wish = self.wish, None
        if wish is not None and wish.position < len(self.keys):
            end = min(len(self.keys), wish.position + min(count, wish.offsets_max))
            offsets = list(range(wish.position, end))
            self.on(
                RecordsRead(wish.position, end, offsets, self.keys[wish.position : end], NOW_MS)
            )

    def acquire(self, name: str, records_max: int = 500) -> list[int]:
        event = Acquire(MemberId(name), SessionId(f"{name}/1"), records_max, NOW_MS)
        (delivered,) = [e for e in self.on(event).effects if isinstance(e, Delivered)]
        return delivered.offsets

    def ack(self, name: str, offsets: list[int]) -> None:
        batches = [(offset, offset, b"\1") for offset in offsets]
        event = Acknowledge(MemberId(name), SessionId(f"{name}/1"), batches, NOW_MS)
        (result,) = [e for e in self.on(event).effects if isinstance(e, AckResult)]
        assert result.errors == [None] * len(offsets)


def test_10_a_hundred_thousand_records_of_a_key_whose_member_is_paused() -> None:
    """Others flow up to the span, which is reported once; the rest costs no more than that."""
    policy = Policy(span_max=16_384, held_max=0)
    others = [b"key-%d" % i for i in range(1_000)]
    run = Run(policy, [b"hot"] * 15_000 + others + [b"hot"] * 85_000, "c1", "c2")
    run.read()
    held = {name: run.acquire(name, 1) for name in ("c1", "c2")}
    paused = next(name for name, offsets in held.items() if offsets == [0])
    other = "c2" if paused == "c1" else "c1"
    done: list[int] = []
    offsets = held[other]
    while offsets:
        done += offsets
        run.ack(other, offsets)
        run.read()
        offsets = run.acquire(other)
    mine = run.core.stats()
    assert len(done) > 300
    assert mine.keys == 1 + len(others) - len(done), "all that is left is the paused member's"
    assert (mine.cursor, mine.read_position, mine.in_flight) == (0, policy.span_max, 1)
    assert run.wish is None, "nothing is read ahead of the span"
    noticed = [run.on(Ticked(NOW_MS + at)).effects for at in (500, 1_000, 1_500)]
    full = [e for effects in noticed for e in effects if isinstance(e, Noticed)]
    assert [(e.notice, e.count) for e in full] == [(Notice.SPAN_FULL, 1)]
    assert full[0].detail.startswith("offset 0 key hash ")


def test_11_a_hundred_thousand_steps_with_stalling_owners() -> None:
    """D1: a record that waits because its owner has no room is overtaken by no later one."""
    rng = Random(11)
    names = ("c1", "c2", "c3", "c4")
    keys = [b"key-%d" % rng.randrange(60) for _ in range(45_000)]
    policy = Policy(span_max=512, in_flight_per_member_max=3)
    run = Run(policy, keys, *names)
    stalled: set[str] = set()
    held: dict[str, list[int]] = {name: [] for name in names}
    last: dict[bytes, int] = {}
    while run.core.cursor < len(keys):
        name = rng.choice(names)
        draw = rng.random()
        if draw < 0.05:
            stalled ^= {name}
        elif draw < 0.15:
            run.read(rng.randint(1, 40))
        elif name not in stalled and draw < 0.6:
            for offset in run.acquire(name, rng.randint(1, 4)):
                assert last.get(keys[offset], -1) < offset, "overtaken"
                last[keys[offset]] = offset
                held[name].append(offset)
            assert len(held[name]) <= 3
        elif name not in stalled and held[name]:
            run.ack(name, [held[name].pop(rng.randrange(len(held[name])))])
        if rng.random() < 0.001:
            run.core.check_invariants()
    assert run.steps >= 100_000
    assert len(last) == 60


def test_24_a_backlog_drains_without_ticks_or_new_records() -> None:
    """D8, D9: 100,000 records; every read and every fetch follows from an effect of a step."""
    keys = [b"key-%d" % (i * 7 % 5_000) for i in range(100_000)]
    run = Run(Policy(), keys, "c1", "c2", "c3")
    delivered = 0
    while run.wish is not None or run.ready:
        run.read()
        for name in sorted(run.ready):
            run.ready.discard(name)
            offsets = run.acquire(name)
            while offsets:
                delivered += len(offsets)
                run.ack(name, offsets)
                run.read()
                offsets = run.acquire(name)
    assert (delivered, run.core.cursor) == (100_000, 100_000)
    assert run.steps < 3_000, "in large steps, not record by record"


def _calls(run: Run, event: Event) -> int:
    """The calls of functions that the event takes: the same in each run."""
    count = 0

    def called(_frame: FrameType, what: str, _argument: object) -> None:
        nonlocal count
        count += what in ("call", "c_call")

    sys.setprofile(called)
    try:
        run.on(event)
    finally:
        sys.setprofile(None)
    return count


def _costs(keys: int) -> dict[str, int]:
    """Of the events that come often, in a window of so many keys, each with two records."""
    run = Run(
        Policy(span_max=32_768), [b"key-%d" % (at % keys) for at in range(2 * keys)], "a", "b"
    )
    a, one, two = MemberId("a"), SessionId("one"), SessionId("two")
    run.read()
    costs = {"opened": _calls(run, SessionOpened(a, one, NOW_MS))}
    run.on(Ticked(NOW_MS, frozenset()))
    costs["tick"] = _calls(run, Ticked(NOW_MS, frozenset({a})))
    costs["acquire"] = _calls(run, Acquire(a, one, 10, NOW_MS))
    held = sorted(run.core.snapshot().leases[0].offsets)
    costs["acknowledge"] = _calls(
        run, Acknowledge(a, one, [(offset, offset, b"\1") for offset in held[:5]], NOW_MS)
    )
    costs["release"] = _calls(run, Acknowledge(a, one, [(held[5], held[5], b"\2")], NOW_MS))
    costs["not sent"] = _calls(run, NotSent(a, one, held[6:7], NOW_MS))
    run.on(Acquire(a, two, 10, NOW_MS))
    costs["closed"] = _calls(run, SessionClosed(a, two, NOW_MS))
    costs["lost"] = _calls(run, SessionLost(a, one, NOW_MS))
    costs["tick after"] = _calls(run, Ticked(NOW_MS + 500, frozenset()))
    return costs


@pytest.mark.skipif(dispatcher.__file__.endswith(".so"), reason="compiled calls are not seen")
def test_what_comes_often_costs_the_same_in_a_window_of_any_size() -> None:
    """A step is not interrupted, so all clients of the node wait for it."""
    small, large = _costs(64), _costs(16_384)
    assert small.keys() == large.keys()
    assert {name for name in small if large[name] > 2 * small[name] + 50} == set(), (small, large)
