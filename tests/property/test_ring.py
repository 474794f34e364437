"""Guarantees for members when others join or leave, for any ids, keys and filters."""

from __future__ import annotations

import fnmatch
import re

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.model import Member, MemberId
from dispatcher.core.routing.glob import accepts, matches, matches_long
from dispatcher.core.routing.hashes import key_hash32
from dispatcher.core.routing.ring import NOBODY, Ring, Router

# Ids that differ in digits and dashes only are the ones whose labels could be confused.
ids = st.text("01-a", max_size=4) | st.uuids().map(str)
keys = st.lists(st.binary(max_size=12), min_size=1, max_size=30)
globs = st.lists(st.sampled_from([b"*", b"?", b"a", b"b", b"\xff"]), max_size=8).map(b"".join)
glob_keys = st.lists(st.sampled_from([b"*", b"?", b"a", b"b", b"\xff"]), max_size=10).map(b"".join)
members = st.lists(
    st.builds(
        lambda name, filters: Member(MemberId(name), tuple(filters)),
        ids,
        st.lists(globs, max_size=2),
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda member: member.member_id,
)


def owner(router: Router, key: bytes | None, offset: int = 0) -> MemberId | None:
    index = router.owner_of(key, offset)
    return None if index == NOBODY else router.members[index].member_id


@given(members, st.data())
def test_any_join_order_gives_the_same_owners(group: list[Member], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(group))
    here, there = Router(tuple(group)), Router(tuple(shuffled))
    for offset, key in enumerate(data.draw(st.lists(st.none() | glob_keys, max_size=30))):
        assert owner(here, key, offset) == owner(there, key, offset)


@given(members, keys, st.data())
def test_a_member_more_or_less_moves_only_its_own_keys(
    group: list[Member], some_keys: list[bytes], data: st.DataObject
) -> None:
    """Read forwards a join, read backwards a leave."""
    without = data.draw(st.integers(0, len(group) - 1))
    newcomer = group[without].member_id
    smaller, larger = Router(tuple(group[:without] + group[without + 1 :])), Router(tuple(group))
    for key in some_keys:
        before, after = owner(smaller, key), owner(larger, key)
        assert after in (before, newcomer)


@given(st.lists(ids, unique=True, max_size=6), st.lists(ids, unique=True, max_size=6))
def test_a_ring_made_of_another_is_the_same(before: list[str], after: list[str]) -> None:
    made, anew = Ring(after, Ring(before)), Ring(after)
    assert (made.points, made.owners) == (anew.points, anew.owners)
    assert list(made.ranks) == sorted(after)


@given(members, glob_keys)
def test_the_owner_is_that_of_a_ring_of_those_who_accept(group: list[Member], key: bytes) -> None:
    """The walk along the full ring against a ring built for this key."""
    eligible = [member.member_id for member in group if accepts(member.filters, key)]
    expected = eligible[Ring(eligible).owner(key_hash32(key))] if eligible else None
    assert owner(Router(tuple(group)), key) == expected


@given(members, st.integers(0, 2**63 - 1))
def test_a_record_without_a_key_goes_to_one_who_takes_such(
    group: list[Member], offset: int
) -> None:
    takers = {member.member_id for member in group if accepts(member.filters, None)}
    got = owner(Router(tuple(group)), None, offset)
    assert got in takers if takers else got is None


@given(ids, ids, st.integers(0, 99), st.integers(0, 99))
def test_a_label_belongs_to_one_point(one: str, other: str, i: int, j: int) -> None:
    assert (f"{one}-{i}" == f"{other}-{j}") == ((one, i) == (other, j))


@given(globs, glob_keys)
def test_globs_match_as_the_shell_does(pattern: bytes, key: bytes) -> None:
    regex = fnmatch.translate(pattern.decode("latin-1"))
    expected = re.match(regex, key.decode("latin-1")) is not None
    assert matches(pattern, key) == expected
    assert matches_long(pattern, key) == expected
