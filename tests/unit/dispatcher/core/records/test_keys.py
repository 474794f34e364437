from __future__ import annotations

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.vecs import extend, vec
from mypy_extensions import i64

from dispatcher.core.model import MemberId, SessionId
from dispatcher.core.records.keys import WAITING_MAX, KeyQueue, LeaseHolder, MemberQueue
from gateway.compiled import compiled_modules


def test_taken_entries_of_the_ready_list_are_forgotten() -> None:
    member = MemberQueue(MemberId("c1"))
    member.ready = vec[i64](range(100))
    member.ready_at = 49
    assert list(member.sort_ready()) == list(range(100))
    assert member.ready_count() == 51
    member.ready_at = 50
    assert list(member.sort_ready()) == list(range(50, 100))
    assert (member.ready_at, member.ready_count()) == (0, 50)
    member.clear_ready()
    assert member.ready_count() == 0


@pytest.mark.parametrize("count", [0, 1, WAITING_MAX, WAITING_MAX + 1, 100])
def test_what_is_listed_later_gets_its_place_among_what_is_not_taken_yet(count: int) -> None:
    member = MemberQueue(MemberId("c1"))
    member.ready = vec[i64](range(0, 2_000, 2))
    member.ready_at = 10  # up to 18 are taken
    member.fresh = vec[i64]([(7 * at % 1_000) * 2 + 1 for at in range(count)])
    expected = sorted([*member.ready[10:], *member.fresh])
    assert list(member.sort_ready())[member.ready_at :] == expected
    assert member.ready_count() == len(expected)
    assert len(member.fresh) == 0


@pytest.mark.parametrize(
    ("newcomers", "wanted", "ready_at", "waiting"),
    [
        ([100, 101], 3, 5, [100, 101]),  # 5 to 7 are wanted
        ([2, 101], 3, 4, [101]),
        ([7], 3, 5, [7]),
        ([0, 1, 2, 3, 4], 3, 0, []),  # in the room of all that were taken
        ([-1, 0, 1, 2, 3, 4], 3, 0, []),  # too many for it: all are merged
        ([100], 95, 5, [100]),
        ([100], 96, 0, []),  # all are wanted
        (list(range(100, 100 + WAITING_MAX)), 1, 5, list(range(100, 100 + WAITING_MAX))),
        (list(range(100, 101 + WAITING_MAX)), 1, 0, []),
    ],
)
def test_a_few_newcomers_wait_behind_what_is_wanted(
    newcomers: list[int], wanted: int, ready_at: int, waiting: list[int]
) -> None:
    """The taken records show the way: only merging throws them away."""
    member = MemberQueue(MemberId("c1"))
    member.ready = vec[i64](range(100))
    member.ready_at = 5
    member.fresh = vec[i64](newcomers)
    first = sorted([*range(5, 100), *newcomers])[:wanted]
    assert list(member.sort_ready(wanted))[member.ready_at :][:wanted] == first
    assert (member.ready_at, list(member.fresh)) == (ready_at, waiting)
    assert member.ready_count() == 95 + len(newcomers)


@given(st.data())
def test_the_least_are_taken_whatever_is_listed_meanwhile(data: st.DataObject) -> None:
    member = MemberQueue(MemberId("c1"))
    listed: set[int] = set()
    for _ in range(20):
        newcomers = data.draw(st.sets(st.integers(0, 300), max_size=30)) - listed
        listed |= newcomers
        member.fresh = extend(member.fresh, vec[i64](newcomers))
        wanted = data.draw(st.integers(1, 40))
        first = sorted(listed)[:wanted]
        ready = member.sort_ready(wanted)
        assert list(ready[member.ready_at :][:wanted]) == first
        listed -= set(first)
        member.ready_at += len(first)
        assert member.ready_count() == len(listed)


def test_they_read_well_in_a_trace() -> None:
    member = MemberQueue(MemberId("c1"))
    assert repr(member) == "<c1 ready=0 in_flight=0>"
    assert repr(LeaseHolder(member, SessionId("s1"))) == "<c1/s1>"
    assert repr(KeyQueue(b"k", None)) == "<b'k' -1..-1 in_flight=0 None>"


@pytest.mark.skipif(
    not compiled_modules()["dispatcher.core.records.keys"],
    reason="interpreted objects are always tracked",
)
def test_the_collector_does_not_visit_keys() -> None:
    """A million of them would hold the event loop up for 20 ms at a time."""
    assert not gc.is_tracked(KeyQueue(b"k", MemberQueue(MemberId("m"))))
