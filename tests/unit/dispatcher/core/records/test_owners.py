"""The owners of keys, with and without silent members."""

from __future__ import annotations

import pytest

from dispatcher.core.model import Member, MemberId
from dispatcher.core.records.owners import Owners
from dispatcher.core.routing.ring import NOBODY, Router
from dispatcher.core.routing.silence import Attention

KEYS = [b"key-%d" % at for at in range(50)]


def owners(silent: str, *, bounded_load: float | None = None, **filters: bytes) -> Owners:
    """Of members a, b and c."""
    members = tuple(
        Member(MemberId(name), (filters[name],) if name in filters else ()) for name in "abc"
    )
    attentions = [Attention(0) for _ in members]
    for at, member in enumerate(members):
        attentions[at].silent = member.member_id in silent
    chosen = Owners(bounded_load)
    chosen.choose(Router(members), attentions)
    if chosen.loads is not None:
        chosen.loads.keys, chosen.loads.total = [0] * len(chosen.places), 0
    return chosen


def test_without_silent_members_the_router_decides() -> None:
    some = owners("")
    assert some.takers is some.router
    assert [some.owner_of(key, 0) for key in KEYS] == [some.router.owner_of(key, 0) for key in KEYS]


@pytest.mark.parametrize("bounded_load", [None, 1.0])
def test_a_silent_member_owns_nothing_that_others_accept(bounded_load: float | None) -> None:
    some = owners("b", bounded_load=bounded_load)
    assert {some.owner_of(key, 0) for key in KEYS} == {0, 2}
    assert {some.owner_of(None, offset) for offset in range(20)} == {0, 2}


@pytest.mark.parametrize("bounded_load", [None, 1.0])
def test_it_keeps_what_nobody_else_accepts(bounded_load: float | None) -> None:
    some = owners("b", bounded_load=bounded_load, a=b"x*", b=b"key*", c=b"y*")
    assert {some.owner_of(key, 0) for key in KEYS} == {1}
    assert some.owner_of(b"z", 0) == NOBODY


def test_if_all_are_silent_the_ring_decides_as_before() -> None:
    some = owners("abc")
    assert [some.owner_of(key, 0) for key in KEYS] == [some.router.owner_of(key, 0) for key in KEYS]


def test_nobody_is_there() -> None:
    assert Owners(None).owner_of(b"key", 0) == NOBODY
    assert Owners(1.0).ring_owner(b"key", 0) == NOBODY
