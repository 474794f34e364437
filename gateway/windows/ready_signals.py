"""Wakes parked fetches when a window has records for their member."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class ReadySignals:
    """Wakes the fetches of a member when a dispatcher has records for it.

    Each fetch has a signal of its own, as long as it lasts: a member asks several virtual brokers
    at once, and none of its fetches may take the news from another.
    """

    _watching: dict[tuple[str, str], list[asyncio.Event]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._watching)

    @contextmanager
    def watch(self, group: str, member_id: str) -> Iterator[asyncio.Event]:
        signal = asyncio.Event()
        place = (group, member_id)
        self._watching.setdefault(place, []).append(signal)
        try:
            yield signal
        finally:
            signals = self._watching[place]
            signals.remove(signal)
            if not signals:
                del self._watching[place]

    def wake(self, group: str, members: list[str]) -> None:
        for member_id in members:
            for signal in self._watching.get((group, member_id), ()):
                signal.set()
