"""The committed offset of one window in the simulated Kafka: written by the node, or for a group
without members by somebody else, as after a fail-over to another cluster and back.
"""

from __future__ import annotations

from random import Random

from dispatcher.core.epochs import NOT_KNOWN, Epochs, last_epoch
from dispatcher.core.life.commands import CommitState
from dispatcher.core.model import Policy
from dispatcher.core.steps import Snapshot
from dispatcher.core.stored.reconcile import overtakes, reconciled
from dispatcher.store.base import Claimed
from keyway.commit_metadata.core.bitmap import united
from keyway.commit_metadata.core.metadata import encode, read, read_times
from tests.sim.checkers import Checkers, CheckFailure
from tests.sim.filed import settled_of
from tests.sim.upstream import Log


class CommittedOffset:
    def __init__(self, *, of_before: bool = False) -> None:
        """`of_before`: by a version that names the last leader epoch alone."""
        self._of_before = of_before
        self.offset = 0
        self.metadata = encode(0, [])
        self.elsewhere: Snapshot | None = None  # set by somebody else, and not taken up yet
        self.taken = Snapshot(0)  # the last one that was taken up: it names no epochs

    @property
    def origin(self) -> int:
        return read_times(self.offset, self.metadata).origin

    @property
    def snapshot(self) -> Snapshot:
        told = read(self.offset, self.metadata)
        return Snapshot(self.offset, told.settled or [], epochs=told.epochs)

    def reconciled(self, claimed: Claimed, *, reliable: bool) -> Snapshot:
        """As gateway/windows/loading.py."""
        if claimed.snapshot is None:
            return self.snapshot
        if not reliable:
            return claimed.snapshot
        return reconciled(claimed.snapshot, claimed.origin, self.snapshot, self.origin)

    def overtakes(self, state: CommitState) -> bool:
        """As gateway/windows/committing.py."""
        return overtakes(self.origin, state.origin)

    def write(self, state: CommitState) -> None:
        if self.elsewhere is not None:
            raise CheckFailure("PositionSetElsewhere", f"{state} is written over {self.elsewhere}")
        self._set(state.cursor, state.settled, state.origin, state.epochs)

    def _set(
        self, offset: int, settled: list[tuple[int, int]], origin: int, epochs: Epochs = ()
    ) -> None:
        self.offset = offset
        if self._of_before and epochs:
            epochs = ((last_epoch(epochs), NOT_KNOWN),)
        self.metadata = encode(offset, settled, origin=origin, epochs=epochs)

    def set_elsewhere(self, log: Log, rng: Random, policy: Policy, origin: int) -> None:
        """`origin`: the latest before. The clock of its setter may be ahead."""
        position = rng.randint(log.start, log.end)
        end = min(log.end, position + min(policy.span_max, policy.window_records or log.end))
        settled = united([(o, o) for o in range(position + 1, end) if rng.random() < 0.3])
        self._set(position, settled, max(origin, self.origin) + rng.randint(1, 20))
        self.elsewhere = Snapshot(position, settled)

    def taken_up(self, loaded: Snapshot, checkers: Checkers) -> bool:
        """A window was loaded; whether it goes on from a position that was set elsewhere. It must,
        if there is one.
        """
        elsewhere, self.elsewhere = self.elsewhere, None
        if elsewhere is None:
            return False
        if loaded != elsewhere:
            raise CheckFailure("PositionSetElsewhere", f"{loaded} instead of {elsewhere}")
        self.taken = elsewhere
        checkers.regressed(elsewhere)
        checkers.settled = settled_of(elsewhere)
        for offset in checkers.settled:
            checkers.causes.setdefault(offset, "settled elsewhere")
            checkers.ended.add((offset, checkers.log.known_epoch_at(offset)))
        return True

    def taken_again(self, committed: Snapshot, checkers: Checkers) -> None:
        """The store is lost, and Kafka has the position that was taken up as it was set. It names
        no epochs: if the log has lost its records since, it is believed about others.
        """
        if committed == self.taken:
            for offset in settled_of(committed):
                checkers.settled.add(offset)
                checkers.causes.setdefault(offset, "settled elsewhere")
