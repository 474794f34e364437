"""The state of one window, and the few operations that all events are built from.

A record is queued (in its key's queue), in flight (its slot names a lease), held (its retry has the
reason) or settled. `offer` lists a key whose next record may go out, `take_back` ends a delivery
without settling, `settle` ends the record. The changes of a step are collected here; `finish` turns
them into the Step.
"""

from __future__ import annotations

from typing import assert_never

from dispatcher.core.draining_keys import DrainingKeys
from dispatcher.core.hashes import key_hash32
from dispatcher.core.keys import NO_OFFSET, KeyQueue, MemberQueue
from dispatcher.core.leases import Lease, LeaseBook
from dispatcher.core.limits import IDLE_KEYS_MAX, READ_ROOM_DIVISOR
from dispatcher.core.loads import takes
from dispatcher.core.model import (
    Change,
    CursorMoved,
    Effect,
    EvictPolicy,
    Key,
    LeaseEnded,
    MemberId,
    MembersReady,
    Notice,
    Noticed,
    PoisonPolicy,
    Policy,
    ReadOn,
    Reason,
    RetriesForgotten,
    RetryState,
    Step,
    WriteDeadLetters,
)
from dispatcher.core.owners import Owners
from dispatcher.core.retry import AT_ONCE, CLEAN, Retry, RetryBook, backoff_ms, new_retry
from dispatcher.core.window import Window


