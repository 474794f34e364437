"""The commits of one window to Kafka: the state that Kafka has, and the one that may follow.

A state may be committed once it is in the store, so it is captured with a write and offered when
that is persisted. A version, which grows with every event, says cheaply whether there can be
anything to commit: a window in which nothing happens is not asked for its state.

Kafka forgets an offset some time after its last commit (offsets.retention.minutes), although the
group is at work. So a state that Kafka took long ago is offered again, also if it is the same.

Kafka's offset is not the window's alone: `alone` says whether somebody else may have set it.
"""

from __future__ import annotations

from typing import Final

from dispatcher.core.life.commands import CommitState

UNKNOWN: Final = -1  # the version of no window


class Capture:
    """The state of a window, and its version then."""

    def __init__(self, state: CommitState, version: int) -> None:
        self.state = state
        self.version = version

    def __repr__(self) -> str:
        return f"<{self.state!r} version={self.version}>"


class Commits:
    def __init__(self) -> None:
        self.wanted = False  # the next write captures a state
        self.alone = False  # nobody else can have committed since Kafka took the last state
        self._committed: CommitState | None = None  # the last state that Kafka took
        self._taken_ms: int  # when Kafka took it
        self._version = UNKNOWN  # of the newest state that Kafka is known to have
        self._offered: Capture | None = None
        self._taken: Capture | None = None  # on its way to Kafka

    def due(self, version: int) -> bool:
        """Whether something has happened up to `version` that Kafka may not know of."""
        return version != self._version

    def offer(self, capture: Capture) -> None:
        """A state that is in the store."""
        self._offered = capture

    @property
    def offers(self) -> bool:
        return self._offered is not None

    def take(self, again_before_ms: int = 0) -> CommitState | None:
        """None: nothing to commit; the state is the one that Kafka took, at `again_before_ms` or
        later. Otherwise `taken` or `failed` must follow.
        """
        capture, self._offered = self._offered, None
        if capture is None:
            return None
        if capture.state == self._committed and self._taken_ms >= again_before_ms:
            self._version = capture.version
            return None
        self._taken = capture
        return capture.state

    def taken(self, state: CommitState, now_ms: int, *, alone: bool) -> None:
        """Kafka has it."""
        self._committed, self._taken_ms = state, now_ms
        if self._taken is not None and self._taken.state is state:
            self._version = self._taken.version
        self._taken = None
        self.alone = alone

    def failed(self) -> None:
        """Kafka may have it nevertheless, and others may have come before the next one."""
        self._taken = None
        self._version = UNKNOWN
        self.alone = False

    def lacks(self, state: CommitState) -> bool:
        """Kafka is not known to have it."""
        return self._committed != state

    def forget(self) -> None:
        """The window is not up any more: it has nothing to commit."""
        self.wanted = False
        self._offered = None
