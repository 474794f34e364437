from __future__ import annotations

from dispatcher.core.keys import KeyQueue, MemberQueue, Session
from dispatcher.core.model import MemberId, SessionId


def test_taken_entries_of_the_ready_list_are_forgotten() -> None:
    member = MemberQueue(MemberId("c1"))
    member.ready = [KeyQueue(b"%d" % i, member) for i in range(100)]
    member.ready_at = 49
    member.trim_ready()
    assert (len(member.ready), member.ready_count()) == (100, 51)
    member.ready_at = 50
    member.trim_ready()
    assert (len(member.ready), member.ready_at, member.ready_count()) == (50, 0, 50)
    member.clear_ready()
    assert member.ready_count() == 0


def test_they_read_well_in_a_trace() -> None:
    member = MemberQueue(MemberId("c1"))
    assert repr(member) == "<c1 ready=0 in_flight=0>"
    assert repr(Session(member, SessionId("s1"))) == "<c1/s1>"
    assert repr(KeyQueue(b"k", None)) == "<b'k' -1..-1 in_flight=0 None>"
