"""A node that stops lets the members of share groups hear of the new owners."""

from __future__ import annotations

import asyncio

from gateway.core.share.sessions import ShareSessions
from gateway.members.farewell import members_told
from gateway.members.limits import FAREWELL_LOOK_S, FAREWELL_S_MAX
from tests.rig.virtual_time import run

KEY = (1, "orders", "member")
CONNECTION = 7


def open_session() -> ShareSessions:
    sessions = ShareSessions("boot", broker_max=10, connection_max=10)
    sessions.open(KEY, CONNECTION, acknowledges=False)
    return sessions


def waited_s(sessions: ShareSessions, *others: str, lost_after_s: float | None = None) -> float:
    async def scene() -> float:
        loop = asyncio.get_running_loop()
        if lost_after_s is not None:
            loop.call_later(lost_after_s, sessions.connection_lost, CONNECTION)
        began_s = loop.time()
        await members_told(sessions, lambda: others)
        return loop.time() - began_s

    return run(scene())


def test_it_waits_until_the_last_connection_has_ended() -> None:
    waited = waited_s(open_session(), "other", lost_after_s=0.3)
    assert 0.3 <= waited <= 0.3 + 2 * FAREWELL_LOOK_S


def test_a_member_at_work_is_not_waited_for_any_longer() -> None:
    waited = waited_s(open_session(), "other")
    assert FAREWELL_S_MAX <= waited <= FAREWELL_S_MAX + FAREWELL_LOOK_S


def test_the_last_node_has_nobody_to_name() -> None:
    assert waited_s(open_session()) == 0


def test_without_sessions_it_goes_on() -> None:
    assert waited_s(ShareSessions("boot", broker_max=10, connection_max=10), "other") == 0
