"""The rules, judged from outside: from the records and answers that consumers got, and from
persisted state.

Nothing here asks the dispatcher. A settled offset needs a cause that the outside knows (`causes`),
a delivery needs its key to be free (`delivered`), an accepted acknowledgement needs a holder
(`acknowledging`), and a record that is certainly free for a member must not be kept from it
(due.py). All but that last one costs the same for any length of the log.
"""

from __future__ import annotations

from dispatcher.core.model import (
    AckError,
    AckType,
    EvictPolicy,
    JoinPolicy,
    Member,
    NotSent,
    PoisonPolicy,
    Policy,
    Reason,
    RecordsRead,
)
from dispatcher.core.routing.ring import Router
from dispatcher.core.steps import (
    BitsSet,
    Change,
    CursorMoved,
    Delivered,
    LeaseTaken,
    Notice,
    RetryNoted,
    Snapshot,
)
from tests.sim.causes import natural_cause
from tests.sim.filed import Filed, filed, held_back, offsets_of, settled_of
from tests.sim.holds import Hold, Holds
from tests.sim.passed import Passed
from tests.sim.silence import Silence
from tests.sim.upstream import Log

NOW = 0  # a record that was given back may go out at once
UNKNOWN = None  # … or not before something happens that the outside cannot date
ANYWHERE = (-1, -1)  # where a member joined is not known


class CheckFailure(AssertionError):
    """`checker` names the rule that was broken."""

    def __init__(self, checker: str, what: str) -> None:
        super().__init__(f"{checker}: {what}")


