"""A command that is asked again and again: one process for all who ask, its troubles, its end."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gateway.admin import watched_command
from gateway.admin.limits import STATUS_IDLE_MS, STATUS_KEPT_MS
from gateway.admin.watched_command import CommandFailed, WatchedCommand
from tests.rig.patience import patient_s

START = "import os, sys, time\nfor at in range(1_000):\n"
LOOKS = START + " print('away', at, file=sys.stderr, flush=True)\n"
LOOKS += " print([os.getpid(), at], flush=True)\n time.sleep(0.05)\n"

Tell = Callable[[WatchedCommand, list[int]], Awaitable[None]]


def story(tell: Tell, program: str, file: Path) -> None:
    """`tell` gets the command and its clock."""

    async def work() -> None:
        clock = [1_000_000]
        words = (sys.executable, "-c", program)
        watched = WatchedCommand("keyway links", words, file, lambda: clock[0])
        running = asyncio.ensure_future(watched.run())
        try:
            async with asyncio.timeout(patient_s(60)):
                await tell(watched, clock)
        finally:
            running.cancel()
            await asyncio.wait([running])

    asyncio.run(work())


async def look(watched: WatchedCommand) -> tuple[int, int]:
    """Process id and number."""
    process, number = json.loads((await watched.latest()).text)
    return process, number


async def gone(process: int) -> None:
    async with asyncio.timeout(patient_s(30)):
        while True:
            try:
                os.kill(process, 0)
            except ProcessLookupError:
                return
            await asyncio.sleep(0.01)


def test_one_process_for_all_who_ask(tmp_path: Path) -> None:
    async def tell(watched: WatchedCommand, clock: list[int]) -> None:
        first = await asyncio.gather(*(look(watched) for _ in range(5)))
        (process,) = {row[0] for row in first}
        async with asyncio.timeout(patient_s(30)):
            while True:
                found = await watched.latest()
                again, number = json.loads(found.text)
                assert again == process
                # After a stall several lines stand before the first of several looks.
                if number >= 2 and found.problems[-1:] == (f"away {number}",):
                    break
                await asyncio.sleep(0.01)
        clock[0] += STATUS_IDLE_MS
        await gone(process)
        another = await look(watched)
        assert another[0] != process, "and it begins anew"

    story(tell, LOOKS, tmp_path)


def test_it_begins_anew_when_its_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "clusters.yaml"

    async def tell(watched: WatchedCommand, _: list[int]) -> None:
        process, _number = await look(watched)
        file.write_text("other: {}")
        async with asyncio.timeout(patient_s(30)):
            while (await look(watched))[0] == process:  # noqa: ASYNC110 - the command sets no event
                await asyncio.sleep(0.01)
        await gone(process)

    story(tell, LOOKS, file)


def test_its_last_line_on_stderr_is_the_reason_of_its_end(tmp_path: Path) -> None:
    count = tmp_path / "count"
    program = f"import sys; open({str(count)!r}, 'a').write('x'); sys.exit('first\\nno such file')"

    async def tell(watched: WatchedCommand, clock: list[int]) -> None:
        for _ in range(3):
            with pytest.raises(CommandFailed, match="keyway links: no such file"):
                await watched.latest()
        assert count.read_text() == "x", "the answer is kept"
        clock[0] += STATUS_KEPT_MS
        with pytest.raises(CommandFailed):
            await watched.latest()
        assert count.read_text() == "xx"

    story(tell, program, tmp_path)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import time; time.sleep(60)", "no answer in 0.5 s: is a cluster away?"),
        ("print('Traceback')", "its answer is not JSON"),
        ("print('[' + '1' * 200_000)", "an answer of more than 1000 bytes"),
        ("pass", "it ended without an answer"),
    ],
)
def test_an_answer_that_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, reason: str
) -> None:
    if "sleep" in program:
        monkeypatch.setattr(watched_command, "STATUS_S_MAX", 0.5)
    monkeypatch.setattr(watched_command, "STATUS_BYTES_MAX", 1_000)

    async def tell(watched: WatchedCommand, _: list[int]) -> None:
        with pytest.raises(CommandFailed) as failed:
            await watched.latest()
        assert str(failed.value) == f"keyway links: {reason}"

    story(tell, program, tmp_path)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    async def work() -> None:
        watched = WatchedCommand("keyway links", [str(tmp_path / "none")], tmp_path, lambda: 0)
        running = asyncio.ensure_future(watched.run())
        with pytest.raises(CommandFailed, match="cannot be started: No such file"):
            await watched.latest()
        assert not running.done(), "the node goes on"
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(work())


def test_whoever_waits_when_the_node_stops_is_told(tmp_path: Path) -> None:
    async def work() -> None:
        words = (sys.executable, "-c", "import time; time.sleep(60)")
        watched = WatchedCommand("keyway links", words, tmp_path, lambda: 0)
        running = asyncio.ensure_future(watched.run())
        waiting = asyncio.ensure_future(watched.latest())
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(CommandFailed, match="the node stops"):
            await waiting

    asyncio.run(work())
