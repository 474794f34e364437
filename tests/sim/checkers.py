"""What must hold, judged from outside: from what consumers were sent and told, and what was
persisted.

Nothing here asks the dispatcher. A settled offset needs a cause that the outside knows (`settled`),
a delivery needs its key to be free (`delivered`), an accepted acknowledgement needs a holder
(`acknowledged`).
"""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.core.glob import accepts
from dispatcher.core.model import (
    AckError,
    AckType,
    BitsSet,
    Change,
    CursorMoved,
    Delivered,
    EvictPolicy,
    JoinPolicy,
    Key,
    LeaseTaken,
    Member,
    PoisonPolicy,
    Policy,
    Reason,
    Snapshot,
)
from tests.sim.upstream import Log


class CheckFailure(AssertionError):
    """`checker` names the rule that was broken."""

    def __init__(self, checker: str, what: str) -> None:
        super().__init__(f"{checker}: {what}")
        self.checker = checker


@dataclass(slots=True)
class Hold:
    """A record in a consumer's hands, as the consumer may believe."""

    offset: int
    key: Key
    member: str
    session: str
    until_ms: int
    expired: bool = False  # nobody may rely on it; an acknowledgement of it may still be taken

    @property
    def place(self) -> tuple[str, str]:
        return (self.member, self.session)


