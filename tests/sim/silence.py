"""Hung consumers, judged from outside: nobody at work is called silent, and the keys of a hung
consumer are delivered to others within a bound.
"""

from __future__ import annotations

from collections.abc import Iterable

from dispatcher.core.model import Member
from dispatcher.core.routing.ring import Router
from dispatcher.core.routing.silence import HEARD_MS

LOOKED_MS = 2_000  # ticks and looks from outside, some of each


class Silence:
    """Of one window."""

    def __init__(self) -> None:
        self.silent: dict[str, None] = {}  # as the window has said
        self.takers = Router(())
        self._heard_ms: dict[str, int] = {}
        self._free_ms: dict[int, int] = {}  # since when nobody has taken the record

    def rebuilt(self) -> None:
        """Another core, which knows of no silence."""
        self.silent.clear()
        self._heard_ms.clear()
        self._free_ms.clear()

    def changed(self, members: Iterable[Member], now_ms: int) -> None:
        there = [str(member.member_id) for member in members]
        self.silent = {name: None for name in self.silent if name in there}
        self._heard_ms = {name: self._heard_ms.get(name, now_ms) for name in there}
        self._choose(members)

    def heard(self, name: str, now_ms: int) -> None:
        if name in self._heard_ms:
            self._heard_ms[name] = now_ms

    def fell_silent(
        self, name: str, members: Iterable[Member], lock_ms: int, now_ms: int
    ) -> str | None:
        """What is wrong about that."""
        self.silent[name] = None
        self._choose(members)
        quiet_ms = now_ms - self._heard_ms.get(name, 0)
        return f"{name} was heard {quiet_ms} ms ago" if quiet_ms < min(lock_ms, HEARD_MS) else None

    def heard_again(self, name: str, members: Iterable[Member]) -> str | None:
        if name not in self.silent:
            return f"{name} was not silent"
        del self.silent[name]
        self._choose(members)
        return None

    def _choose(self, members: Iterable[Member]) -> None:
        self.takers = Router(
            tuple(member for member in members if str(member.member_id) not in self.silent)
        )

    def kept_too_long(
        self,
        free: Iterable[int],
        members: Iterable[Member],
        idle: set[str],
        lock_ms: int,
        now_ms: int,
    ) -> int | None:
        """Of the `free` records, which the `idle` members accept and wait for, one that is kept
        for a hung member. Says nothing while a third one is there, neither idle nor hung.
        """
        bound_ms = lock_ms + HEARD_MS + LOOKED_MS
        others = {str(member.member_id) for member in members} - idle
        hung = all(now_ms - self._heard_ms.get(name, now_ms) >= bound_ms for name in others)
        self._free_ms = {offset: self._free_ms.get(offset, now_ms) for offset in free}
        if not hung or not others:
            return None
        for offset, since_ms in self._free_ms.items():
            if now_ms - since_ms >= bound_ms:
                return offset
        return None
