"""The members of the crowd beside an open dashboard stay, also on a machine that is too busy."""

from __future__ import annotations

import pytest

from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from tests.bench.dashboard import TOPIC, Joined


def answer(error: ErrorCode, epoch: int = 0) -> Message:
    return {"ErrorCode": int(error), "MemberEpoch": epoch}


def said(member: Joined) -> tuple[int, list[str] | None]:
    body = member.heartbeat()
    return body["MemberEpoch"], body["SubscribedTopicNames"]


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_member_that_was_evicted_joins_again(error: ErrorCode) -> None:
    member = Joined("group")
    assert said(member) == (0, [TOPIC])
    assert member.heard(answer(ErrorCode.NONE, 3))
    assert said(member) == (3, None)
    assert not member.heard(answer(error))
    assert said(member) == (0, [TOPIC])
    assert member.heard(answer(ErrorCode.NONE, 7))
    assert (said(member), member.joins) == ((7, None), 2)


def test_a_coordinator_that_starts_is_asked_again() -> None:
    member = Joined("group")
    for error in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE):
        assert member.heard(answer(error))
        assert (said(member), member.joins) == ((0, [TOPIC]), 0)
    member.heard(answer(ErrorCode.NONE, 1))
    assert member.heard(answer(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert said(member) == (1, None), "it is still a member"


def test_any_other_refusal_is_a_fault_of_the_bench() -> None:
    with pytest.raises(AssertionError):
        Joined("group").heard(answer(ErrorCode.GROUP_AUTHORIZATION_FAILED))