class Checkers:
    def __init__(self, policy: Policy, log: Log) -> None:
        self.policy = policy
        self.log = log
        self.holds: dict[int, Hold] = {}
        self.settled: set[int] = set()  # persisted
        self.cursor = 0
        self.causes: dict[int, str] = {}  # why an offset may be settled
        self.deliveries: dict[int, int] = {}  # persisted leases
        self.failed: dict[int, bool] = {}  # given back and not settled since
        self.members: tuple[Member, ...] = ()
        self.delivered_count = 0
        self.not_before_ms: dict[int, int] = {}  # back-off of what was released
        self.lost_sessions: set[str] = set()
        self.opened_last: dict[str, str] = {}  # member -> session
        # Who joined others in this life of the core: the least and the most that the last sent
        # position can have been. They differ where records left the log meanwhile.
        self.joined: dict[str, tuple[int, int]] = {}

    # ---------------------------------------------------------------------------- what is persisted

    def persisted(self, changes: list[Change], *, acquired: bool) -> None:
        for change in changes:
            if isinstance(change, LeaseTaken) and acquired:
                for offset in change.offsets:
                    self.deliveries[offset] = self.deliveries.get(offset, 0) + 1
            elif isinstance(change, BitsSet):
                for offset in offsets_of(change):
                    self._settle(offset)
            elif isinstance(change, CursorMoved):
                if change.cursor < self.cursor:
                    raise CheckFailure("CursorMovesForward", f"{self.cursor} to {change.cursor}")
                for offset in range(self.cursor, change.cursor):
                    self._settle(offset)
                self.cursor = change.cursor

    def _settle(self, offset: int) -> None:
        if offset in self.settled:
            return
        if offset in self.log.records and offset not in self.causes:
            cause = self._natural_cause(offset)
            if not cause:
                raise CheckFailure("NothingLost", f"{offset} is settled without a cause")
            self.causes[offset] = cause
        self.settled.add(offset)
        self.failed.pop(offset, None)
        self.holds.pop(offset, None)

    def _natural_cause(self, offset: int) -> str:
        key = self.log.records[offset]
        if self.members and not any(accepts(member.filters, key) for member in self.members):
            return "skipped"
        spent = self.deliveries.get(offset, 0) >= self.policy.deliveries_max
        if self.policy.poison is PoisonPolicy.DROP and spent:
            return "dropped"
        if self.policy.on_evict is EvictPolicy.ACK and offset in self.deliveries:
            return "evicted"  # Perhaps without ever having arrived: at most once.
        return ""

    def committed(self, cursor: int, ranges: list[tuple[int, int]]) -> None:
        """To Kafka."""
        for offset in self.log.records:
            settled = offset < cursor or any(low <= offset <= high for low, high in ranges)
            if settled and offset not in self.causes:
                raise CheckFailure("CursorNeverPassesUnsettled", f"{offset} is committed")

    def regressed(self, snapshot: Snapshot) -> None:
        """The store was lost: the commit in Kafka is what is known. Nobody holds anything."""
        self.cursor = snapshot.cursor
        known = set(range(snapshot.cursor))
        for low, high in snapshot.settled:
            known.update(range(low, high + 1))
        self.settled &= known
        self.causes = {o: cause for o, cause in self.causes.items() if o in known}
        self.deliveries.clear()
        self.failed.clear()
        self.not_before_ms.clear()
        self.holds.clear()

    # ---------------------------------------------------------------------------- what is delivered

    def delivered(self, effect: Delivered, now_ms: int) -> None:
        if len(effect.offsets) != len(effect.attempts):
            raise CheckFailure("Delivery", "columns of unequal length")
        if effect.offsets != sorted(set(effect.offsets)):
            raise CheckFailure("Delivery", f"not ascending: {effect.offsets}")
        held = sum(
            hold.member == effect.member_id and not hold.expired for hold in self.holds.values()
        )
        if held + len(effect.offsets) > self.policy.in_flight_per_member_max:
            raise CheckFailure("BoundedMemory", f"{effect.member_id} holds {held} and gets more")
        self._check_joined(effect)
        for offset, attempt in zip(effect.offsets, effect.attempts, strict=True):
            self._delivered(offset, attempt, effect, now_ms)

    def _check_joined(self, effect: Delivered) -> None:
        """PIP-282: nothing behind where it joined before the cursor has passed that."""
        if self.policy.join_policy is not JoinPolicy.LAST_SENT or not effect.offsets:
            return
        least, most = self.joined.get(effect.member_id, (-1, -1))
        if self.cursor <= least and effect.offsets[-1] > most:
            what = f"{effect.offsets} to {effect.member_id}, which joined behind {most}"
            raise CheckFailure("LastSent", f"{what}; the cursor is {self.cursor}")

    def _last_sent(self, *, gone_are_sent: bool) -> int:
        for offset in range(self.cursor, self.log.end):
            known = offset in self.settled or offset in self.deliveries
            gone = offset in self.log.gone and not gone_are_sent
            if not known and (gone or offset in self.log.records):
                return offset - 1
        return self.log.end - 1

    def rebuilt(self) -> None:
        """Whoever the core finds now was there first."""
        self.joined.clear()
        self.present: frozenset[str] = frozenset()

    def _joins(self, members: tuple[Member, ...]) -> None:
        there = frozenset(str(member.member_id) for member in members)
        self.joined = {name: at for name, at in self.joined.items() if name in there}
        if self.present:
            position = (self._last_sent(gone_are_sent=False), self._last_sent(gone_are_sent=True))
            self.joined |= dict.fromkeys(there - self.present, position)
        if len(there) == 1:
            self.joined.clear()
        self.present = there

    def never_arrived(self, effect: Delivered) -> None:
        """Leased, and lost on the way: nobody relies on it, its holder may still speak of it."""
        for offset in effect.offsets:
            self._check_free(offset)
            self.holds[offset] = Hold(
                offset=offset,
                key=self.log.records.get(offset),
                member=effect.member_id,
                session=effect.session_id,
                until_ms=effect.deadline_ms,
                expired=True,
            )

    def _check_free(self, offset: int) -> None:
        if offset in self.holds and not self.holds[offset].expired:
            raise CheckFailure("OneOwnerPerKey", f"{offset} is still with {self.holds[offset]}")

    def _delivered(self, offset: int, attempt: int, effect: Delivered, now_ms: int) -> None:
        if offset in self.log.gone:
            return  # Taken from the log after it was read: its key is unknown here.
        if offset not in self.log.records:
            raise CheckFailure("Delivery", f"{offset} does not exist")
        key = self.log.records[offset]
        if offset in self.settled:
            raise CheckFailure("NoSettledDelivery", f"{offset} was settled: {self.causes}")
        if self.policy.prefetch_per_key == 1 and attempt != self.deliveries.get(offset, 0):
            raise CheckFailure("Attempts", f"{offset}: {attempt}, not {self.deliveries}")
        self._check_free(offset)
        not_before_ms = self.not_before_ms.pop(offset, 0)
        if self.policy.prefetch_per_key == 1 and now_ms < not_before_ms:
            raise CheckFailure("BackOff", f"{offset} {not_before_ms - now_ms} ms early")
        mine = Hold(
            offset=offset,
            key=key,
            member=effect.member_id,
            session=effect.session_id,
            until_ms=effect.deadline_ms,
        )
        if key is not None:
            self._check_order(mine)
            self._check_owner(mine)
        self.holds[offset] = mine
        self.delivered_count += 1
        if now_ms > effect.deadline_ms:
            raise CheckFailure("Delivery", "the lock was over before it began")

    def _check_order(self, mine: Hold) -> None:
        earlier = [
            o
            for o in self.log.of_key[mine.key]
            if o < mine.offset and o in self.log.records and o not in self.settled
        ]
        if len(earlier) >= self.policy.prefetch_per_key:
            raise CheckFailure("PerKeyOrder", f"{mine.offset} before {earlier} of {mine.key!r}")
        for offset in earlier:
            hold = self.holds.get(offset)
            if hold is None or hold.place != mine.place:
                raise CheckFailure("PerKeyOrder", f"{mine.offset} before {offset}, held {hold}")
            if offset in self.failed:
                raise CheckFailure("PerKeyOrder", f"{mine.offset} behind {offset}, which failed")

    def _check_owner(self, mine: Hold) -> None:
        for hold in self.holds.values():
            if hold.key == mine.key and hold.member != mine.member and not hold.expired:
                raise CheckFailure("OneOwnerPerKey", f"{mine} while {hold}")

    # ------------------------------------------------------------------------- what ends a delivery

    def acknowledging(
        self,
        member: str,
        session: str,
        batches: list[tuple[int, int, bytes]],
        errors: list[AckError | None],
        now_ms: int,
    ) -> None:
        for (first, last, types), error in zip(batches, errors, strict=True):
            kinds = types * (last - first + 1) if len(types) == 1 else types
            pairs = list(zip(range(first, last + 1), kinds, strict=True))
            if error is None:
                for offset, kind in pairs:
                    self._accepted(offset, AckType(kind), member, session, now_ms)
            elif error is AckError.INVALID_RECORD_STATE and all(
                self._must_take(offset, member, session) for offset, _ in pairs
            ):
                raise CheckFailure("AckFencing", f"{first}-{last} of {member}/{session} refused")

    def _must_take(self, offset: int, member: str, session: str) -> bool:
        hold = self.holds.get(offset)
        return hold is not None and not hold.expired and hold.place == (member, session)

    def _may_take(self, offset: int, member: str, session: str) -> bool:
        """Its own, or left behind by an earlier session of the member, in the one opened last."""
        hold = self.holds.get(offset)
        if hold is None or hold.member != member:
            return False
        return hold.session == session or self.opened_last.get(member) == session

    def _accepted(self, offset: int, kind: AckType, member: str, session: str, now_ms: int) -> None:
        if not self._may_take(offset, member, session):
            harmless = kind is AckType.GAP and (
                offset not in self.log.records or offset in self.causes
            )
            if not harmless and offset not in self.log.gone:
                raise CheckFailure("AckFencing", f"{kind.name} of {offset} by {member}/{session}")
            return
        if kind is AckType.RENEW:
            return
        hold = self.holds[offset]
        del self.holds[offset]
        if kind is AckType.ACCEPT:
            self.causes.setdefault(offset, "accepted")
            self._check_first(hold)
        elif kind is AckType.REJECT and self.policy.poison is PoisonPolicy.DROP:
            self.causes.setdefault(offset, "rejected")
        else:
            self.failed[offset] = True
            if kind is not AckType.REJECT:
                failures = self.deliveries.get(offset, 0)
                wait_ms = self.policy.backoff_base_ms * 2 ** max(0, failures - 1)
                self.not_before_ms[offset] = now_ms + min(wait_ms, self.policy.backoff_max_ms)

    def _check_first(self, hold: Hold) -> None:
        """Successful work on a key is in order; with prefetch the consumer answers for it."""
        if hold.key is None or self.policy.prefetch_per_key > 1:
            return
        for offset in self.log.of_key[hold.key]:
            if offset >= hold.offset:
                return
            if offset in self.log.records and offset not in self.causes:
                raise CheckFailure("PerKeyOrder", f"{hold.offset} accepted before {offset}")

    def not_sent(self, offsets: list[int], member: str, session: str) -> None:
        """The shell could not read them: no delivery, as if they had never been acquired."""
        for offset in offsets:
            hold = self.holds.get(offset)
            if hold is not None and hold.place == (member, session):
                del self.holds[offset]
                self.failed[offset] = True
                self.deliveries[offset] -= 1

    def renewed(self, offset: int, deadline_ms: int) -> None:
        if offset in self.holds:
            self.holds[offset].until_ms = deadline_ms

    def forget_holds(self, member: str, session: str | None = None, *, evicted: bool) -> None:
        """The member or its session is gone, as it was told: nobody may rely on these any more."""
        for hold in list(self.holds.values()):
            if hold.member == member and session in (None, hold.session):
                self._end(hold, evicted=evicted)

    def lost(self, member: str, session: str, until_ms: int) -> None:
        self.lost_sessions.add(session)
        for hold in self.holds.values():
            if hold.place == (member, session):
                hold.until_ms = min(hold.until_ms, until_ms)

    def opened(self, member: str, session: str, until_ms: int) -> None:
        self.opened_last[member] = session
        for hold in list(self.holds.values()):
            if hold.member == member and hold.session != session:
                self.lost(member, hold.session, until_ms)

    def members_changed(self, members: tuple[Member, ...], reason: Reason, until_ms: int) -> None:
        """Who left has given everything back, or does so at the end of the grace: a core that was
        rebuilt meanwhile has never seen it."""
        self._joins(members)
        gone = {m.member_id for m in self.members} - {m.member_id for m in members}
        self.members = members
        for hold in self.holds.values():
            if hold.member in gone:
                hold.expired = True
                hold.until_ms = min(hold.until_ms, until_ms)
                self.failed[hold.offset] = True
                if reason is Reason.MEMBER_EVICTED and self.policy.on_evict is EvictPolicy.ACK:
                    self.causes.setdefault(hold.offset, "evicted")

    def expired(self, now_ms: int) -> None:
        """The watchdog ticked: what is past its lock is not held."""
        for hold in self.holds.values():
            if hold.until_ms <= now_ms and not hold.expired:
                hold.expired = True
                self.failed[hold.offset] = True
                if self.policy.on_evict is EvictPolicy.ACK and hold.session in self.lost_sessions:
                    self.causes.setdefault(hold.offset, "evicted")

    def _end(self, hold: Hold, *, evicted: bool) -> None:
        del self.holds[hold.offset]
        self.failed[hold.offset] = True
        if evicted and self.policy.on_evict is EvictPolicy.ACK:
            self.causes.setdefault(hold.offset, "evicted")

    # --------------------------------------------------------------------------------- other causes

    def operator_retries(self, offset: int) -> None:
        self.not_before_ms.pop(offset, None)

    def cause(self, offset: int, why: str) -> None:
        self.causes.setdefault(offset, why)


def offsets_of(change: BitsSet) -> list[int]:
    base = change.chunk * 65_536 + change.byte_at * 8
    return [
        base + index * 8 + bit
        for index, value in enumerate(change.data)
        for bit in range(8)
        if value >> bit & 1
    ]
