"""The rest of a window in which nothing happens, as in gateway/windows: no tick comes before the
window is due, and commits are seldom looked for.
"""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.core.dispatcher import Core
from dispatcher.core.life.life import WindowLife
from dispatcher.core.model import Ticked
from tests.sim.checkers import CheckFailure

ASKED_EVERY = 5  # commits of a window at rest: one of them asks the store


@dataclass(slots=True)
class Rest:
    early: int = 0  # ticks that came before the window was due
    commits: int = 0

    def ticks(self, life: WindowLife, now_ms: int) -> bool:
        """Whether the window is ticked now. Every other early tick comes nevertheless, and must do
        nothing.
        """
        if life.due_ms() <= now_ms:
            return True
        self.early += 1
        if life.core is not None and self.early % 2 == 0:
            _check_at_rest(life.core, now_ms)
        return False

    def commits_now(self, life: WindowLife) -> bool:
        self.commits += 1
        return life.commit_due or self.commits % ASKED_EVERY == 0


def _check_at_rest(core: Core, now_ms: int) -> None:
    step = core.handle(Ticked(now_ms))
    if step.changes or step.effects:
        raise CheckFailure("Rest", f"{core!r} did {step} before it was due")
