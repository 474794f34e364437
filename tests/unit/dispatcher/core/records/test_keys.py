from __future__ import annotations

import gc

import pytest
from librt.vecs import vec
from mypy_extensions import i64

from dispatcher.core.model import MemberId, SessionId
from dispatcher.core.records.keys import INSERTED_MAX, KeyQueue, LeaseHolder, MemberQueue
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


@pytest.mark.parametrize("count", [0, 1, INSERTED_MAX, INSERTED_MAX + 1, 100])
def test_what_is_listed_later_gets_its_place_among_what_is_not_taken_yet(count: int) -> None:
    member = MemberQueue(MemberId("c1"))
    member.ready = vec[i64](range(0, 2_000, 2))
    member.ready_at = 10  # up to 18 are taken
    member.fresh = vec[i64]([(7 * at % 1_000) * 2 + 1 for at in range(count)])
    expected = sorted([*member.ready[10:], *member.fresh])
    assert list(member.sort_ready())[member.ready_at :] == expected
    assert member.ready_count() == len(expected)
    assert len(member.fresh) == 0


@pytest.mark.parametrize(("count", "ready_at"), [(8, 5), (9, 0)])
def test_a_few_newcomers_are_put_in_place_and_more_are_sorted_with_the_rest(
    count: int, ready_at: int
) -> None:
    """The taken records show the way: only sorting throws them away."""
    member = MemberQueue(MemberId("c1"))
    member.ready = vec[i64](range(100))
    member.ready_at = 5
    member.fresh = vec[i64](range(100, 100 + count))
    member.sort_ready()
    assert member.ready_at == ready_at


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
