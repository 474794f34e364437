"""Who waits for whom: per key the order of its records, per member the keys that have one ready.

A key's records form a FIFO of offsets, linked through the window's ring (window.py), so a backlog
of one hot key costs offsets only. A record in flight or held back stays where it is in that FIFO
until it is settled: a record that is given back is therefore at the front of its key again without
being moved, which is what Danube's dispatcher gets wrong.

A key is listed in the ready list of its owner if and only if a record of it could be acquired now.
Entries leave the list by being acquired; every other change of what is ready rebuilds all lists (a
join, a leave, a truncation).
"""

from __future__ import annotations

from typing import Final

from dispatcher.core.model import Key, MemberId, SessionId

NO_OFFSET: Final = -1


class MemberQueue:
    """A member of the group, or one that still holds records: what is ready for it and how much it
    holds.
    """

    def __init__(self, member_id: MemberId) -> None:
        self.member_id = member_id
        self.joined = False  # False: known only by the leases it holds
        self.ready: list[KeyQueue] = []
        self.ready_at = 0  # entries before it are taken
        self.in_flight = 0  # records
        self.awake = False  # had something to acquire at the end of the last step
        # The last sent position when it joined others, NO_OFFSET if it did not; and the last offset
        # it may have for now, NO_OFFSET without a limit (joins.py).
        self.joined_behind = NO_OFFSET
        self.limit = NO_OFFSET

    def __repr__(self) -> str:
        return f"<{self.member_id} ready={self.ready_count()} in_flight={self.in_flight}>"

    def ready_count(self) -> int:
        return len(self.ready) - self.ready_at

    def clear_ready(self) -> None:
        self.ready = []
        self.ready_at = 0

    def trim_ready(self) -> None:
        """Forgets the taken entries once they are the larger half: O(1) per entry, and no more than
        twice the memory.
        """
        if self.ready_at * 2 >= len(self.ready):
            del self.ready[: self.ready_at]
            self.ready_at = 0


class Session:
    """One share session of one member, as long as it holds records."""

    def __init__(self, member: MemberQueue, session_id: SessionId) -> None:
        self.member = member
        self.session_id = session_id
        self.leases = 0
        self.restored = False  # since before a restart: what it was sent may never have reached it
        # The session that its member opened last: it may acknowledge what this one holds.
        self.successor: SessionId | None = None
        self.lost_at_ms = -1  # >= 0: its connection is gone since then

    def __repr__(self) -> str:
        return f"<{self.member.member_id}/{self.session_id}>"


class KeyQueue:
    """The unsettled records of one key; a record without a key has a queue of its own."""

    def __init__(self, key: Key, owner: MemberQueue | None) -> None:
        self.key = key
        self.owner = owner  # None: nobody is there, or nobody's filters accept the key
        self.head = NO_OFFSET
        self.tail = NO_OFFSET
        self.in_flight = 0
        self.holder: Session | None = None  # of what is in flight
        self.listed = False

    def __repr__(self) -> str:
        return f"<{self.key!r} {self.head}..{self.tail} in_flight={self.in_flight} {self.owner!r}>"
