"""Consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, 2016): an option.

A member's load is the number of its keys with unsettled records. With K such keys and n members, a
member with ceil(c · K / n) of them takes no more: the next key goes to the next member on the ring
that accepts it and has room. If all members that accept it are full, the first of them takes it:
filters come before balance.

A key is placed when its first unsettled record is read, and stays until the last is settled. It may
go to another member the next time. A key with records in flight, waiting for a retry or parked
moves only if its member leaves. When members come or go, the keys without records in flight or held
are placed anew, oldest first. Loads are recounted with every read instead of kept, O(keys with
unsettled records): the loops that settle records do not pay for them.
"""

from __future__ import annotations

from math import ceil

from dispatcher.core.records.keys import KeyQueue, MemberQueue
from dispatcher.core.routing.glob import accepts
from dispatcher.core.routing.ring import NOBODY, Router


class Loads:
    """How many keys each member owns. Recounted before anything is placed."""

    keys: list[int]  # by member, as the router's
    total: int

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def place(self, router: Router, key: bytes) -> int:
        """The index of the member that takes a key which comes to those that were counted; < 0 if
        none accepts it.
        """
        if not self.keys:
            return NOBODY
        full = ceil(self.factor * (self.total + 1) / len(self.keys))
        index = int(router.owner_below(key, self.keys, full))
        if index >= 0:
            self.keys[index] += 1
            self.total += 1
        return index

    def recount(self, members: list[MemberQueue], counted: list[KeyQueue]) -> None:
        """Counts the keys that `members` own now, of all `counted`."""
        places = {id(member): index for index, member in enumerate(members)}
        self.keys = [0] * len(members)
        self.total = 0
        for queue in counted:
            place = NOBODY if queue.owner is None else places.get(id(queue.owner), NOBODY)
            if place != NOBODY:
                self.keys[place] += 1
                self.total += 1


def takes(router: Router, owner: MemberQueue, key: bytes) -> bool:
    """Whether a member that is there accepts the key."""
    return any(
        member.member_id == owner.member_id and accepts(member.filters, key)
        for member in router.members
    )
