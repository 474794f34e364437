"""The owner of a key: a consistent-hash ring, and key filters in front of it.

Every member has 100 points on a circle of 2^32, at the hashes of "{member id}-{i}". The owner of a
key is the member of the first point at or behind the key's hash. The ring depends on the set of
member ids alone, never on the order of joins: two points on the same spot are put in order of
member id. No two points share a label: the number behind the last "-" has none itself, so a label
reads back as one member id and one i, also with dashes and digits in the id ("a-1" has "a-1-0",
"a" has "a-0" to "a-99").
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, final

from librt.vecs import vec
from mypy_extensions import i64

from dispatcher.core.ascending import place_of
from dispatcher.core.model import Member
from dispatcher.core.routing.glob import accepts
from dispatcher.core.routing.hashes import key_hash32, offset_hash32

POINTS_PER_MEMBER: Final = 100  # the largest share of 3 members is then 1.05 times the mean

NOBODY: Final = -1

_RANK_BITS: Final = 20  # of a point; the hash stands above them
_RANK_MASK: Final = (1 << _RANK_BITS) - 1
_RINGS_KEPT: Final = 16
_HASHES: Final = 1 << 32


@final
class Ring:
    """The points of some members in order. Members are meant by their index in `member_ids`.

    `near`: a ring with much the same members. Its points are kept in order and only those of the
    others hashed and put in place, which takes a fifth of the time: a join of 1,000 members.
    """

    def __init__(self, member_ids: Sequence[str], near: Ring | None = None) -> None:
        in_order = sorted(range(len(member_ids)), key=lambda index: member_ids[index])
        # Of each id its rank among them: where two points have one hash, the lower goes first.
        ranks = {member_ids[index]: rank for rank, index in enumerate(in_order)}
        assert len(ranks) == len(member_ids), f"a member twice: {member_ids}"
        # Hash and rank as one number: these sort several times faster than pairs.
        points: list[int] = [] if near is None else _points_kept(near, ranks)
        for member_id, rank in ranks.items():
            if near is None or member_id not in near.ranks:
                prefix = member_id.encode() + b"-"
                points += [
                    key_hash32(prefix + b"%d" % i) << _RANK_BITS | rank
                    for i in range(POINTS_PER_MEMBER)
                ]
        points.sort()
        self.ranks: Final[dict[str, int]] = ranks
        # Flat: a search goes through them for each key of a window when a member joins.
        self.points: Final[vec[i64]] = vec[i64](points)
        self.owners: Final[vec[i64]] = vec[i64]([in_order[point & _RANK_MASK] for point in points])

    @property
    def hashes(self) -> list[int]:
        """The hashes of the points, ascending."""
        return [point >> _RANK_BITS for point in self.points]

    def shares(self) -> list[float]:
        """The part of all hashes that each member owns, 0 to 1. O(points)."""
        shares = [0.0] * len(self.ranks)
        points = self.points
        if len(points) == 0:
            return shares
        # The first owns all from the last one on, around the end of the circle.
        before: i64 = (points[len(points) - 1] >> _RANK_BITS) - _HASHES
        for at in range(len(points)):
            here: i64 = points[at] >> _RANK_BITS
            shares[self.owners[at]] += float(here - before) / _HASHES
            before = here
        return shares

    def owner(self, key_hash: i64) -> i64:
        """Index of the member that owns keys of this hash; NOBODY without members."""
        if len(self.owners) == 0:
            return NOBODY
        return self.owners[self.point(key_hash)]

    def point(self, key_hash: i64) -> i64:
        """Index of the first point at or behind `key_hash`; behind the last comes the first."""
        at = place_of(self.points, 0, key_hash << _RANK_BITS)
        return at if at < len(self.points) else 0


def _points_kept(near: Ring, ranks: dict[str, int]) -> list[int]:
    """The points of `near` that stay, with the new ranks. The new ranks grow as the old ones did,
    so the order is the same.
    """
    new_ranks: list[int] = [ranks.get(member_id, NOBODY) for member_id in near.ranks]
    kept: list[int] = []
    for point in near.points:
        at: i64 = point
        rank: i64 = new_ranks[at & _RANK_MASK]
        if rank >= 0:
            kept.append((at >> _RANK_BITS << _RANK_BITS) | rank)
    return kept


@lru_cache(maxsize=_RINGS_KEPT)
def shared_ring(member_ids: tuple[str, ...]) -> Ring:
    """The ring of these members. All windows of a group have the same members at nearly all times:
    a join costs one ring, not one for each partition; and that one is made of the ring before.
    """
    ring = Ring(member_ids, _nearest(member_ids))
    _recent.insert(0, ring)
    del _recent[_RINGS_KEPT:]
    return ring


def _nearest(member_ids: tuple[str, ...]) -> Ring | None:
    """The latest ring of which half of these are members."""
    for ring in _recent:
        if 2 * len(ring.ranks.keys() & member_ids) >= max(len(member_ids), len(ring.ranks)):
            return ring
    return None


_recent: Final[list[Ring]] = []


def shared_router(members: tuple[Member, ...]) -> Router:
    """The router of these members: the router made last, if it was made of this very tuple. A
    change of the membership comes to all windows of a topic with the same tuple.
    """
    if _latest[0].members is not members:
        _latest[0] = Router(members)
    return _latest[0]


@final
class Router:
    """Owners among members with filters: the ring of those that accept the key.

    A key's ring is not built: from the key's place on the full ring it takes the first point of a
    member that accepts the key, which is the same member. Members with the same filters are asked
    once. A record without a key is a unit of its own: its offset's hash picks one of the members
    that take such records (those without filters, or with `*`), evenly.
    """

    def __init__(self, members: tuple[Member, ...]) -> None:
        self.members: Final = members
        self.ring: Final = shared_ring(tuple([member.member_id for member in members]))
        # The distinct filters, and each member's own among them.
        self._filters: Final[list[tuple[bytes, ...]]] = []
        self._filters_of: Final[list[int]] = []
        known: dict[tuple[bytes, ...], int] = {}
        for member in members:
            if member.filters not in known:
                known[member.filters] = len(self._filters)
                self._filters.append(member.filters)
            self._filters_of.append(known[member.filters])
        self._unfiltered: Final[bool] = all(not filters for filters in self._filters)
        in_order = sorted([(member.member_id, at) for at, member in enumerate(members)])
        self._keyless: Final[list[int]] = [
            at for _, at in in_order if accepts(members[at].filters, None)
        ]

    def owner_of(self, key: bytes | None, offset: i64) -> i64:
        """Index into `members` of the owner; NOBODY if no member accepts the record.

        `offset` counts for records without a key only.
        """
        if key is None:
            takers: i64 = len(self._keyless)
            if takers == 0:
                return NOBODY
            return self._keyless[(offset_hash32(offset) * takers) >> 32]
        key_hash = key_hash32(key)
        if self._unfiltered:
            return self.ring.owner(key_hash)
        return self._first_taker(key, self.ring.point(key_hash))

    def owner_below(self, key: bytes, loads: list[int], full: i64) -> i64:
        """As `owner_of`, but members whose entry in `loads` has reached `full` are passed over,
        unless that is so for all that accept the key.
        """
        owners = self.ring.owners
        size: i64 = len(owners)
        asked = [False] * len(self.members)
        unasked: i64 = len(asked)
        first: i64 = NOBODY
        point: i64 = self.ring.point(key_hash32(key))
        while unasked > 0:
            owner: i64 = owners[point]
            if not asked[owner]:
                asked[owner] = True
                unasked -= 1
                if self._unfiltered or accepts(self.members[owner].filters, key):
                    if loads[owner] < full:
                        return owner
                    if first < 0:
                        first = owner
            point += 1
            if point == size:
                point = 0
        return first

    def _first_taker(self, key: bytes, point: i64) -> i64:
        owners = self.ring.owners
        filters_of = self._filters_of
        refused = [False] * len(self._filters)
        unasked: i64 = len(refused)
        size: i64 = len(owners)
        while unasked > 0:
            owner: i64 = owners[point]
            group: i64 = filters_of[owner]
            if not refused[group]:
                if accepts(self._filters[group], key):
                    return owner
                refused[group] = True
                unasked -= 1
            point += 1
            if point == size:
                point = 0
        return NOBODY


_latest: Final[list[Router]] = [Router(())]