class WindowState:
    waiting_for_reread: bool  # keys wait until all that is leased was read again; set by restore

    def __init__(self, policy: Policy, cursor: int) -> None:
        self.policy = policy
        self.prefetch = policy.prefetch_per_key
        self.read_ahead = _read_ahead(policy)
        self.window = Window(cursor)
        self.by_key: dict[bytes, KeyQueue] = {}  # without null keys
        self.idle_keys = 0  # those of them that have no unsettled records
        self.book = LeaseBook()
        self.retries = RetryBook()
        self.members: list[MemberQueue] = []  # in join order, as the router's
        self.by_member: dict[MemberId, MemberQueue] = {}  # the same
        self.idle_members = 0  # those of them without ready records
        # Whose ready list or count in flight this step changed; a step must not cost a pass over
        # all members.
        self.touched: list[MemberQueue] = []
        self.absent: dict[MemberId, MemberQueue] = {}  # hold leases and are not in the group
        self.attentive: list[MemberQueue] = []  # those that are not silent (silence.py)
        self.owners = Owners(policy.bounded_load)
        self.draining_keys = DrainingKeys()
        self.limited = False  # some member may have some records only (joins.py)
        # Members whose place of joining is known only when more is read (joins.py).
        self.provisional: list[MemberQueue] = []
        self.reading = False  # a ReadOn is out and not answered
        self.full_at = NO_OFFSET  # the cursor if the span was full at the last tick
        self.stuck_at = NO_OFFSET  # the cursor that was last reported to hold a full span
        self.persisted_cursor = cursor
        self.restored_at_ms: int | None = None  # of the first event
        self._begin()

    def _begin(self) -> None:
        self.changes: list[Change] = []
        self.effects: list[Effect] = []
        self.forgotten: list[int] = []
        self.ended: list[Lease] = []
        self.counts: dict[Notice, int] = {}
        self.firsts: dict[Notice, tuple[int, str]] = {}  # offset and reason, for the log
        self.dead_letters: list[Retry] = []

    def retune(self, policy: Policy) -> None:
        self.policy = policy
        self.read_ahead = _read_ahead(policy)
        self.touch_all()  # the limit of a member's records may be another

    # -------------------------------------------------------------------------------------- routing

    def owner_of(self, key: Key, offset: int) -> MemberQueue | None:
        """None: nobody is there, or nobody's filters accept the record."""
        place = self.owners.owner_of(key, offset)
        return None if place < 0 else self.members[place]

    def offer(self, queue: KeyQueue) -> None:
        """Lists the key for its owner if a record of it may go out now. O(1) but for prefetch."""
        if queue.listed or queue.head < 0:
            return
        owner = queue.owner
        if owner is None:
            if self.members:
                self.skip(queue)
        elif self.may_go_out(queue, owner):
            queue.listed = True
            first = queue.head if queue.in_flight == 0 else self.next_of(queue)
            owner.fresh.append(first)
            self.touch(owner)

    def touch(self, member: MemberQueue) -> None:
        if not member.touched:
            member.touched = True
            self.touched.append(member)

    def touch_all(self) -> None:
        for member in self.members:
            self.touch(member)

    def may_go_out(self, queue: KeyQueue, owner: MemberQueue) -> bool:
        """Whether some record of a key with unsettled records may be delivered to its owner."""
        if queue.in_flight == 0:
            if self.retries.by_offset and self.retries.held(queue.head):
                return False
            # With prefetch somebody may hold a later record of this key, from before a restart.
            return self.prefetch == 1 or not self.window.unread
        holder = queue.holder
        if queue.in_flight >= self.prefetch or holder is None or holder.restored:
            return False
        return holder.member is owner and self.next_of(queue) >= 0

    def next_of(self, queue: KeyQueue) -> int:
        """The first record that may go out, NO_OFFSET if none: none behind a record that failed
        (PIP-493).
        """
        window = self.window
        retries = self.retries.by_offset
        offset = queue.head
        while offset >= 0:
            at = offset & window.mask
            retry = retries.get(offset) if retries else None
            if window.leases[at] is None:
                return offset if retry is None or not retry.held else NO_OFFSET
            if retry is not None:
                return NO_OFFSET
            offset = window.nexts[at]
        return NO_OFFSET

    def skip(self, queue: KeyQueue) -> None:
        """No member accepts this key: settles its waiting records, from the front, up to the first
        that is in flight or held.
        """
        skipped = 0
        while queue.head >= 0 and queue.in_flight == 0 and not self.retries.held(queue.head):
            self.settle(queue.head)
            skipped += 1
        if skipped:
            self.count(Notice.SKIPPED, skipped)

    def relist(self) -> None:
        """Routes all keys and builds all ready lists anew, in the order of the records. O(span)."""
        self.drop_idle_keys()
        loads = self.owners.loads
        if loads is not None:
            loads.recount(self.attentive, [q for q in self.by_key.values() if self._stays(q)])
        self.idle_members = 0  # counted anew when the step is finished
        for member in self.members:
            member.clear_ready()
            member.idle = False
        self.touch_all()
        window = self.window
        queues = window.queues
        mask = window.mask
        for offset in range(window.cursor, window.read_position):
            queue = queues[offset & mask]
            if queue is not None and queue.head == offset:
                queue.listed = False
                if loads is None or not self._stays(queue):
                    queue.owner = self.owner_of(queue.key, offset)
                self.offer(queue)
                self.draining_keys.look_at(queue)

    def _stays(self, queue: KeyQueue) -> bool:
        """With bounded loads: whether a key has something in flight or held, and an owner that
        still takes it.
        """
        if queue.owner is None or queue.key is None:
            return False
        busy = queue.in_flight > 0 or self.retries.held(queue.head)
        return busy and takes(self.owners.takers, queue.owner, queue.key)

    def rest(self) -> None:
        """Gives memory back that a window with little to do no longer needs."""
        self.window.shrink()
        if self.idle_keys * 2 > len(self.by_key):
            self.drop_idle_keys()

    def room(self) -> int:
        """Offsets that may be read on, within the span and within the limit of records. Restored
        offsets are read again even beyond `window_records`. O(span) with the limit.
        """
        window = self.window
        room = self.policy.span_max - (window.read_position - window.cursor)
        records_max = self.policy.window_records
        if records_max is not None:
            known = window.known_end - window.read_position
            room = min(room, max(records_max - window.unsettled(), known, 0))
        return room

    def watch_span(self) -> None:
        """At a tick: reports once per cursor that it holds a full span. A full span whose cursor
        moves is no news: reading ahead fills it.
        """
        cursor = self.window.cursor
        blocker = self.window.queues[cursor & self.window.mask]
        if blocker is None or not self.members or self.room() > 0:
            self.full_at = NO_OFFSET  # Without a blocker the cursor moves on in this very step.
            return
        if cursor == self.full_at and cursor != self.stuck_at:
            self.stuck_at = cursor
            key_hash = int(key_hash32(blocker.key or b""))
            detail = f"offset {cursor} key hash {key_hash:08x}"
            self.effects.append(Noticed(notice=Notice.SPAN_FULL, count=1, detail=detail))
        self.full_at = cursor

    # ------------------------------------------------------------------------------ ends of records

    def detach(self, offset: int) -> Lease:
        """Ends the delivery in flight of `offset`; the caller decides its next state."""
        window = self.window
        at = offset & window.mask
        lease = window.leases[at]
        assert lease is not None, f"{offset} is not in flight"
        window.leases[at] = None
        lease.session.member.in_flight -= 1
        self.touch(lease.session.member)
        lease.live -= 1
        if lease.live == 0:
            self.ended.append(lease)
        queue = window.queues[at]
        if queue is not None:
            queue.in_flight -= 1
        return lease

    def settle(self, offset: int) -> None:
        """The end of a record that is not in flight. Its key is not offered: the caller does, when
        all is done.
        """
        window = self.window
        queue = window.queues[offset & window.mask]
        window.mark(offset)
        self.forget(offset)
        if queue is None:
            window.unread.discard(offset)
            return
        window.unlink(queue, offset)
        if queue.head < 0 and queue.key is not None:
            self.idle_keys += 1

    def drop_idle_keys(self) -> None:
        if self.idle_keys:
            self.by_key = {key: queue for key, queue in self.by_key.items() if queue.head >= 0}
            self.idle_keys = 0

    def forget(self, offset: int) -> None:
        if self.retries.by_offset and self.retries.by_offset.pop(offset, None) is not None:
            self.forgotten.append(offset)

    def offer_key_of(self, queue: KeyQueue | None) -> None:
        if queue is not None:
            self.offer(queue)

    def take_back(self, offset: int, reason: Reason, now_ms: int) -> None:
        """A delivery ended without success: wait and go out again, or one of the poison policies. A
        REJECT goes by its own policy, also if it ends the last permitted delivery.
        """
        window = self.window
        queue = window.queues[offset & window.mask]
        returned = reason is Reason.NOT_SENT or (
            queue is not None and self._returned(queue, offset, reason)
        )
        lease = self.detach(offset)
        member_id = lease.session.member.member_id
        retry = self.retries.by_offset.get(offset)
        if retry is None:
            retry = new_retry(offset, reason, member_id, now_ms)
            self.retries.by_offset[offset] = retry
        retry.member_id = member_id
        retry.reason = reason
        if not returned:
            retry.deliveries += 1
        exhausted = retry.deliveries >= self.policy.deliveries_max and reason not in CLEAN
        if reason is Reason.REJECTED:
            self.poison(retry, self.policy.rejected, now_ms)
        elif exhausted and not returned:
            self.count(Notice.EXHAUSTED, 1)
            self.poison(retry, self.policy.exhausted, now_ms)
        else:
            retry.state = RetryState.WAITING
            at_once = returned or reason in AT_ONCE
            wait_ms = 0 if at_once else backoff_ms(self.policy, retry.deliveries)
            if wait_ms:
                self.retries.wait(retry, now_ms + wait_ms)
            self.changes.append(retry.noted())
        # Also if this record waits: with prefetch an earlier one may have waited for its end.
        self.offer_key_of(queue)

    def _returned(self, queue: KeyQueue, offset: int, reason: Reason) -> bool:
        """Whether a prefetched record only comes back because an earlier one of its key failed
        (PIP-493).
        """
        if queue.head == offset or reason is not Reason.RELEASED or not self.retries.by_offset:
            return False
        earlier = queue.head
        while earlier != offset:
            if earlier in self.retries.by_offset:
                return True
            earlier = self.window.nexts[earlier & self.window.mask]
        return False

    def give_back(self, lease: Lease, reason: Reason, now_ms: int) -> None:
        """Everything a lease still holds."""
        window = self.window
        accept = reason is Reason.MEMBER_EVICTED and self.policy.on_evict is EvictPolicy.ACK
        for offset in lease.offsets:
            if window.holds(offset) and window.leases[offset & window.mask] is lease:
                if accept:
                    queue = window.queues[offset & window.mask]
                    self.detach(offset)
                    self.settle(offset)
                    self.offer_key_of(queue)
                    self.count(Notice.DROPPED, 1)
                else:
                    self.take_back(offset, reason, now_ms)

    def poison(self, retry: Retry, policy: PoisonPolicy, now_ms: int) -> None:
        """The end of a record not in flight that shall not be delivered again. Its key is not
        offered.
        """
        match policy:
            case PoisonPolicy.DROP:
                self.settle(retry.offset)
                self.count_poison(Notice.DROPPED, retry)
            case PoisonPolicy.DEAD_LETTER:
                self.dead_letter(retry)
            case PoisonPolicy.BLOCK:
                retry.due_ms = now_ms  # operators see since when it is parked
                self._hold(retry, RetryState.PARKED)
                self.count_poison(Notice.PARKED, retry)
            case _:
                assert_never(policy)

    def dead_letter(self, retry: Retry) -> None:
        """The key is held until the DLQ has the record durably."""
        self._hold(retry, RetryState.DEAD_LETTER)
        self.dead_letters.append(retry)

    def _hold(self, retry: Retry, state: RetryState) -> None:
        retry.state = state
        retry.held = True
        self.changes.append(retry.noted())

    # ------------------------------------------------------------------------------------- the step

    def count(self, notice: Notice, count: int) -> None:
        self.counts[notice] = self.counts.get(notice, 0) + count

    def count_poison(self, notice: Notice, retry: Retry) -> None:
        """The end of one poison record."""
        self.count(notice, 1)
        self.example(notice, retry.offset, retry.reason.value)

    def example(self, notice: Notice, offset: int, reason: str = "") -> None:
        """The log shows the first of the records of a step that a notice counts."""
        if notice not in self.firsts:
            self.firsts[notice] = (offset, reason)

    def finish(self) -> Step:
        if self.waiting_for_reread and not self.window.unread:
            self.waiting_for_reread = False
            self.relist()
        expected = self.window.read_position
        self.window.advance()
        if self.window.read_position != expected:
            self.reading = False  # The read under way starts too early now.
        if self.limited:
            self._lift_limits()
            self.touch_all()  # a limit depends on the other members, too
        self._close_leases()
        if self.draining_keys.by_key:
            self.draining_keys.end(self.touched)
        if self.idle_keys > IDLE_KEYS_MAX:
            self.drop_idle_keys()
        changes = self.changes
        changes.extend(self.window.take_dirty())
        if self.forgotten:
            changes.append(RetriesForgotten(offsets=self.forgotten))
        if self.window.cursor != self.persisted_cursor:
            self.persisted_cursor = self.window.cursor
            changes.append(CursorMoved(cursor=self.window.cursor))
        effects = self.effects
        self._write_dead_letters(effects)
        self._wake(effects)
        self._read_on(effects)
        for notice, count in self.counts.items():
            if notice in self.firsts:
                offset, reason = self.firsts[notice]
                effects.append(Noticed(notice=notice, count=count, detail=reason, offset=offset))
            else:
                effects.append(Noticed(notice=notice, count=count))
        self._begin()
        return Step(changes=changes, effects=effects)

    def _lift_limits(self) -> None:
        """Of members that are alone, or see all records sent before their join settled."""
        self.limited = False
        for member in self.members:
            if self.window.cursor > member.limit or len(self.attentive) == 1:
                member.limit = NO_OFFSET
            else:
                self.limited = True

    def may_have(self, queue: KeyQueue, member: MemberQueue) -> bool:
        """Whether a member with a limit may have the next record of a key that is listed for it."""
        return queue.head <= member.limit and self.may_go_out(queue, member)

    def may_have_of(self, member: MemberQueue) -> int:
        """How many of the records that are listed for a member with a limit it may have."""
        queues = self.window.queues
        count = 0
        for offset in member.sort_ready():  # From its front nothing is taken.
            queue = queues[offset & self.window.mask]
            if queue is not None and self.may_have(queue, member):
                count += 1
        return count

    def _close_leases(self) -> None:
        for lease in self.ended:
            self.book.close(lease)
            self.changes.append(LeaseEnded(lease_id=lease.lease_id))
            member = lease.session.member
            if member.in_flight == 0:
                self.absent.pop(member.member_id, None)

    def _write_dead_letters(self, effects: list[Effect]) -> None:
        letters = self.dead_letters
        if letters:
            effects.append(
                WriteDeadLetters(
                    offsets=[retry.offset for retry in letters],
                    deliveries=[retry.deliveries for retry in letters],
                    reasons=[retry.reason for retry in letters],
                    members=[retry.member_id for retry in letters],
                )
            )

    def _wake(self, effects: list[Effect]) -> None:
        woken: list[MemberId] = []
        cap = self.policy.in_flight_per_member_max
        touched, self.touched = self.touched, []
        for member in touched:
            member.touched = False
            if not member.joined:
                continue
            idle = member.ready_count() == 0
            if idle != member.idle:
                member.idle = idle
                self.idle_members += 1 if idle else -1
            awake = not idle and member.in_flight < cap
            if awake and member.limit >= 0:
                awake = self.may_have_of(member) > 0
            if awake and not member.awake:
                woken.append(member.member_id)
            member.awake = awake
        if woken:
            effects.append(MembersReady(members=woken))

    def _read_on(self, effects: list[Effect]) -> None:
        if self.reading or not self.members:
            return
        room = self.room()
        if room <= 0:
            return
        if room * READ_ROOM_DIVISOR >= self.read_ahead or self.idle_members > 0:
            self.reading = True
            effects.append(ReadOn(position=self.window.read_position, offsets_max=room))


def _read_ahead(policy: Policy) -> int:
    """Offsets that may be read and not settled when there are no holes."""
    return min(policy.span_max, policy.window_records or policy.span_max)