# Long: every rule is judged by the same few facts about each offset.
class Checkers:
    def __init__(self, policy: Policy, log: Log) -> None:
        self.policy = policy
        self.log = log
        self.holds = Holds()
        self.settled: set[int] = set()  # persisted
        self.cursor = 0
        self.passed = Passed(0, 0, set())
        self.causes: dict[int, str] = {}  # why an offset may be settled
        self.ended: set[tuple[int, int]] = set()  # for good: offsets and epochs of such records
        self.deliveries: dict[int, int] = {}  # persisted leases
        # Given back and not settled since: when it may certainly go out again.
        self.failed: dict[int, int | None] = {}
        self.members: tuple[Member, ...] = ()
        self.members_before: tuple[Member, ...] = ()  # this step
        self.awaited: tuple[Member, ...] = ()  # nothing that they accept is skipped
        self.router, self.delivered_count = Router(()), 0
        self.not_before_ms: dict[int, int] = {}  # back-off of released records
        self.lost_sessions: set[str] = set()
        self.opened_last: dict[str, str] = {}  # member -> session
        self.life = 0  # of the core
        self.read_to = 0  # this life of the core has read up to here for certain
        # Members that joined others in this life: the bounds of the last sent position then.
        self.joined: dict[str, tuple[int, int]] = {}
        self._present: frozenset[str] = frozenset()
        self._committed_to = 0  # below it every record was seen to have a cause
        self._settled_of_key: dict[bytes, int] = {}  # how many of a key's records, from its first
        self.file, self.silence = Filed(), Silence()

    # ---------------------------------------------------------------------------- persisted changes

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
                self.cursor = change.cursor
        for offset in self.passed.settled_by(changes):
            self._settle(offset)
        self.members_before = self.members

    def _settle(self, offset: int) -> None:
        if offset in self.settled:
            return
        if offset in self.log.records and offset not in self.causes:
            if not (cause := natural_cause(self, offset)):
                raise CheckFailure("NothingLost", f"{offset} is settled without a cause")
            self.causes[offset] = cause
        if offset in self.causes:
            self.ended.add((offset, self.log.known_epoch_at(offset)))
        self.settled.add(offset)
        self.failed.pop(offset, None)
        self.holds.end(offset, lost=offset in self.log.gone and offset not in self.causes)

    def committed(self, cursor: int, ranges: list[tuple[int, int]]) -> None:
        """To Kafka."""
        for low, high in [(self._committed_to, cursor - 1), *ranges]:
            for offset in range(low, high + 1):
                if offset in self.log.records and offset not in self.causes:
                    raise CheckFailure("CursorNeverPassesUnsettled", f"{offset} is committed")
        self._committed_to = max(self._committed_to, cursor)

    def regressed(self, snapshot: Snapshot) -> None:
        """The store was lost: only the commit in Kafka is known. Nobody holds anything."""
        self.cursor, known = snapshot.cursor, settled_of(snapshot)
        self.settled &= known
        self.causes = {o: cause for o, cause in self.causes.items() if o in known}
        self.deliveries.clear()
        self.failed.clear()
        self.not_before_ms.clear()
        self.holds.clear()
        self.back_to(snapshot.cursor)

    def back_to(self, position: int) -> None:
        self._committed_to = min(self._committed_to, position)
        self._settled_of_key.clear()

    def retuned(self, policy: Policy) -> None:
        if policy.join_policy is not self.policy.join_policy:
            self.joined.clear()
        self.policy = policy

    def write_file(self) -> None:
        end = self.log.window_end()
        self.file = filed(self.settled, self.causes, self.deliveries, self.holds, end)

    def set_back(self, snapshot: Snapshot, committed: Snapshot, kept_to: int) -> None:
        """The store came back with its file: only that and the commit are known, up to `kept_to`:
        of what is behind it the window takes all for lost, also if the log has it again.
        """
        known = settled_of(snapshot)
        kept = [offset for offset in self.log.records if offset < kept_to]
        if wrong := self.file.not_the_union(kept, known, committed):
            raise CheckFailure("SettledIsTheUnion", f"{wrong}: {snapshot}, not with {committed}")
        causes = self.file.causes | self.causes
        self.causes = {o: cause for o, cause in causes.items() if o in known}
        self.cursor, self.settled = snapshot.cursor, known
        self.deliveries = {o: n for o, n in self.file.deliveries.items() if o < kept_to}
        self.failed = dict.fromkeys(held_back(snapshot), UNKNOWN)
        self.not_before_ms.clear()
        self.holds.clear()
        for hold in self.file.holds_left(known, kept_to):
            self.holds.put(hold)
        self.back_to(snapshot.cursor)

    def rebuilt(self, cursor: int, front: int, settled: set[int]) -> None:
        """Another core, which has read nothing yet."""
        self.life += 1
        self.passed = Passed(cursor, front, settled)
        self.read_to = cursor
        self.joined.clear()  # The members it finds were there first.
        self._present = frozenset()
        self.silence.rebuilt()

    def read(self, event: RecordsRead) -> None:
        """At least up to where it starts, and as far as the span allowed; `window_records` cuts."""
        if self.members:
            span_end = min(event.end, self.cursor + self.policy.span_max)
            end = event.start if self.policy.window_records is not None else span_end
            self.read_to = max(self.read_to, end)

    # ----------------------------------------------------------------------------------- deliveries

    def delivered(self, effect: Delivered, records_max: int, now_ms: int) -> None:
        if len(effect.offsets) != len(effect.attempts):
            raise CheckFailure("Delivery", "columns of unequal length")
        if effect.offsets != sorted(set(effect.offsets)):
            raise CheckFailure("Delivery", f"not ascending: {effect.offsets}")
        if len(effect.offsets) > records_max:
            raise CheckFailure("Delivery", f"{len(effect.offsets)} of {records_max} at most")
        held = self.holds.live_of(effect.member_id)
        if effect.offsets and held + len(effect.offsets) > self.policy.in_flight_per_member_max:
            raise CheckFailure("BoundedMemory", f"{effect.member_id} holds {held} and gets more")
        self._check_joined(effect)
        for offset, attempt in zip(effect.offsets, effect.attempts, strict=True):
            self._delivered(offset, attempt, effect, now_ms)

    def _check_joined(self, effect: Delivered) -> None:
        """PIP-282: nothing behind where it joined before the cursor has passed that."""
        known = self.log.lost_from is None  # else what was sent last is not in the log
        if self.policy.join_policy is not JoinPolicy.LAST_SENT or not effect.offsets or not known:
            return
        least, most = self.joined.get(effect.member_id, ANYWHERE)
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

    def _position(self) -> tuple[int, int]:
        return self._last_sent(gone_are_sent=False), self._last_sent(gone_are_sent=True)

    def _joins(self, members: tuple[Member, ...]) -> None:
        there = frozenset(str(member.member_id) for member in members)
        self.joined = {name: at for name, at in self.joined.items() if name in there}
        if self._present:
            self.joined |= dict.fromkeys(there - self._present, self._position())
        self._present = there
        self._alone()

    def _alone(self) -> None:
        if len(self._present) - len(self.silence.silent) == 1:
            self.joined.clear()

    def never_arrived(self, effect: Delivered) -> None:
        """Leased, and lost on the way: nobody relies on it, its holder may still speak of it."""
        for offset in effect.offsets:
            self._check_free(offset)
            self._never_relied_on(offset, effect)

    def _never_relied_on(self, offset: int, effect: Delivered) -> None:
        hold = self._hold(offset, effect)
        hold.expired = True
        self.holds.put(hold)
        if offset in self.failed:  # Its back-off is over, and when this delivery ends is not told.
            self.failed[offset] = UNKNOWN

    def _hold(self, offset: int, effect: Delivered) -> Hold:
        return Hold(
            offset=offset,
            key=self.log.records.get(offset),
            member=effect.member_id,
            session=effect.session_id,
            until_ms=effect.deadline_ms,
            life=self.life,
        )

    def _check_free(self, offset: int) -> None:
        hold = self.holds.get(offset)
        if hold is not None and not hold.expired:
            raise CheckFailure("OneOwnerPerKey", f"{offset} is still with {hold}")

    def _delivered(self, offset: int, attempt: int, effect: Delivered, now_ms: int) -> None:
        if offset in self.log.gone:  # Taken from it after it was read: its key is unknown here.
            self._never_relied_on(offset, effect)
            return
        if offset not in self.log.records:
            raise CheckFailure("Delivery", f"{offset} does not exist")
        if offset in self.settled:
            raise CheckFailure("NoSettledDelivery", f"{offset} was settled: {self.causes}")
        if self.policy.prefetch_per_key == 1 and attempt != self.deliveries.get(offset, 0):
            raise CheckFailure("Attempts", f"{offset}: {attempt}, not {self.deliveries}")
        self._check_free(offset)
        not_before_ms = self.not_before_ms.pop(offset, 0)
        if self.policy.prefetch_per_key == 1 and now_ms < not_before_ms:
            raise CheckFailure("BackOff", f"{offset} {not_before_ms - now_ms} ms early")
        mine = self._hold(offset, effect)
        if mine.key is not None:
            self._check_order(mine, mine.key)
            self._check_owner(mine, mine.key)
        self.holds.put(mine)
        self.delivered_count += 1
        if now_ms > effect.deadline_ms:
            raise CheckFailure("Delivery", "the lock was over before it began")

    def _unsettled_of(self, key: bytes) -> int:
        """The place in `log.of_key[key]` of the first that is not settled."""
        offsets = self.log.of_key[key]
        at = self._settled_of_key.get(key, 0)
        while at < len(offsets) and offsets[at] in self.settled:
            at += 1
        self._settled_of_key[key] = at
        return at

    def first_of(self, key: bytes) -> int | None:
        """The first record that is not settled."""
        at = self._unsettled_of(key)
        return self.log.of_key[key][at] if at < len(self.log.of_key[key]) else None

    def _earlier(self, key: bytes, offset: int) -> list[int]:
        """Not settled, in the log, and before `offset`."""
        earlier = []
        offsets = self.log.of_key[key]
        for at in range(self._unsettled_of(key), len(offsets)):
            other = offsets[at]
            if other >= offset:
                break
            if other in self.log.records and other not in self.settled:
                earlier.append(other)
        return earlier

    def _check_order(self, mine: Hold, key: bytes) -> None:
        earlier = self._earlier(key, mine.offset)
        if len(earlier) >= self.policy.prefetch_per_key:
            raise CheckFailure("PerKeyOrder", f"{mine.offset} before {earlier} of {key!r}")
        for offset in earlier:
            hold = self.holds.get(offset)
            if hold is None or hold.place != mine.place:
                raise CheckFailure("PerKeyOrder", f"{mine.offset} before {offset}, held {hold}")
            if offset in self.failed:
                raise CheckFailure("PerKeyOrder", f"{mine.offset} behind {offset}, which failed")

    def _check_owner(self, mine: Hold, key: bytes) -> None:
        for hold in self.holds.of_key(key).values():
            if hold.member != mine.member and not hold.expired:
                raise CheckFailure("OneOwnerPerKey", f"{mine} while {hold}")

    # ------------------------------------------------------------------------------------- silence

    @property
    def somebody_attentive(self) -> bool:
        return len(self._present) > len(self.silence.silent)

    def silence_told(self, notice: Notice, name: str, now_ms: int, *, others: bool) -> None:
        """`others`: somebody was attentive before the step, in which several may come back."""
        if notice is Notice.SILENT:
            lock_ms = self.policy.lock_duration_ms
            wrong = self.silence.fell_silent(name, self.members, lock_ms, now_ms)
            self.joined.pop(name, None)
        else:
            wrong = self.silence.heard_again(name, self.members)
            if others:
                self.joined[name] = self._position()
        if wrong is not None:
            raise CheckFailure("Silence", wrong)
        self._alone()

    def may_hold_more(self, member: str) -> bool:
        """Certainly: expired holds count, for they may still be leased."""
        return self.holds.fewer_than(self.policy.in_flight_per_member_max, member)

    # --------------------------------------------------------------------------- ends of deliveries

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
            if not any(errors):
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
            if not harmless and offset not in self.log.gone and offset >= self.log.start:
                raise CheckFailure("AckFencing", f"{kind.name} of {offset} by {member}/{session}")
            return
        if kind is AckType.RENEW:
            self.renewed(offset, now_ms + self.policy.lock_duration_ms)
            return
        hold = self.holds.pop(offset)
        assert hold is not None
        if kind is AckType.ACCEPT:
            self.causes.setdefault(offset, "accepted")
            self._check_first(hold)
        elif kind is AckType.REJECT:
            self.failed[offset] = UNKNOWN
            if self.policy.rejected is PoisonPolicy.DROP:
                self.causes.setdefault(offset, "rejected")
        else:
            failures = self.deliveries.get(offset, 0)
            wait_ms = self.policy.backoff_base_ms * 2 ** max(0, failures - 1)
            due_ms = now_ms + min(wait_ms, self.policy.backoff_max_ms)
            self.not_before_ms[offset] = due_ms
            self.failed[offset] = UNKNOWN if self._spent(offset) else due_ms

    def _spent(self, offset: int) -> bool:
        return self.deliveries.get(offset, 0) >= self.policy.deliveries_max

    def _check_first(self, hold: Hold) -> None:
        """Successful work on a key is in order; with prefetch the consumer answers for it."""
        if hold.key is None or self.policy.prefetch_per_key > 1:
            return
        for offset in self._earlier(hold.key, hold.offset):
            if offset not in self.causes:
                raise CheckFailure("PerKeyOrder", f"{hold.offset} accepted before {offset}")

    def not_sent(self, event: NotSent, changes: list[Change]) -> None:
        """As if never acquired. Of a lease that may be over, the persisted changes say whether."""
        noted = {change.offset for change in changes if isinstance(change, RetryNoted)} & set(
            event.offsets
        )
        if wrong := self.holds.wrongly_returned(event, noted):
            raise CheckFailure("NotSent", f"{wrong} of {event}, returned: {noted}")
        for offset in noted:
            self.holds.pop(offset)
            self.failed[offset] = NOW
            self.deliveries[offset] -= 1

    def renewed(self, offset: int, deadline_ms: int) -> None:
        hold = self.holds.get(offset)
        if hold is not None:
            hold.until_ms = deadline_ms

    def closed(self, member: str, session: str) -> None:
        """A clean goodbye, as the member was told: the session's records are free at once."""
        for hold in self.holds.of_member(member):
            if hold.session == session:
                self.holds.pop(hold.offset)
                if hold.expired:  # Given back at its lock's end, or not known to be given back.
                    self.failed.setdefault(hold.offset, UNKNOWN)
                else:
                    self.failed[hold.offset] = NOW

    def lost(self, member: str, session: str, now_ms: int) -> None:
        self.lost_sessions.add(session)
        for hold in self.holds.of_member(member):
            if hold.session == session:
                hold.lose(now_ms)

    def opened(self, member: str, session: str, now_ms: int) -> None:
        self.opened_last[member] = session
        for hold in self.holds.of_member(member):
            if hold.session != session:
                self.lost(member, hold.session, now_ms)

    def members_changed(self, members: tuple[Member, ...], reason: Reason, now_ms: int) -> None:
        """A member that left has given all records back, or does so at the end of the grace: a core
        that was rebuilt meanwhile has never seen it.
        """
        gone = {m.member_id for m in self.members} - {m.member_id for m in members}
        self.silence.changed(members, now_ms)
        self._joins(members)
        self.members_before, self.members = self.members, members
        self.router = Router(members)
        for name in sorted(gone):
            self.holds.left_ms[name] = now_ms
            for hold in self.holds.of_member(name):
                if hold.life == self.life and not hold.ends_by_itself(now_ms):
                    self._gone(hold, reason)
                else:
                    hold.lose(now_ms)
                    self._expire(hold, evicted=reason is Reason.MEMBER_EVICTED)

    def _gone(self, hold: Hold, reason: Reason) -> None:
        self.holds.pop(hold.offset)
        evicted = reason is Reason.MEMBER_EVICTED
        self.failed[hold.offset] = UNKNOWN if evicted and self._spent(hold.offset) else NOW
        if evicted and self.policy.on_evict is EvictPolicy.ACK:
            self.causes.setdefault(hold.offset, "evicted")

    def expired(self, now_ms: int) -> None:
        """The watchdog ticked: records past their lock, or their session's grace, are not held."""
        for hold in self.holds.run_out(now_ms, self.policy.disconnect_grace_ms):
            self._expire(hold, evicted=hold.session in self.lost_sessions)

    def _expire(self, hold: Hold, *, evicted: bool) -> None:
        hold.expired, hold.leased = True, False
        self.failed[hold.offset] = UNKNOWN
        if evicted and self.policy.on_evict is EvictPolicy.ACK:
            self.causes.setdefault(hold.offset, "evicted")

    # --------------------------------------------------------------------------------- other causes

    def operator_retries(self, offset: int) -> None:
        self.not_before_ms.pop(offset, None)
        self.failed[offset] = NOW

    def cause(self, offset: int, why: str) -> None:
        self.causes.setdefault(offset, why)
