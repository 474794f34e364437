"""Whole requests: who is read, who waits, and that nobody waits for ever."""

from __future__ import annotations

import random

from gateway.core.forwarding.turns import Turns


def test_what_does_not_fit_waits_in_order() -> None:
    turns = Turns(100)
    assert turns.begin(1, 60, now_ms=0)
    assert not turns.begin(2, 50, now_ms=0)
    assert not turns.begin(3, 10, now_ms=0), "it would fit, and is behind another"
    assert turns.end(1, now_ms=5) == [2, 3]
    assert turns.total == 60
    assert turns.end(2, now_ms=5) == turns.end(3, now_ms=5) == []
    assert turns.total == 0


def test_alone_a_request_may_be_of_any_size() -> None:
    turns = Turns(100)
    assert turns.begin(1, 1_000, now_ms=0)
    assert not turns.begin(2, 1_000, now_ms=0)
    assert turns.end(1, now_ms=0) == [2]


def test_who_leaves_while_it_waits_holds_nobody_up() -> None:
    turns = Turns(100)
    assert turns.begin(1, 60, now_ms=0)
    assert not turns.begin(2, 90, now_ms=0)
    assert not turns.begin(3, 40, now_ms=0)
    assert turns.end(2, now_ms=0) == [3]


def test_only_one_that_others_wait_for_is_overdue() -> None:
    turns = Turns(100)
    assert turns.begin(1, 60, now_ms=0)
    assert turns.overdue(1_000, 30, 30) == []
    assert not turns.begin(2, 60, now_ms=1_000)
    assert turns.overdue(1_000, 30, 30) == [1]
    assert turns.end(1, now_ms=1_000) == [2]
    assert not turns.begin(3, 60, now_ms=1_001)
    assert turns.overdue(1_029, 30, 30) == []
    assert turns.overdue(1_030, 30, 30) == [2]


def test_one_of_which_nothing_comes_is_overdue_sooner() -> None:
    """A size is only claimed: it must not hold all others up."""
    turns = Turns(100)
    assert turns.begin(1, 60, now_ms=0)
    turns.came(1, 100)
    turns.came(2, 100)  # nothing of it is read
    assert not turns.begin(2, 60, now_ms=101)
    assert turns.overdue(104, 1_000, 5) == []
    assert turns.overdue(105, 1_000, 5) == [1]
    turns.came(1, 105)
    assert turns.overdue(109, 1_000, 5) == []
    assert turns.end(1, now_ms=109) == [2]
    assert turns.overdue(200, 1_000, 5) == []


def test_everybody_gets_a_turn() -> None:
    draw = random.Random(7)
    turns = Turns(100)
    reading = {at for at in range(200) if turns.begin(at, draw.randrange(1, 150), now_ms=0)}
    done = 0
    while reading:
        one = draw.choice(sorted(reading))
        reading.remove(one)
        reading.update(turns.end(one, now_ms=0))
        assert turns.total <= 100 or len(reading) == 1
        done += 1
    assert (done, turns.total) == (200, 0)
