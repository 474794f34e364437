"""A bug behind the loading of a window: it costs that window another attempt, and nobody else."""

from __future__ import annotations

import pytest
import structlog

from dispatcher.core.steps import Snapshot
from dispatcher.store.base import StoreError
from gateway.windows.news import WindowNews
from gateway.windows.window import Window
from tests.rig.node_parts import Node
from tests.rig.virtual_time import run, settle, until


@pytest.mark.parametrize("bug", [ValueError("a bug"), StoreError("away")], ids=str)
@pytest.mark.parametrize("breaks_first", [False, True])
def test_what_fails_when_the_window_is_up_already_loads_it_again(
    bug: Exception, monkeypatch: pytest.MonkeyPatch, *, breaks_first: bool
) -> None:
    async def work() -> None:
        catch_up = WindowNews.catch_up
        failures = [bug]

        def fails_once(news: WindowNews, window: Window, snapshot: Snapshot) -> None:
            if failures:
                if breaks_first:
                    window.fail(ValueError("an earlier bug"))
                raise failures.pop()
            catch_up(news, window, snapshot)

        monkeypatch.setattr(WindowNews, "catch_up", fails_once)
        async with Node() as node:
            with structlog.testing.capture_logs():
                node.log.produce(b"a")
                node.beat()
                await settle()
                window = node.window()
                assert not failures
                assert window.dispatcher is None
                assert window.trouble
                await until(lambda: window.dispatcher is not None)
            assert not window.trouble

    run(work())
