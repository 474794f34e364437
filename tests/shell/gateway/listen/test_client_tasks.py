"""A bug that one client's bytes meet ends its connection, and not the node."""

from __future__ import annotations

import asyncio
from functools import partial

from structlog.testing import capture_logs

from gateway.listen.client_tasks import ClientTasks
from gateway.listen.counters import Counters
from keyway.repeated_lines import RepeatedLines
from tests.rig.loopback import run, until


async def _meets_a_bug() -> None:
    raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")


async def _waits() -> None:
    await asyncio.Event().wait()


def test_a_bug_ends_its_client_alone_and_is_told_once_in_a_while() -> None:
    counters, ended = Counters(), list[str]()

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            clients = ClientTasks(tasks, counters, RepeatedLines(lambda: 0))
            good = clients.start(_waits, lambda: ended.append("good"))
            for at in range(5):
                clients.start(_meets_a_bug, partial(ended.append, f"bad {at}"))
            await until(lambda: len(ended) == 5)
            assert not good.done()
            good.cancel()

    with capture_logs() as logs:
        run(main())
    assert ended == [f"bad {at}" for at in range(5)]
    assert counters.connections_failed == 5
    (line,) = logs
    assert line["event"] == "client_task_failed"
    assert line["task"] == "_meets_a_bug"
    assert line["exc_info"], "with its traceback"


def test_one_that_is_cancelled_before_it_begins_leaves_nothing_behind() -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            clients = ClientTasks(tasks, Counters(), RepeatedLines(lambda: 0))
            clients.start(_waits, lambda: None).cancel()

    run(main())
