"""The rules of an unreliable group, judged from outside: nothing stored, the records of a key
handed out in order to members that take them, nothing sent again that was committed as sent, and
every record sent, skipped, gone from the log or counted as dropped.
"""

from __future__ import annotations

from dispatcher.core.model import (
    AckError,
    Acknowledge,
    AckType,
    Event,
    Key,
    Member,
    MembersChanged,
    NotSent,
    Policy,
)
from dispatcher.core.routing.glob import accepts
from dispatcher.core.steps import AckResult, Delivered, Notice, Noticed, Snapshot, Step
from tests.sim.checkers import CheckFailure
from tests.sim.upstream import Log

# The outcomes of records that were not sent.
_COUNTED = (Notice.UNDELIVERED, Notice.SKIPPED, Notice.TRUNCATED)


class UnreliableChecker:
    def __init__(self, policy: Policy, log: Log) -> None:
        self.policy = policy
        self.log = log
        self.members: tuple[Member, ...] = ()
        self.rebuilt(Snapshot(cursor=0))

    def rebuilt(self, snapshot: Snapshot) -> None:
        """Another life of the core: it knows the commit, and nothing else."""
        self.start = snapshot.cursor
        self.committed = {o for low, high in snapshot.settled for o in range(low, high + 1)}
        self.sent: set[int] = set()
        self.last_of_key: dict[Key, int] = {}
        self.counted = 0

    def judge(self, event: Event, step: Step, *, told: bool) -> None:
        """A step, in their order; not `told`: its answers were lost."""
        if step.changes:
            raise CheckFailure("NothingStored", f"{step.changes}")
        if isinstance(event, MembersChanged):
            self.members = event.members
        for effect in step.effects:
            if isinstance(effect, Delivered):
                self._delivered(effect, told=told)
            elif isinstance(effect, AckResult):
                assert isinstance(event, Acknowledge)
                self._answered(event, effect)
            elif isinstance(effect, Noticed) and effect.notice in _COUNTED:
                self.counted += effect.count
        if isinstance(event, NotSent):
            self._not_sent(event.offsets)

    def _delivered(self, effect: Delivered, *, told: bool) -> None:
        if effect.offsets != sorted(set(effect.offsets)):
            raise CheckFailure("Delivery", f"not ascending: {effect.offsets}")
        if effect.attempts != [1] * len(effect.offsets):
            raise CheckFailure("Attempts", f"{effect.attempts}")
        for offset in effect.offsets:
            if offset < self.start or offset in self.committed or offset in self.sent:
                raise CheckFailure("AtMostOnce", f"{offset} again (told={told})")
            self.sent.add(offset)
            if offset not in self.log.records:
                continue  # Taken from the log after it was read: its key is unknown here.
            key = self.log.records[offset]
            if key is not None and self.last_of_key.get(key, -1) > offset:
                raise CheckFailure("PerKeyOrder", f"{offset} behind {self.last_of_key[key]}")
            self.last_of_key[key] = offset
            (owner,) = [m for m in self.members if m.member_id == effect.member_id]
            if not accepts(owner.filters, key):
                raise CheckFailure("Filters", f"{offset} of {key!r} to {owner}")

    def _not_sent(self, offsets: list[int]) -> None:
        """Of each of their keys the last one that was sent is another now."""
        self.sent.difference_update(offsets)
        keys = {self.log.records.get(offset) for offset in offsets} - {None}
        for key in keys:
            self.last_of_key.pop(key, None)
        for offset in sorted(self.sent):
            if (key := self.log.records.get(offset)) in keys:
                self.last_of_key[key] = offset

    def _answered(self, event: Acknowledge, result: AckResult) -> None:
        for (first, last, types), error in zip(event.batches, result.errors, strict=True):
            sound = 0 <= first <= last and len(types) in (1, last - first + 1)
            expected = None if sound and max(types) <= AckType.RENEW else AckError.INVALID_REQUEST
            if error is not expected:
                raise CheckFailure("AckFencing", f"{first}-{last}: {error}")

    def may_be_cursor(self, offset: int) -> bool:
        """Whether all before it was handed out or dropped, and it was not handed out."""
        known = self.sent | self.committed
        left = [o for o in self.log.records if self.start <= o < offset and o not in known]
        return offset not in known and len(left) <= self.counted

    def at_end(self) -> None:
        """Everything was read: every record that was not sent is counted."""
        known = self.sent | self.committed
        missing = [o for o in self.log.records if o >= self.start and o not in known]
        if len(missing) > self.counted:
            raise CheckFailure("Counted", f"{missing} are missing, {self.counted} were counted")
        if not self.log.gone and len(missing) != self.counted:
            raise CheckFailure("Counted", f"{len(missing)} are missing, not {self.counted}")
