"""The windows that a RedisStore has claimed, and the numbers of the steps it sends for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from dispatcher.store.base import Fence, WindowKey, Write
from dispatcher.store.operations import Argument, Kept, operations

GONE: Final = -1  # answers of window.lua
FENCED: Final = -2


class Claim:
    """`seq`: of the last step that Redis confirmed, 0 after a claim of an unknown window; `kept`:
    as of that step; `name`: of the window in Redis.
    """

    def __init__(self, fence: Fence, seq: int, kept: Kept, name: bytes) -> None:
        self.fence = fence
        self.seq = seq
        self.kept = kept
        self.name = name


class Claims:
    """`name_of`: a window that is not claimed, in Redis."""

    def __init__(self, name_of: Callable[[WindowKey], bytes]) -> None:
        self.by_key: dict[WindowKey, Claim] = {}
        self._name_of = name_of
        self._sends = 0  # of steps, to all windows

    def steps(
        self, writes: Sequence[Write]
    ) -> tuple[list[bytes], list[list[Argument]], list[Kept | None]]:
        """Names, arguments of `apply` in window.lua, and the states after them.

        Several writes to one window in one call: each expects the one before it, so that none is
        applied over a gap if others fail. A write without a claim is sent all the same, with
        nothing to apply: Redis knows whether the window is another's, or gone.
        """
        earlier: dict[WindowKey, tuple[int, Kept]] = {}
        names: list[bytes] = []
        steps: list[list[Argument]] = []
        states: list[Kept | None] = []
        for write in writes:
            key = write.key
            fence = write.fence
            claim = self.by_key.get(key)
            self._sends += 1
            if claim is None or claim.fence != fence:
                names.append(self._name_of(key) if claim is None else claim.name)
                steps.append([fence, 0, self._sends])
                states.append(None)
                continue
            seq, kept = claim.seq, claim.kept
            if key in earlier:
                seq, kept = earlier[key]
            words, kept = operations(write.changes, kept)
            earlier[key] = seq + 1, kept
            names.append(claim.name)
            state = b"%d %d %b" % (seq + 1, self._sends, kept.words())
            step: list[Argument] = [fence, seq, self._sends, state]
            step += words
            steps.append(step)
            states.append(kept)
        return names, steps, states

    def confirmed(self, write: Write, answer: object, kept: Kept | None) -> bool:
        """Whether Redis has applied the step; then its number and state are noted."""
        if not isinstance(answer, int) or answer <= 0:
            return False
        claim = self.by_key.get(write.key)
        if claim is not None and claim.fence == write.fence and kept is not None:
            claim.seq = answer
            claim.kept = kept
        return True
