"""An event loop whose clock jumps to the next timer: an hour passes at once, and nothing to wait
for is an error instead of a test that hangs. For code without real sockets only.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tests.rig.patience import patient_s

T = TypeVar("T")
START_S = 1_000_000.0


class Stuck(Exception):
    """Every task waits for something that nobody will do."""


class _Instant(selectors.DefaultSelector):
    now_s = START_S

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise Stuck
        if not ready and timeout is not None and timeout > 0:
            self.now_s += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._instant = _Instant()
        super().__init__(self._instant)

    def time(self) -> float:
        return self._instant.now_s

    def busy(self, seconds: float) -> None:
        """The step that runs takes so long."""
        self._instant.now_s += seconds


def run(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def now_s() -> float:
    return asyncio.get_running_loop().time()


def now_ms() -> int:
    return round(now_s() * 1000)


async def settle(turns: int = 50) -> None:
    """Lets everything run that is ready, without time passing."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def until(met: Callable[[], bool], *, within_s: float = 60.0) -> None:
    """Lets time pass until `met`. Raises TimeoutError."""
    async with asyncio.timeout(patient_s(within_s)):
        while not met():  # noqa: ASYNC110  the condition has no event
            await asyncio.sleep(0.01)
