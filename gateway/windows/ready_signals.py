"""Wakes parked fetches when a window has records for their member."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from dispatcher.core.model import MemberId

_Place = tuple[str, int]  # group, virtual broker


@dataclass(slots=True)
class ReadySignals:
    """Wakes the fetches of a member when a dispatcher has records for it.

    Each fetch has a signal of its own, as long as it lasts: a member asks several virtual brokers
    at once, and none of its fetches may take the news from another.
    """

    _watching: dict[tuple[str, str], list[asyncio.Event]] = field(default_factory=dict)
    _at_broker: dict[int, dict[asyncio.Event, None]] = field(default_factory=dict)
    _fetching: dict[_Place, dict[MemberId, int]] = field(default_factory=dict)  # their fetches

    def __len__(self) -> int:
        return len(self._watching)

    @contextmanager
    def watch(self, group: str, member_id: str, broker: int) -> Iterator[asyncio.Event]:
        signal = asyncio.Event()
        member, at = (group, member_id), (group, broker)
        self._watching.setdefault(member, []).append(signal)
        self._at_broker.setdefault(broker, {})[signal] = None
        fetching = self._fetching.setdefault(at, {})
        fetching[MemberId(member_id)] = fetching.get(MemberId(member_id), 0) + 1
        try:
            yield signal
        finally:
            signals = self._watching[member]
            signals.remove(signal)
            if not signals:
                del self._watching[member]
            del self._at_broker[broker][signal]
            if not self._at_broker[broker]:
                del self._at_broker[broker]
            self._fetched(at, MemberId(member_id))

    def _fetched(self, at: _Place, member_id: MemberId) -> None:
        fetching = self._fetching[at]
        fetching[member_id] -= 1
        if not fetching[member_id]:
            del fetching[member_id]
            if not fetching:
                del self._fetching[at]

    def waiting(self, group: str, broker: int) -> frozenset[MemberId]:
        """The members whose fetches from this virtual broker are not answered yet."""
        return frozenset(self._fetching.get((group, broker), ()))

    def awaited(self, group: str, broker: int) -> bool:
        """Whether a fetch from this virtual broker is not answered yet."""
        return (group, broker) in self._fetching

    def wake_at(self, brokers: Collection[int]) -> int:
        """Fetches from these virtual brokers look again: they have other owners. Returns how many
        there are.
        """
        signals = [ready for broker in brokers for ready in self._at_broker.get(broker, ())]
        for signal in signals:
            signal.set()
        return len(signals)

    def wake(self, group: str, members: list[str]) -> None:
        for member_id in members:
            for signal in self._watching.get((group, member_id), ()):
                signal.set()
