from __future__ import annotations

import pytest

from dispatcher.core.model import LeaseId, MemberId, SessionId
from dispatcher.core.records.keys import MemberQueue
from dispatcher.core.records.leases import LeaseBook


def test_ids_grow_and_sessions_live_as_long_as_their_leases() -> None:
    book = LeaseBook()
    member = MemberQueue(MemberId("c1"))
    session = book.session(member, SessionId("s1"))
    one = book.open(session, 100, [1, 2])
    two = book.open(session, 200, [3])
    assert (one.lease_id, two.lease_id) == (1, 2)
    assert book.overdue(100) == [one]
    assert book.of_session(session) == book.of_member(member) == [one, two]
    one.live = 0
    book.close(one)
    assert book.session(member, SessionId("s1")) is session
    two.live = 0
    book.close(two)
    assert book.sessions == {}
    assert book.open(book.session(member, SessionId("s2")), 1, [4]).lease_id == 3


def test_a_lease_in_use_is_not_closed() -> None:
    book = LeaseBook()
    session = book.session(MemberQueue(MemberId("c1")), SessionId("s1"))
    lease = book.adopt(LeaseId(9), session, 100, [1])
    with pytest.raises(AssertionError, match="in use"):
        book.close(lease)
