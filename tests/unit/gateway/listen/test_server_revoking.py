"""Sessions that are judged again do not hold up the others."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from gateway.core.cluster.topology import Topology
from gateway.listen.limits import JUDGED_AT_ONCE, LOGIN_FILES_LOOK_S
from gateway.listen.server import Server, ServerSettings
from tests.rig.virtual_time import run

SESSIONS = 1_000


class Files:
    """Of a listener; they have changed."""

    async def look(self) -> bool:
        return True


def test_ten_thousand_sessions_are_judged_a_few_at_a_time() -> None:
    """They stood still for 0.4 s, each ten seconds if a stranger wanted it."""

    async def work() -> None:
        server: Any = Server(ServerSettings(()), Topology(), {})
        files = Files()
        judged: list[int] = []
        turns: list[int] = []  # how many had been judged at each

        def session(at: int, of: object) -> object:
            return SimpleNamespace(
                login=SimpleNamespace(authentication=of, judge_again=lambda: judged.append(at))
            )

        server.authentications = {"partners": files}
        for at in range(SESSIONS):
            server.connections[at] = session(at, files if at % 2 else None)
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(server.look_for_revoked_forever())
            await asyncio.sleep(LOGIN_FILES_LOOK_S)
            while len(judged) < SESSIONS / 2:
                turns.append(len(judged))
                await asyncio.sleep(0)
            looking.cancel()
        steps = [after - before for before, after in zip(turns, [*turns[1:], 500], strict=True)]
        assert max(steps) <= JUDGED_AT_ONCE
        assert judged == list(range(1, SESSIONS, 2)), "each of the listener, and no other"

    run(work())
