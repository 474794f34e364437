"""One limit for the bytes of all connections, and the connections that pay for it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.forwarding.held_bytes import HeldBytes

CHANGES = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 60), st.integers(0, 20)))


def test_the_largest_pays() -> None:
    it = HeldBytes(100)
    for connection, held in ((1, 40), (2, 50), (3, 10)):
        it.hold(connection, held, 0)
    assert it.excess(0) == [], "the limit itself fits"
    it.hold(3, 11, 1)
    assert it.excess(1) == [2]
    it.hold(2, 0, 1)
    assert (it.excess(1), it.total, it.left) == ([], 51, 49)


def test_the_first_of_two_alike_pays() -> None:
    it = HeldBytes(10)
    it.hold(2, 8, 5)
    it.hold(1, 8, 9)
    assert it.excess(9) == [1]


def test_bytes_that_move_are_left_alone() -> None:
    it = HeldBytes(10)
    it.hold(1, 90, 1_000)
    it.hold(2, 20, 0)
    assert it.excess(1_000, resting_ms=1_000) == [2]
    assert it.excess(1_999, resting_ms=1_000) == [2]
    assert it.excess(2_000, resting_ms=1_000) == [1, 2]


def test_bytes_that_rest_are_found() -> None:
    it = HeldBytes(1_000)
    it.hold(1, 5, 0)
    it.hold(2, 500, 0)
    it.hold(2, 500, 900)  # no more and no less: it did not move
    it.hold(3, 500, 0)
    it.hold(3, 499, 900)
    assert it.stalled(1_000, resting_ms=1_000) == [1, 2]
    assert it.stalled(1_000, resting_ms=1_000, bytes_min=6) == [2]
    it.hold(2, 0, 1_000)
    it.hold(1, 0, 1_000)
    assert it.stalled(9_000, resting_ms=1_000) == [3]


@given(CHANGES)
def test_closing_the_excess_is_enough_and_no_more(changes: list[tuple[int, int, int]]) -> None:
    it = HeldBytes(100)
    now_ms = 0
    for connection, held, passed_ms in changes:
        now_ms += passed_ms
        it.hold(connection, held, now_ms)
        it.check_invariants()
        closed = it.excess(now_ms)
        for at, each in enumerate(closed):
            assert it.total > it.bytes_max, (at, closed)
            it.hold(each, 0, now_ms)
        assert it.total <= it.bytes_max
        assert it.excess(now_ms) == []
