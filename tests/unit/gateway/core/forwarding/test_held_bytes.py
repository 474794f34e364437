"""One limit for the bytes of all connections, and the connections that pay for it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.forwarding.held_bytes import HeldBytes

CHANGES = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 60), st.integers(0, 20)))


def test_the_largest_pays() -> None:
    held_bytes = HeldBytes(100)
    for connection, held in ((1, 40), (2, 50), (3, 10)):
        held_bytes.hold(connection, held, 0)
    assert held_bytes.excess(0) == [], "the limit itself fits"
    held_bytes.hold(3, 11, 1)
    assert held_bytes.excess(1) == [2]
    held_bytes.hold(2, 0, 1)
    assert (held_bytes.excess(1), held_bytes.total, held_bytes.left) == ([], 51, 49)


def test_the_first_of_two_alike_pays() -> None:
    held_bytes = HeldBytes(10)
    held_bytes.hold(2, 8, 5)
    held_bytes.hold(1, 8, 9)
    assert held_bytes.excess(9) == [1]


def test_bytes_that_move_are_left_alone() -> None:
    held_bytes = HeldBytes(10)
    held_bytes.hold(1, 90, 1_000)
    held_bytes.hold(2, 20, 0)
    assert held_bytes.excess(1_000, resting_ms=1_000) == [2]
    assert held_bytes.excess(1_999, resting_ms=1_000) == [2]
    assert held_bytes.excess(2_000, resting_ms=1_000) == [1, 2]


def test_bytes_that_move_and_never_go_away_count_from_the_first_on() -> None:
    held_bytes = HeldBytes(10)
    for at in range(11):
        held_bytes.hold(1, 90 - at, at * 100)
    held_bytes.hold(2, 95, 0)
    held_bytes.hold(2, 0, 500)
    held_bytes.hold(2, 95, 600)
    assert held_bytes.excess(999, held_ms=1_000) == []
    assert held_bytes.excess(1_000, held_ms=1_000) == [1]
    assert held_bytes.excess(1_600, held_ms=1_000) == [2, 1]


def test_bytes_that_rest_are_found() -> None:
    held_bytes = HeldBytes(1_000)
    held_bytes.hold(1, 5, 0)
    held_bytes.hold(2, 500, 0)
    held_bytes.hold(2, 500, 900)  # no more and no less: it did not move
    held_bytes.hold(3, 500, 0)
    held_bytes.hold(3, 499, 900)
    assert held_bytes.stalled(1_000, resting_ms=1_000) == [1, 2]
    assert held_bytes.stalled(1_000, resting_ms=1_000, bytes_min=6) == [2]
    held_bytes.hold(2, 0, 1_000)
    held_bytes.hold(1, 0, 1_000)
    assert held_bytes.stalled(9_000, resting_ms=1_000) == [3]


@given(CHANGES)
def test_closing_the_excess_is_enough_and_no_more(changes: list[tuple[int, int, int]]) -> None:
    held_bytes = HeldBytes(100)
    now_ms = 0
    for connection, held, passed_ms in changes:
        now_ms += passed_ms
        held_bytes.hold(connection, held, now_ms)
        held_bytes.check_invariants()
        closed = held_bytes.excess(now_ms)
        for at, each in enumerate(closed):
            assert held_bytes.total > held_bytes.bytes_max, (at, closed)
            held_bytes.hold(each, 0, now_ms)
        assert held_bytes.total <= held_bytes.bytes_max
        assert held_bytes.excess(now_ms) == []
