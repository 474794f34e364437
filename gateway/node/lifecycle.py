"""Runs the parts of a node: starts them from bottom to top, stops them from top to bottom."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import structlog

from gateway.node.limits import STOP_S_MAX
from gateway.part import Part

log = structlog.get_logger("keyway.node")


async def run_parts(
    parts: Sequence[Part[Any]], tasks: asyncio.TaskGroup, stop: asyncio.Event
) -> None:
    """Runs the parts until `stop` is set, which may be before all parts have started. `tasks` is
    entered here; a part that fails ends the node with an ExceptionGroup.
    """
    started: list[Part[Any]] = []
    background: list[asyncio.Task[None]] = []
    try:
        async with tasks:
            starting = tasks.create_task(_start(parts, tasks, started, background))
            await stop.wait()
            starting.cancel()
            log.info("stopping")
            await _stop(started)
            for task in background:
                task.cancel()
    finally:
        for part in reversed(parts):
            if part.close is not None:
                await part.close()
    log.info("stopped")


async def _start(
    parts: Sequence[Part[Any]],
    tasks: asyncio.TaskGroup,
    started: list[Part[Any]],
    background: list[asyncio.Task[None]],
) -> None:
    for part in parts:
        if part.start is not None:
            await part.start()
        started.append(part)
        background += [tasks.create_task(work(), name=part.name) for work in part.background]
    for part in parts:
        if part.ready is not None:
            await part.ready()
    log.info("ready")


async def _stop(started: Sequence[Part[Any]]) -> None:
    for part in reversed(started):
        if part.drain is not None:
            await part.drain()
    try:
        async with asyncio.timeout(STOP_S_MAX):
            for part in reversed(started):
                if part.stop is not None:
                    await part.stop()
    except TimeoutError:
        log.warning("stopped_without_commit", seconds=STOP_S_MAX)
