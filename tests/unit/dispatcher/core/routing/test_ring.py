"""The ring against Danube's vectors, and the router's choices that need a word."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter

import pytest

from dispatcher.core.model import Member, MemberId
from dispatcher.core.routing.glob import accepts
from dispatcher.core.routing.hashes import key_hash32
from dispatcher.core.routing.ring import NOBODY, Ring, Router, _nearest, shared_ring, shared_router


def owner(ids: list[str], key: str) -> str:
    return ids[Ring(ids).owner(key_hash32(key.encode()))]


def arcs(ids: list[str]) -> list[float]:
    """The share of the circle that each member owns, in percent."""
    ring = Ring(ids)
    owned = [0] * len(ids)
    hashes = ring.hashes
    for at, point in enumerate(hashes):
        owned[ring.owners[at]] += (point - hashes[at - 1]) % 2**32
    return [round(100 * part / 2**32, 2) for part in owned]


def router(*members: tuple[str, tuple[bytes, ...]]) -> Router:
    return Router(tuple(Member(MemberId(name), filters) for name, filters in members))


def test_points_of_two() -> None:
    ids = ["1", "2"]
    ring = Ring(ids)
    points = [(point, ids[member]) for point, member in zip(ring.hashes, ring.owners, strict=True)]
    assert len(points) == 200
    assert points[:3] == [(0x002F7EAD, "1"), (0x0098D200, "2"), (0x01770C1A, "2")]
    assert points[-1] == (0xFD56AEAA, "2")
    assert ring.hashes == sorted(ring.hashes)


def test_points_of_three_digit_ids() -> None:
    ids = ["100", "101", "102"]
    ring = Ring(ids)
    assert len(ring.hashes) == 300
    assert (ring.hashes[0], ids[ring.owners[0]]) == (0x02759CC8, "100")
    assert owner(ids, "order-123") == "100"
    assert owner(ids, "key-alpha") == "101"


def test_arcs() -> None:
    assert arcs(["1", "2"]) == [48.24, 51.76]
    assert arcs(["1", "2", "3"]) == [35.12, 33.53, 31.35]


@pytest.mark.parametrize(
    ("members", "greatest"),
    [(2, 1.035), (3, 1.054), (5, 1.025), (10, 1.352), (20, 1.196), (50, 1.225)],
)
def test_the_greatest_share_of_the_circle(members: int, greatest: float) -> None:
    """Of members 1 to n, times n: the worth of 100 points a member."""
    shares = arcs([str(number) for number in range(1, members + 1)])
    assert max(shares) * members / 100 == pytest.approx(greatest, abs=0.003)


@pytest.mark.parametrize(
    ("key", "of_two", "of_three"),
    [
        ("key-0", "2", "2"),
        ("key-1", "2", "3"),
        ("key-2", "1", "1"),
        ("key-3", "2", "2"),
        ("key-4", "1", "1"),
        ("key-5", "2", "3"),
        ("payment", "2", "2"),
        ("shipping", "1", "1"),
        ("order-123", "1", "1"),
    ],
)
def test_owners(key: str, of_two: str, of_three: str) -> None:
    assert owner(["1", "2"], key) == of_two
    assert owner(["1", "2", "3"], key) == of_three


def test_a_third_member_takes_313_of_1000_keys() -> None:
    keys = [f"key-{i}" for i in range(1_000)]
    before = [owner(["1", "2"], key) for key in keys]
    after = [owner(["1", "2", "3"], key) for key in keys]
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert moved == ["3"] * 313
    assert Counter(before) == {"1": 478, "2": 522}
    assert Counter(after) == {"1": 348, "2": 339, "3": 313}


def test_behind_the_last_point_comes_the_first() -> None:
    ring = Ring(["1", "2"])
    assert ring.owner(ring.hashes[-1]) == 1
    assert ring.owner(ring.hashes[-1] + 1) == ring.owners[0]
    assert ring.owner(2**32 - 1) == ring.owners[0]
    assert ring.owner(0) == ring.owners[0]


def test_nobody_on_an_empty_ring() -> None:
    assert Ring([]).owner(5) == NOBODY
    assert router().owner_of(b"key", 0) == NOBODY
    assert router().owner_of(None, 0) == NOBODY


def test_a_member_twice_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        Ring(["1", "1"])


def test_names_that_end_in_digits_have_their_own_points() -> None:
    """ "c1" with point 11 and "c11" with point 1 would share a label if ids and numbers ran
    together.
    """
    ids = ["c", "c1", "c11", "c-1", "c-1-1", "c1-1", "1", "-1", "1-", "", "-"]
    ring = Ring(ids)
    assert Counter(ring.owners) == dict.fromkeys(range(len(ids)), 100)
    by_hash = Counter(ring.hashes)
    assert max(by_hash.values()) == 1


def test_points_on_the_same_spot_go_by_member_id() -> None:
    """The labels below have the same hash. In either order of joins, the lower id owns the spot."""
    first, second = colliding_members()
    low, high = sorted([first, second])
    (spot,) = set(Ring([low]).hashes) & set(Ring([high]).hashes)
    assert [low, high][Ring([low, high]).owner(spot)] == low
    assert [high, low][Ring([high, low]).owner(spot)] == low
    for there in (low, high):
        assert [high, low][Ring([high, low], Ring([there])).owner(spot)] == low


def colliding_members() -> tuple[str, str]:
    """Among some 100,000 points in 2^32 places a pair on one spot is all but certain."""
    seen: dict[int, str] = {}
    for number in range(4_000):
        member = f"m{number}"
        for point in Ring([member]).hashes:
            other = seen.setdefault(point, member)
            if other != member:
                return other, member
    raise AssertionError("no two points on one spot")


def test_filters_choose_among_those_who_accept() -> None:
    both = router(("1", (b"key-*",)), ("2", ()), ("3", (b"other-*",)))
    for i in range(200):
        key = f"key-{i}"
        index = both.owner_of(key.encode(), 0)
        assert both.members[index].member_id == owner(["1", "2"], key)
    assert router(("1", (b"a*",)), ("2", (b"b*",))).owner_of(b"cee", 0) == NOBODY
    assert router(("1", (b"a*",)), ("2", (b"b*",))).owner_of(b"bee", 0) == 1
    assert router(("1", (b"a*",)), ("2", (b"",))).owner_of(b"", 0) == 1


def test_the_walk_to_a_member_that_accepts_goes_on_at_the_first_point() -> None:
    """A key before the last point, which belongs to a member that refuses it."""
    names = (["1", "2", f"x{i}"] for i in itertools.count())
    ids = next(ids for ids in names if Ring(ids).owners[-1] == 2)
    full, eligible = Ring(ids), Ring(ids[:2])
    assert eligible.owners[0] != eligible.owners[1]
    key = next(
        key
        for key in (b"%d" % i for i in itertools.count())
        if full.hashes[-2] < key_hash32(key) <= full.hashes[-1]
    )
    three = router((ids[0], ()), (ids[1], ()), (ids[2], (b"other",)))
    assert three.owner_of(key, 0) == eligible.owners[0]


@pytest.mark.parametrize(
    "filters",
    [
        ((), (), (), ()),
        ((b"key-1*",), (b"key-*",), (b"key-*",), (b"*2",)),
        ((b"key-*",), (b"other",), (b"key-2*",), (b"other",)),
        ((b"other",), (b"none",), (b"nor this",), (b"other",)),
        ((b"*5",),),
    ],
)
def test_owners_against_a_list_of_all_who_accept_in_the_order_of_the_ring(
    filters: tuple[tuple[bytes, ...], ...],
) -> None:
    """With loads: the first that has room, the first of all if none has."""
    some = router(*[(f"m{at}", mine) for at, mine in enumerate(filters)])
    for key in (b"key-%d" % number for number in range(60)):
        at = bisect_left(some.ring.hashes, key_hash32(key))
        order = dict.fromkeys([*some.ring.owners[at:], *some.ring.owners[:at]])
        takers = [owner for owner in order if accepts(filters[owner], key)] or [NOBODY]
        assert some.owner_of(key, 0) == takers[0]
        for loads in itertools.product((4, 5, 6), repeat=len(filters)):
            roomy = (owner for owner in takers if loads[owner] < 5)
            assert some.owner_below(key, list(loads), 5) == next(roomy, takers[0])


def test_windows_of_one_group_share_a_ring() -> None:
    shared_ring.cache_clear()
    one, other = router(("1", ()), ("2", ())), router(("1", ()), ("2", (b"a*",)))
    assert one.ring is other.ring
    assert one.ring is not router(("2", ()), ("1", ())).ring  # owners are indexes


def test_a_ring_is_made_of_one_with_half_of_its_members_or_more() -> None:
    """Of the latest such; a smaller or larger one shares too little."""
    shared_ring.cache_clear()
    names = [f"nearest-{number}" for number in range(6)]
    half = shared_ring(tuple(names[:3]))
    assert _nearest(tuple(names)) is half
    assert _nearest((*names, "one more")) is None
    assert _nearest((names[0], "other")) is None
    whole = shared_ring(tuple(names))
    assert _nearest(tuple(names[:3])) is whole, "the latest"


def test_a_point_is_its_hash_above_twenty_bits_of_rank() -> None:
    """A million members, and a number that an i64 holds."""
    ring = Ring(("b", "a"))
    assert [point >> 20 for point in ring.points] == ring.hashes
    assert {(point & 0xFFFFF) for point in ring.points} == {0, 1}


def test_the_latest_sixteen_rings_are_kept_to_make_others_of() -> None:
    shared_ring.cache_clear()
    rings = [shared_ring((f"kept-{number}",)) for number in range(20)]
    assert _nearest(("kept-3",)) is None
    assert _nearest(("kept-4",)) is rings[4]


def test_windows_that_are_told_of_the_same_members_share_a_router() -> None:
    here, there = (tuple(Member(MemberId(name)) for name in ("1", "2")) for _ in range(2))
    router_here = shared_router(here)
    assert shared_router(here) is router_here
    assert shared_router(there) is not router_here
    assert shared_router(there).members is there


def test_records_without_a_key_are_spread_evenly() -> None:
    three = router(("1", ()), ("2", (b"key-*", b"*")), ("3", (b"key-*",)), ("4", ()))
    counts = Counter(int(three.owner_of(None, offset)) for offset in range(0, 30_000, 3))
    assert sorted(counts) == [0, 1, 3]
    assert min(counts.values()) > 3_150
    assert router(("3", (b"key-*",))).owner_of(None, 7) == NOBODY
    assert router(("3", (b"key-*",)), ("4", ())).owner_of(None, 7) == 1


def test_records_without_a_key_have_the_same_owner_in_whatever_order_members_came() -> None:
    names = ("1", "2", "3")
    one, other = (router(*[(name, ()) for name in order]) for order in (names, names[::-1]))
    for offset in range(100):
        assert names[one.owner_of(None, offset)] == names[::-1][other.owner_of(None, offset)]


def test_an_empty_key_is_a_key() -> None:
    two = router(("1", ()), ("2", ()))
    assert len({int(two.owner_of(b"", offset)) for offset in range(100)}) == 1
