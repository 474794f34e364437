"""Share session epochs (KIP-932)."""

from __future__ import annotations

import pytest

from gateway.core.share.errors import (
    InvalidRequest,
    InvalidSessionEpoch,
    SessionLimitReached,
    SessionNotFound,
)
from gateway.core.share.sessions import IN_TURNS_MIN, MemberSessions, ShareSessions

KEY = (1, "g", "m1")


def sessions(limit: int = 10, connection_limit: int = 10) -> ShareSessions:
    return ShareSessions("boot", limit, connection_limit)


def test_epochs_count_up_from_the_opening_and_close_with_minus_one() -> None:
    s = sessions()
    opened = s.open(KEY, 7, acknowledges=False)
    assert s.resume(KEY, 1) is opened
    assert s.resume(KEY, 2) is opened
    assert s.close(KEY) is opened
    assert len(s) == 0


@pytest.mark.parametrize("epoch", [0, 2, 5])
def test_a_wrong_epoch_is_refused_and_does_not_move_the_session(epoch: int) -> None:
    s = sessions()
    s.open(KEY, 7, acknowledges=False)
    with pytest.raises(InvalidSessionEpoch):
        s.resume(KEY, epoch)
    s.resume(KEY, 1)


def test_a_session_that_was_never_opened_is_not_found() -> None:
    with pytest.raises(SessionNotFound):
        sessions().resume(KEY, 1)
    with pytest.raises(SessionNotFound):
        sessions().close(KEY)


def test_reopening_loses_the_old_session_and_never_reuses_its_id() -> None:
    s = sessions()
    first = s.open(KEY, 7, acknowledges=False)
    second = s.open(KEY, 8, acknowledges=False)
    assert second.session_id != first.session_id
    assert s.resume(KEY, 1) is second
    assert s.ended(first.session_id)
    assert not s.ended(second.session_id)


def test_who_left_is_known_by_its_open_sessions_for_a_while() -> None:
    s = ShareSessions("boot", 10, 10, closed_max=2)
    one, two = (s.open((broker, "g", "m1"), 7, acknowledges=False) for broker in (1, 2))
    other = s.open((1, "g", "m2"), 7, acknowledges=False)
    s.member_left("g", "m1")
    s.member_left("g", "of no session")
    assert s.is_open(one)
    assert [s.left(x.session_id) for x in (one, two, other)] == [True, True, False]
    s.member_left("g", "m2")
    assert [s.left(x.session_id) for x in (one, two, other)] == [False, True, True]


def test_what_was_closed_is_known_for_a_while() -> None:
    s = ShareSessions("boot", 10, 10, closed_max=2)
    ids = []
    for member in ("m1", "m2", "m3", "m4"):
        closed = s.open((1, "g", member), 7, acknowledges=False)
        s.close(closed.key)
        assert not s.closed(closed.session_id), "its last acknowledgements are on their way"
        s.remember_closed(closed)
        ids.append(closed.session_id)
    lost = s.open(KEY, 7, acknowledges=False)
    s.connection_lost(7)
    assert [s.closed(one) for one in [*ids, lost.session_id]] == [False, False, True, True, False]


def test_a_session_outlives_a_connection_it_was_only_used_on() -> None:
    """Only the connection it was opened on takes it along."""
    s = sessions()
    first = s.open(KEY, 7, acknowledges=False)
    second = s.open(KEY, 8, acknowledges=False)
    assert s.connection_lost(7) == []
    assert s.is_open(second)
    assert not s.is_open(first)
    assert s.connection_lost(8) == [second]
    with pytest.raises(SessionNotFound):
        s.resume(KEY, 1)


def test_one_connection_does_not_use_up_the_sessions_of_all() -> None:
    s = sessions(connection_limit=2)
    s.open((1, "g", "m1"), 7, acknowledges=False)
    s.open((1, "g", "m2"), 7, acknowledges=False)
    with pytest.raises(SessionLimitReached):
        s.open((1, "g", "m3"), 7, acknowledges=False)
    s.open((1, "g", "m2"), 7, acknowledges=False)
    s.open((1, "g", "m3"), 8, acknowledges=False)
    s.close((1, "g", "m1"))
    s.open((1, "g", "m4"), 7, acknowledges=False)


def test_a_member_that_is_gone_takes_its_sessions_with_all_brokers() -> None:
    s = sessions()
    mine = [s.open((broker, "g", "m1"), 7, acknowledges=False) for broker in (1, 2)]
    other = s.open((1, "g", "m2"), 7, acknowledges=False)
    assert s.member_gone("g", "m1") == mine
    assert s.of_group("g") == [other]
    assert s.member_gone("g", "m1") == []


def test_acknowledgements_in_the_opening_are_refused() -> None:
    with pytest.raises(InvalidRequest):
        sessions().open(KEY, 7, acknowledges=True)


