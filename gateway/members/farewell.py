"""A planned stop, after other nodes have got the virtual brokers: the share members' next requests
tell them who owns these now, and their connections end with the answers.

A connection that just ends says nothing: its client asks for Metadata, but some wait for seconds
before they ask again (franz-go: up to 13 s).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from gateway.core.share.sessions import ShareSessions
from gateway.members.limits import FAREWELL_LOOK_S, FAREWELL_S_MAX


async def members_told(sessions: ShareSessions, others: Callable[[], Sequence[str]]) -> None:
    """Waits until no share session is open, or for FAREWELL_S_MAX. Not at all without another
    node: then nobody can be named.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + FAREWELL_S_MAX
    while len(sessions) and others() and loop.time() < until_s:  # noqa: ASYNC110
        await asyncio.sleep(FAREWELL_LOOK_S)
