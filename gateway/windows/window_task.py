"""The task of a window: it loads the window, and pauses before it is loaded again."""

from __future__ import annotations

import asyncio
from typing import assert_never

import structlog

from dispatcher.core.life.commands import Failure, Load, Pause
from dispatcher.core.life.states import LifeState
from dispatcher.core.stored.cut import Cut
from dispatcher.store.base import StoreError
from gateway.upstream.errors import UpstreamError
from gateway.windows.dependencies import Dependencies
from gateway.windows.failures import failure_of, tells_of_gone_topic
from gateway.windows.loading import load
from gateway.windows.window import Window

log = structlog.get_logger("keyway.window")


async def run_window(window: Window, dependencies: Dependencies) -> None:
    """Runs the window until it is closed."""
    window.perform(window.life.start())
    work = await window.work.get()
    while work is not None:
        match work:
            case Load(cut=cut):
                await _load(window, dependencies, cut)
                work = await window.work.get()
            case Pause(wait_ms=wait_ms):
                work = await _pause(window, wait_ms)
            case _:
                assert_never(work)


async def _pause(window: Window, wait_ms: int) -> Load | Pause | None:
    try:
        async with asyncio.timeout(wait_ms / 1000):
            return await window.work.get()  # only the end comes meanwhile
    except TimeoutError:
        window.perform(window.life.pause_over())
    return await window.work.get()


async def _load(window: Window, dependencies: Dependencies, cut: Cut | None) -> None:
    try:
        async with dependencies.loads.turn(window.asked_by):
            await dependencies.settings.known(window.key.group)
            loaded = await load(
                dependencies,
                window.key,
                window.partition,
                reliable=window.section.reliable,
                partitions=window.partitions,
                cut=cut,
            )
        window.go_up(loaded)
    except (StoreError, UpstreamError) as error:
        if tells_of_gone_topic(error):
            # It was deleted since the last look. Another one of its name may have records.
            dependencies.upstream.request_refresh()
        _not_loaded(window, error, failure_of(error))
    # A window that cannot be loaded for a bug costs the node this window, not the others.
    except Exception as bug:
        log.exception("window_not_loaded", window=repr(window))
        failure = Failure(str(bug), f"{type(bug).__name__}: {bug}", logged=True)
        _not_loaded(window, bug, failure)


def _not_loaded(window: Window, error: Exception, failure: Failure) -> None:
    if window.life.state is LifeState.LOADING:
        window.perform(window.life.load_failed(failure))
    else:  # It was up for a moment, or is broken or closed already.
        window.fail(error)
