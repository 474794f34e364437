"""The progress of a command that takes longer than two seconds, on stderr.

On a terminal one line that changes in place; elsewhere a line for each step, and one every ten
seconds while a step lasts. A command that is done sooner prints nothing, so scripts stay silent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.text import Text

AFTER_S = 2.0
LOOK_S = 0.25
AGAIN_S = 10.0  # between two lines about the same step, where lines stay

Step = Callable[[str], None]  # told at the beginning of each step
Detail = Callable[[], str]  # of the step under way, such as "12 of 40 tasks"


def no_step(_: str) -> None:
    """Nobody looks."""


class Progress:
    """`with Progress() as progress: progress.step("reading ams")`. `detail` is asked by a thread of
    its own and may take its time; if it raises, the line goes without.
    """

    def __init__(self, console: Console | None = None, *, after_s: float = AFTER_S) -> None:
        self.detail: Detail | None = None
        self._console = console or Console(stderr=True, soft_wrap=True)
        self._after_s = after_s
        self._began = time.monotonic()
        self._step, self._step_began = "", self._began
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._show, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def step(self, text: str) -> None:
        self._step, self._step_began = text, time.monotonic()

    def _show(self) -> None:
        if self._over.wait(self._after_s):
            return
        if self._console.is_terminal:
            with self._console.status(self._line()) as status:
                while not self._over.wait(LOOK_S):
                    status.update(self._line())
            return
        told, told_at = "", 0.0
        while not self._over.is_set():
            now = time.monotonic()
            if self._step != told or now - told_at >= AGAIN_S:
                told, told_at = self._step, now
                self._console.print(self._line())
            self._over.wait(LOOK_S)

    def _line(self) -> Text:
        parts = [self._step or "working"]
        try:
            detail = self.detail() if self.detail is not None else ""
        except Exception:  # noqa: BLE001  Progress is a courtesy: the command's own errors are told.
            detail = ""
        if detail:
            parts.append(detail)
        parts.append(f"{time.monotonic() - self._step_began:.0f} s")
        return Text(", ".join(parts))
