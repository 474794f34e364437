"""Progress: nothing for a short command, steps and details for a long one, never a fault of its
own.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable

import pytest
from rich.console import Console

from gateway.embedded.process import wait_until
from keyway.terminal.progress import Progress


def shown(*, terminal: bool = False) -> tuple[Console, Callable[[], str]]:
    out = io.StringIO()
    return Console(file=out, force_terminal=terminal, width=80), out.getvalue


def waits_for(said: Callable[[], str], words: str) -> None:
    wait_until(lambda: words in said(), what=words, deadline_s=10)


def test_a_command_that_is_done_soon_prints_nothing() -> None:
    console, said = shown()
    with Progress(console, after_s=60.0) as progress:
        progress.step("reading ams")
    assert said() == ""


@pytest.mark.parametrize("terminal", [False, True])
def test_each_step_of_a_long_one_is_told_with_its_detail(terminal: bool) -> None:
    console, said = shown(terminal=terminal)
    with Progress(console, after_s=0.0) as progress:
        progress.detail = lambda: "3 of 8 tasks"
        progress.step("reading ams")
        waits_for(said, "reading ams, 3 of 8 tasks, 0 s")
        progress.step("comparing [ams] and [fra]")
        waits_for(said, "comparing [ams] and [fra], 3 of 8 tasks")


def test_a_detail_that_fails_costs_the_line_only_its_detail() -> None:
    console, said = shown()

    def broken() -> str:
        raise RuntimeError("the session has ended")

    with Progress(console, after_s=0.0) as progress:
        progress.detail = broken
        progress.step("reading ams")
        waits_for(said, "reading ams, 0 s")
    assert "ended" not in said()


def test_an_error_of_the_command_ends_it() -> None:
    console, _ = shown()
    before = threading.active_count()
    with pytest.raises(ValueError, match="no such topic"), Progress(console, after_s=60.0):
        raise ValueError("no such topic")
    assert threading.active_count() == before
