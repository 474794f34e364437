"""Queues: per key the order of its records, per member the keys with a ready record.

A key's records form a FIFO of offsets, linked through the window's ring (window.py), so a backlog
of one hot key costs offsets only. A record in flight or held back stays where it is in that FIFO
until it is settled: a record that is given back is therefore at the front of its key again without
being moved. (Danube's dispatcher moves it, and loses the order.)

A key is listed with its owner if and only if a record of it could be acquired now; the entry is
that record's offset. Entries leave the list by being acquired. Every other change of ready records
(a join, a leave, a truncation) rebuilds all lists.

The oldest record goes out first, not the key that has waited longest: records in flight stay close
to the cursor and in runs. With 1,250 keys and 500 records a fetch a run has 2.5 records instead of
1.1, so acquired ranges, acknowledgements, slices and dirty bytes of the bitmap are half as many.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import append, extend, vec
from mypy_extensions import i32, i64, mypyc_attr

from dispatcher.core.ascending import place_of
from dispatcher.core.model import Key, MemberId, SessionId
from dispatcher.core.routing.silence import Attention

NO_OFFSET: Final = -1
WAITING_MAX: Final = 16  # newcomers; more are merged with the rest
EVERY: Final = 1 << 62  # more than there are


class MemberQueue:
    """A member of the group, or one that still holds records: its ready records, and the number it
    holds.
    """

    attention: Attention  # to be set when it joins

    def __init__(self, member_id: MemberId) -> None:
        self.member_id = member_id
        self.idle = True  # had nothing ready at the end of the last step
        self.joined = False  # False: known only by the leases it holds
        # Offsets, ascending. Flat, as there is one for each ready key: no int object for it.
        self.ready: vec[i64] = vec[i64]()
        self.ready_at = 0  # entries before it are taken
        self.fresh: vec[i64] = vec[i64]()  # listed since, not among those wanted
        self.in_flight = 0  # records
        self.awake = False  # had something to acquire at the end of the last step
        self.touched = False  # in `WindowState.touched`
        self.draining = 0  # keys it holds and others own (draining_keys.py)
        self.drained = 0  # those of them that no longer do, since it joined
        # The last sent position when it joined others, NO_OFFSET if it did not; and the last offset
        # it may have for now, NO_OFFSET without a limit (joins.py).
        self.joined_behind = NO_OFFSET
        self.limit = NO_OFFSET

    def __repr__(self) -> str:
        return f"<{self.member_id} ready={self.ready_count()} in_flight={self.in_flight}>"

    def ready_count(self) -> int:
        return len(self.ready) - self.ready_at + len(self.fresh)

    def leave(self) -> None:
        """The member leaves. Records that it still holds stay counted."""
        self.joined = self.awake = False
        self.idle = True
        self.drained = 0
        self.joined_behind = self.limit = NO_OFFSET
        self.clear_ready()

    def clear_ready(self) -> None:
        self.ready = vec[i64]()
        self.ready_at = 0
        self.fresh = vec[i64]()

    def sort_ready(self, wanted: i64 = EVERY) -> vec[i64]:
        """Sorts the ready keys, in `ready` from `ready_at` on. A few newcomers behind the first
        `wanted` stay in `fresh`: one record at a time must not cost a pass over a long list.
        """
        ready, first = self.ready, self.ready_at
        if not self.fresh:
            if first * 2 >= len(ready):  # O(1) per entry, no more than twice the memory
                self.ready, self.ready_at = ready[first:], 0
            return self.ready
        soon = first + 1  # of `fresh`: more than there is room for
        if len(ready) - first >= wanted and len(self.fresh) <= WAITING_MAX:
            soon = _less(self.fresh, ready[first + wanted - 1])
            if soon == 0:
                return ready
        fresh = vec[i64](sorted(self.fresh))
        if soon <= first:
            self.ready_at = _put_in_front(ready, first, fresh, soon)
            self.fresh = fresh[soon:]
        else:
            self.ready, self.ready_at = _merged(ready, first, fresh), 0
            self.fresh = vec[i64]()
        return self.ready


def _less(offsets: vec[i64], than: i64) -> i64:
    """How many of them are less."""
    count: i64 = 0
    for offset in offsets:
        if offset < than:
            count += 1
    return count


def _put_in_front(ready: vec[i64], first: i64, fresh: vec[i64], count: i64) -> int:
    """Puts the first of `fresh` among those from `first` on, in the room of taken ones before it.
    Returns where they begin now.
    """
    to = begin = first - count
    at: i64 = 0
    while at < count:
        if ready[first] < fresh[at]:
            ready[to] = ready[first]
            first += 1
        else:
            ready[to] = fresh[at]
            at += 1
        to += 1
    return begin


def _merged(ready: vec[i64], first: i64, fresh: vec[i64]) -> vec[i64]:
    """The ascending offsets of `ready` from `first` on, and those of `fresh`. What lies between two
    of these is copied as a whole, and so are those behind all of `ready`: most have just been read.
    """
    merged = vec[i64](capacity=len(ready) - first + len(fresh))
    at: i64 = 0
    while at < len(fresh) and first < len(ready):
        place = place_of(ready, first, fresh[at])
        if place > first:
            merged = extend(merged, ready[first:place])
            first = place
        merged = append(merged, fresh[at])
        at += 1
    merged = extend(merged, ready[first:])
    return extend(merged, fresh[at:])


class LeaseHolder:
    """A share session of one member as long as it holds records: their leases name it."""

    def __init__(self, member: MemberQueue, session_id: SessionId) -> None:
        self.member = member
        self.session_id = session_id
        self.leases = 0
        self.restored = False  # since before a restart: its records may never have reached it
        # The session that its member opened last: it may acknowledge the records of this one.
        self.successor: SessionId | None = None
        self.lost_at_ms: int | None = None  # its connection is gone since then
        self.left_at_ms: int | None = None  # its member left the group, and may still acknowledge

    def __repr__(self) -> str:
        return f"<{self.member.member_id}/{self.session_id}>"


# No cycle leads through it, so the collector need not visit it: 16 bytes less each.
@mypyc_attr(acyclic=True)
class Backlog:
    """The records of one key that are aside (aside.py): ahead of those in the rings."""

    def __init__(self) -> None:
        self.offsets: vec[i64] = vec[i64]()  # ascending; offsets before `at` are settled
        self.at = 0
        self.after = NO_OFFSET  # the first of the key in the rings


# The same; there are a million of them.
@mypyc_attr(acyclic=True)
class KeyQueue:
    """The unsettled records of one key; a record without a key has a queue of its own."""

    def __init__(self, key: Key, owner: MemberQueue | None) -> None:
        self.key = key
        self.owner = owner  # None: nobody is there, or nobody's filters accept the key
        self.head = NO_OFFSET
        self.tail = NO_OFFSET  # says something as long as there is a head
        self.holder: LeaseHolder | None = None  # of its records in flight
        self.in_flight: i32 = 0  # with the two flags in one word: 16 bytes less each
        self.listed = False
        self.retried = False  # some record of the key may have a retry
        self.backlog: Backlog | None = None  # no record of the key is aside

    def __repr__(self) -> str:
        return f"<{self.key!r} {self.head}..{self.tail} in_flight={self.in_flight} {self.owner!r}>"
