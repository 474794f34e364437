"""The steps of a window on their way to the store."""

from __future__ import annotations

from dispatcher.core.life.commands import Ticket
from dispatcher.core.life.commits import Capture
from dispatcher.core.steps import Change, Step


class Entry:
    """One step that waits to be persisted."""

    def __init__(self, step: Step, ticket: Ticket) -> None:
        self.step = step
        self.ticket = ticket


class Batch:
    """The steps of one write. `persisted` or `not_persisted` must follow before the next."""

    def __init__(self, fence: int, entries: list[Entry], capture: Capture | None) -> None:
        self.fence = fence
        self.entries = entries
        self.capture = capture
        self.changes: list[Change] = []
        for entry in entries:
            self.changes.extend(entry.step.changes)
