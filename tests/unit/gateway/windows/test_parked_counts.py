"""Parked records of windows that are not up."""

from __future__ import annotations

from dispatcher.store.base import WindowKey
from gateway.windows.parked_counts import ParkedCounts

ONE, TWO = (WindowKey("g", "AAAAAAAAAAAAAAAAAAAAAA", partition) for partition in range(2))


def total(
    counts: ParkedCounts, parked: int = 0, *up: WindowKey, all_up: bool = False
) -> int | None:
    return counts.with_others("g", parked, up, all_up=all_up)


def test_unknown_is_not_none_at_all() -> None:
    counts = ParkedCounts()
    assert counts.of(ONE, None) is None
    assert total(counts) is None
    assert total(counts, 0, ONE) is None, "another one is being loaded"
    assert total(counts, 0, ONE, all_up=True) == 0
    assert total(counts, 3, ONE) == 3, "so many at least"
    counts.stored("g", {})
    assert (counts.of(ONE, None), total(counts)) == (0, 0)


def test_the_store_tells_of_windows_that_are_not_up() -> None:
    counts = ParkedCounts()
    counts.stored("g", {ONE: 2, TWO: 5})
    assert (counts.of(ONE, None), total(counts)) == (2, 7)
    assert total(counts, 1, TWO) == 3, "the window itself knows better"
    counts.stored("g", {ONE: 0, TWO: None})
    assert dict(counts.last("g")) == {TWO: 5}, "it is up, and may break"
    counts.stored("g", {ONE: 1})
    assert dict(counts.last("g")) == {ONE: 1}, "the store has no such window any more"
    counts.position_set(ONE)
    assert counts.groups() == []
    counts.stored("g", {ONE: 1})
    counts.forget("g")
    assert (counts.groups(), total(counts)) == ([], None)
