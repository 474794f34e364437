"""Leases: the records of one Acquire, with their member and their deadline.

An acknowledgement is checked against the lease object of the offset, thus against member, session
and attempt at once: a redelivered offset has another lease.
"""

from __future__ import annotations

from dispatcher.core.model import LeaseId, MemberId, SessionId
from dispatcher.core.records.keys import LeaseHolder, MemberQueue


class Lease:
    """`offsets` as taken; in flight are those whose slot in the window still names this lease."""

    def __init__(
        self, lease_id: LeaseId, session: LeaseHolder, deadline_ms: int, offsets: list[int]
    ) -> None:
        self.lease_id = lease_id
        self.session = session
        self.deadline_ms = deadline_ms
        self.offsets = offsets
        self.live = len(offsets)  # in flight

    def __repr__(self) -> str:
        return f"<lease {self.lease_id} {self.session!r} live={self.live} until={self.deadline_ms}>"


class LeaseBook:
    """The leases with anything in flight, in the order they were taken, and the sessions that hold
    them.
    """

    def __init__(self) -> None:
        self.leases: dict[int, Lease] = {}
        self.sessions: dict[tuple[MemberId, SessionId], LeaseHolder] = {}
        self.next_id = 1

    def session(self, member: MemberQueue, session_id: SessionId) -> LeaseHolder:
        place = (member.member_id, session_id)
        session = self.sessions.get(place)
        if session is None:
            session = LeaseHolder(member, session_id)
            self.sessions[place] = session
        return session

    def open(self, session: LeaseHolder, deadline_ms: int, offsets: list[int]) -> Lease:
        lease = self.adopt(LeaseId(self.next_id), session, deadline_ms, offsets)
        self.next_id += 1
        return lease

    def adopt(
        self, lease_id: LeaseId, session: LeaseHolder, deadline_ms: int, offsets: list[int]
    ) -> Lease:
        """A lease under an id of before a restart."""
        lease = Lease(lease_id, session, deadline_ms, offsets)
        self.leases[lease.lease_id] = lease
        session.leases += 1
        return lease

    def close(self, lease: Lease) -> None:
        """Nothing of the lease is in flight. A session without leases is forgotten: its late
        acknowledgements fail.
        """
        assert lease.live == 0, f"{lease!r} is in use"
        del self.leases[lease.lease_id]
        session = lease.session
        session.leases -= 1
        if session.leases == 0:
            del self.sessions[(session.member.member_id, session.session_id)]

    def of_session(self, session: LeaseHolder) -> list[Lease]:
        return [lease for lease in self.leases.values() if lease.session is session]

    def of_member(self, member: MemberQueue) -> list[Lease]:
        return [lease for lease in self.leases.values() if lease.session.member is member]

    def overdue(self, now_ms: int) -> list[Lease]:
        """The leases that are overdue. There is at most one lease per record in flight, and this is
        asked twice a second: a scan is cheaper than an index.
        """
        return [lease for lease in self.leases.values() if lease.deadline_ms <= now_ms]
