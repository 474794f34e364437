"""The life of a node's parts: their order of start and stop, and an early end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import structlog

from gateway.node.lifecycle import run_parts
from gateway.node.limits import STOP_S_MAX
from gateway.part import Part
from tests.rig.virtual_time import now_ms, run, settle

Hook = Callable[[], Awaitable[None]]


def said(log: list[str], what: str) -> Hook:
    async def hook() -> None:
        log.append(what)

    return hook


def part(
    log: list[str], name: str, *, start: Hook | None = None, stop: Hook | None = None
) -> Part[None]:
    async def work() -> None:
        log.append(f"{name} runs")
        try:
            await asyncio.Event().wait()
        finally:
            log.append(f"{name} ends")

    return Part(
        name=name,
        room=None,
        start=start or said(log, f"{name} starts"),
        background=(work,),
        ready=said(log, f"{name} is ready"),
        drain=said(log, f"{name} drains"),
        stop=stop or said(log, f"{name} stops"),
        close=said(log, f"{name} closes"),
    )


def test_parts_start_from_bottom_to_top_and_stop_from_top_to_bottom() -> None:
    log: list[str] = []

    async def work() -> None:
        stop = asyncio.Event()
        life = asyncio.ensure_future(
            run_parts([part(log, "a"), part(log, "b")], asyncio.TaskGroup(), stop)
        )
        await settle()
        runs = {"a runs", "b runs"}
        assert [line for line in log if line not in runs] == [
            *("a starts", "b starts", "a is ready", "b is ready"),
        ]
        assert runs <= set(log)
        log.clear()
        stop.set()
        await life

    run(work())
    assert log[:4] == ["b drains", "a drains", "b stops", "a stops"]
    assert set(log[4:6]) == {"a ends", "b ends"}, "the background runs until everything is written"
    assert log[6:] == ["b closes", "a closes"]


def test_a_node_that_waits_for_its_upstream_can_be_stopped() -> None:
    log: list[str] = []

    async def never() -> None:
        await asyncio.Event().wait()

    async def work() -> None:
        stop = asyncio.Event()
        parts = [part(log, "redis"), part(log, "upstream", start=never), part(log, "windows")]
        life = asyncio.ensure_future(run_parts(parts, asyncio.TaskGroup(), stop))
        await settle()
        stop.set()
        await life

    run(work())
    assert [line for line in log if "windows" in line or "upstream" in line] == [
        "windows closes",
        "upstream closes",
    ], "a part that has not started has nothing to write"
    assert "redis stops" in log


def test_stopping_takes_its_time_once_however_many_parts_hang() -> None:
    log: list[str] = []

    async def hang() -> None:
        await asyncio.Event().wait()

    async def work() -> None:
        stop = asyncio.Event()
        parts = [part(log, "a", stop=hang), part(log, "b", stop=hang)]
        life = asyncio.ensure_future(run_parts(parts, asyncio.TaskGroup(), stop))
        await settle()
        began = now_ms()
        stop.set()
        with structlog.testing.capture_logs() as logs:
            await life
        assert now_ms() - began == STOP_S_MAX * 1000
        assert "stopped_without_commit" in [line["event"] for line in logs]

    run(work())
    assert log[-2:] == ["b closes", "a closes"]


def test_a_part_that_cannot_start_ends_the_node() -> None:
    log: list[str] = []

    async def refuse() -> None:
        raise OSError("the port is taken")

    async def work() -> None:
        parts = [part(log, "a"), part(log, "b", start=refuse)]
        with pytest.raises(ExceptionGroup) as failed:
            await run_parts(parts, asyncio.TaskGroup(), asyncio.Event())
        assert failed.group_contains(OSError, match="the port is taken")

    run(work())
    assert log[-2:] == ["b closes", "a closes"]
