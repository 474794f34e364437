"""Workers as processes: one that ends is started again, one that cannot start ends all, and at stop
they end one after the other.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gateway.node.process import StartError
from gateway.node.workers import Workers
from tests.rig.patience import patient_s

WORKER = """
import os, pathlib, signal, sys, time
def end(*_):
    time.sleep(0.1)
    print(f"end {sys.argv[2]}", file=open(sys.argv[1], "a"))
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print(f"start {sys.argv[2]} {os.getpid()}", file=open(sys.argv[1], "a"))
time.sleep(600)
"""


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(patient_s(30)):
        while not done():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def story(log: Path, tell: Callable[[], Awaitable[None]]) -> None:
    """While two workers run."""

    async def work() -> None:
        stop = asyncio.Event()
        commands = [(sys.executable, "-c", WORKER, str(log), str(at)) for at in range(2)]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(Workers(commands).run(stop))
            await until(lambda: len(lines(log)) == 2)
            await tell()
            stop.set()

    asyncio.run(work())


def test_a_worker_that_is_killed_is_started_again(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def tell() -> None:
        _, number, pid = lines(log)[0].split()
        os.kill(int(pid), signal.SIGKILL)
        await until(lambda: len(lines(log)) == 3)
        assert lines(log)[2].startswith(f"start {number} ")

    story(log, tell)
    assert lines(log)[-2:] == ["end 0", "end 1"], "one after the other"


def test_a_worker_that_cannot_start_ends_all(tmp_path: Path) -> None:
    log = tmp_path / "log"
    other = (sys.executable, "-c", WORKER, str(log), "1")
    with pytest.raises(ExceptionGroup) as group:
        asyncio.run(Workers([(sys.executable, "-c", "exit(2)"), other]).run(asyncio.Event()))
    assert group.group_contains(StartError, match="worker 0 cannot start")