def test_the_limit_counts_open_sessions() -> None:
    s = sessions(limit=1)
    s.open(KEY, 7, acknowledges=False)
    with pytest.raises(SessionLimitReached):
        s.open((1, "g", "m2"), 8, acknowledges=False)
    s.close(KEY)
    s.open((1, "g", "m2"), 8, acknowledges=False)


def test_a_member_has_a_session_with_every_broker_whatever_the_others_have() -> None:
    s = sessions(limit=1)
    for broker in (-1, 1, 2, 3):
        s.open((broker, "g", "m1"), 7, acknowledges=False)
    with pytest.raises(SessionLimitReached):
        s.open((2, "g", "m2"), 8, acknowledges=False)
    assert len(s) == 4


def test_a_lost_connection_takes_all_its_sessions() -> None:
    s = sessions()
    s.open(KEY, 7, acknowledges=False)
    s.open((1, "g2", "m1"), 7, acknowledges=False)
    kept = s.open((1, "g", "m2"), 8, acknowledges=False)
    assert {lost.key for lost in s.connection_lost(7)} == {KEY, (1, "g2", "m1")}
    assert s.resume((1, "g", "m2"), 1) is kept


def test_fetches_start_with_another_partition_each_time() -> None:
    s = sessions()
    session = s.open(KEY, 7, acknowledges=False)
    for partition in range(3):
        session.partitions[(b"t", partition)] = None
    starts = [session.rotated()[0][1] for _ in range(4)]
    assert starts == [0, 1, 2, 0]
    assert {key[1] for key in session.rotated()} == {0, 1, 2}


def test_the_epoch_wraps_to_one() -> None:
    s = sessions()
    session = s.open(KEY, 7, acknowledges=False)
    session.next_epoch = 2**31 - 1
    s.resume(KEY, 2**31 - 1)
    assert session.next_epoch == 1


# ------------------------------------------------------------------------------ how a member asks

OTHER = (2, "g", "m1")


def two_sessions() -> MemberSessions:
    """Of one member: one partition here, two there."""
    s = sessions()
    first, second = (s.open(key, 7, acknowledges=False) for key in (KEY, OTHER))
    first.partitions[b"t", 0] = second.partitions[b"t", 1] = second.partitions[b"t", 2] = None
    assert first.of_member is second.of_member
    return first.of_member


def test_a_member_is_sent_on_once_it_has_asked_in_turns_for_a_while() -> None:
    member = two_sessions()
    told = []
    for _ in range(IN_TURNS_MIN + 1):
        member.asks()
        told.append(member.may_send_on())
        member.answered(has_records=False)
    assert told == [*[False] * (IN_TURNS_MIN - 1), True, True]


def test_a_member_that_asks_all_at_once_is_not_sent_on_before_it_asks_in_turns_again() -> None:
    member = two_sessions()
    for _ in range(IN_TURNS_MIN):
        member.asks()
        member.answered(has_records=False)
    member.asks()
    member.asks()  # at the other broker
    assert not member.may_send_on()
    member.answered(has_records=True)
    assert not member.may_send_on(), "the first is alone now, and was not while it waited"
    member.answered(has_records=False)
    member.asks()
    assert not member.may_send_on()


def test_a_member_is_sent_on_as_often_as_it_has_partitions_until_it_has_records() -> None:
    member = two_sessions()

    def asked(*, has_records: bool = False) -> bool:
        member.asks()
        may = member.may_send_on()
        if may:
            member.sent_on()
        member.answered(has_records=has_records)
        return may

    for _ in range(IN_TURNS_MIN - 1):
        assert not asked()
    assert [asked() for _ in range(5)] == [True, True, True, False, False]
    asked(has_records=True)
    assert asked()


def test_a_member_with_one_session_is_sent_nowhere() -> None:
    s = sessions()
    member = s.open(KEY, 7, acknowledges=False).of_member
    for _ in range(IN_TURNS_MIN):
        member.asks()
        member.answered(has_records=False)
    other = s.open(OTHER, 8, acknowledges=False)
    other.partitions[b"t", 0] = None
    member.asks()
    assert member.may_send_on()
    s.close(OTHER)
    assert not member.may_send_on()
    assert s.member_gone("g", "m1")
    assert not s.member_gone("g", "m1")


@pytest.mark.parametrize("limits", [(2, 10), (10, 1)])
def test_a_session_that_may_not_be_opened_again_stays_open(limits: tuple[int, int]) -> None:
    """Nobody would hear that it is lost, and its records would wait for their locks."""
    s = sessions(*limits)
    before = s.open(KEY, 7, acknowledges=False)
    s.open((1, "g", "m2"), 8, acknowledges=False)
    if limits == (10, 1):
        with pytest.raises(SessionLimitReached):
            s.open(KEY, 8, acknowledges=False)
        assert s.is_open(before)
    again = s.open(KEY, 7, acknowledges=False)
    assert (s.is_open(before), s.is_open(again)) == (False, True)
    assert s.resume(KEY, 1) is again
