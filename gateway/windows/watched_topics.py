"""The topics that upstream is asked about, as long as somebody has a use for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Protocol


class TopicsView(Protocol):
    """gateway/upstream/cluster.py."""

    @property
    def watched(self) -> Collection[str]: ...
    def watch(self, topics: Iterable[str]) -> None: ...
    def unwatch(self, topics: Iterable[str]) -> None: ...


@dataclass(slots=True)
class WatchedTopics:
    upstream: TopicsView
    asked_for: set[str] = field(default_factory=set)  # topics whose lag is shown (operations)
    _unused: set[str] = field(default_factory=set)  # nobody had a use for them at the last sweep
    _on_unused: list[Callable[[Collection[str]], None]] = field(default_factory=list)

    def on_unused(self, callback: Callable[[Collection[str]], None]) -> None:
        """`callback` is called with topics that nobody has a use for any more."""
        self._on_unused.append(callback)

    def sweep(self, used: Iterable[str]) -> None:
        """Clients may name topics that do not exist, or leave. A topic that nobody used at two
        sweeps in a row is no longer asked about; a join between them has its time.
        """
        unused = set(self.upstream.watched) - self.asked_for - set(used)
        gone = sorted(unused & self._unused)
        self.upstream.unwatch(gone)
        self._unused = unused
        for callback in self._on_unused:
            callback(gone)
