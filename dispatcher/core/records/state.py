"""The state of one window, and the few operations that all events are built from.

A record is queued (in its key's queue), in flight (its slot names a lease), held (its retry has the
reason) or settled. `offer` lists a key whose next record may go out, `take_back` ends a delivery
without settling, `settle` ends the record. The changes of a step are collected here; step_end.py
turns them into the Step.
"""

from __future__ import annotations

from typing import assert_never

from librt.vecs import append

from dispatcher.core.epochs import Epochs
from dispatcher.core.hold import Hold
from dispatcher.core.model import EvictPolicy, Key, Member, MemberId, PoisonPolicy, Policy, Reason
from dispatcher.core.records.draining_keys import DrainingKeys
from dispatcher.core.records.held_keys import waits
from dispatcher.core.records.keys import NO_OFFSET, KeyQueue, MemberQueue
from dispatcher.core.records.leases import Lease, LeaseBook
from dispatcher.core.records.loads import takes
from dispatcher.core.records.owners import Owners
from dispatcher.core.records.retry import AT_ONCE, CLEAN, Retry, RetryBook, backoff_ms, new_retry
from dispatcher.core.records.span import Span
from dispatcher.core.routing.glob import accepts
from dispatcher.core.steps import Change, Effect, Notice, RetryState


# Long: what the events (dispatcher/core/events) do to a window together, each step once.
class WindowState:
    waiting_for_reread: bool  # keys wait until all that is leased was read again; set by restore

    def __init__(self, policy: Policy, cursor: int) -> None:
        self.policy = policy
        self.prefetch = policy.prefetch_per_key
        self.read_ahead = _read_ahead(policy)
        self.window = Span(cursor)
        self.by_key: dict[bytes, KeyQueue] = {}  # without null keys
        self.idle_keys = 0  # queues that have no unsettled records
        self.book = LeaseBook()
        self.retries = RetryBook()
        self.members: list[MemberQueue] = []  # in join order, as the router's
        self.by_member: dict[MemberId, MemberQueue] = {}  # the same
        self.idle_members = 0  # members without ready records
        # Whose ready list or count in flight this step changed; a step must not cost a pass over
        # all members.
        self.touched: list[MemberQueue] = []
        self.awaited: tuple[Member, ...] = ()  # what only these accept is not skipped
        self.absent: dict[MemberId, MemberQueue] = {}  # hold leases and are not in the group
        self.attentive: list[MemberQueue] = []  # members that are not silent (silence.py)
        self.owners = Owners(policy.bounded_load)
        self.draining_keys = DrainingKeys()
        self.hold: Hold | None = None  # of keys whose records wait for another window
        # In flight since before a restart, and the log lost them before they were read again: each
        # may be of any key, and all keys wait for the end of its delivery (reading.py).
        self.strays: set[int] = set()
        # From there on the log has lost all, and members work on some of it (LogCut); or NO_OFFSET.
        self.lost_from = NO_OFFSET
        self.limited = False  # some member may have some records only (joins.py)
        # Members whose place of joining is known only when more is read (joins.py).
        self.provisional: list[MemberQueue] = []
        self.log_start = 0  # what is below is gone, as far as is known
        self.reading = False  # a ReadOn is out and not answered
        self.full_at = NO_OFFSET  # the front if the span was nearly full at the last tick
        self.stuck_at = NO_OFFSET  # the front that was reported to hold a full span, until it ends
        self.persisted_cursor = cursor
        self.persisted_front = cursor
        self.epochs: Epochs = ()  # of the records that were read, as in Snapshot
        self.restored_at_ms: int | None = None  # of the first event
        self.begin()

    def begin(self) -> None:
        self.read_from = self.window.read_position
        self.changes: list[Change] = []
        self.effects: list[Effect] = []
        self.forgotten: list[int] = []
        self.ended: list[Lease] = []
        self.counts: dict[Notice, int] = {}
        self.firsts: dict[Notice, tuple[int, str]] = {}  # offset and reason, for the log
        self.dead_letters: list[Retry] = []

    def retune(self, policy: Policy) -> None:
        if policy.join_policy is not self.policy.join_policy:
            self._end_limits()  # members that are there joined under the other rule
        self.policy = policy
        self.read_ahead = _read_ahead(policy)
        self.touch_all()  # the limit of a member's records may be another

    def _end_limits(self) -> None:
        self.provisional, self.limited = [], False
        for member in self.members:
            member.limit = NO_OFFSET

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
            if self.members and not self.is_awaited(queue):
                self.skip(queue)
        elif self.may_go_out(queue, owner):
            queue.listed = True
            first = self.first_of(queue)
            if first < self.window.front:
                self.window.aside.queues[first] = queue
            owner.fresh = append(owner.fresh, first)
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
        if self.hold is not None and waits(self.hold, queue):
            return False
        if self.strays and queue.key is not None:
            return False
        if queue.in_flight == 0:
            if self.lost_from != NO_OFFSET and queue.head >= self.lost_from:
                return False
            if queue.retried and self.retries.held(queue.head):
                return False
            # With prefetch somebody may hold a later record of this key, from before a restart.
            return self.prefetch == 1 or not self.window.unread
        holder = queue.holder
        if queue.in_flight >= self.prefetch or holder is None or holder.restored:
            return False
        return holder.member is owner and self.next_of(queue) >= 0

    def all_may_go_out(self) -> bool:
        """Whether the next record of any key may, if it has an owner and none had a retry."""
        free = self.hold is None and not self.strays and self.lost_from == NO_OFFSET
        return free and self.prefetch == 1

    def first_of(self, queue: KeyQueue) -> int:
        """The record that goes out next, if one may."""
        return queue.head if queue.in_flight == 0 else self.next_of(queue)

    def next_of(self, queue: KeyQueue) -> int:
        """The first record that may go out, NO_OFFSET if none: none behind a record that failed
        (PIP-493).
        """
        window = self.window
        retries = self.retries.by_offset
        offset = queue.head
        while offset >= 0:
            if self.lost_from != NO_OFFSET and offset >= self.lost_from:
                return NO_OFFSET
            if self.hold is not None and queue.key is not None and offset >= self.hold.open_to:
                return NO_OFFSET
            retry = retries.get(offset) if retries else None
            if window.lease_at(offset) is None:
                return offset if retry is None or not retry.held else NO_OFFSET
            if retry is not None:
                return NO_OFFSET
            offset = window.after(queue, offset)
        return NO_OFFSET

    def is_awaited(self, queue: KeyQueue) -> bool:
        """Whether a member may come that accepts this key, which no present one does."""
        key = queue.key
        return any(accepts(member.filters, key) for member in self.awaited)

    def skip(self, queue: KeyQueue) -> None:
        """No member accepts this key: settles its waiting records, from the front, up to the first
        that is in flight or held, or that an operator has asked for: that one is parked again.
        """
        skipped = 0
        while queue.head >= 0 and queue.in_flight == 0 and not self.retries.held(queue.head):
            retry = self.retries.by_offset.get(queue.head)
            if retry is not None and retry.reason is Reason.OPERATOR:
                self._hold(retry, RetryState.PARKED)
                break
            self.settle(queue.head)
            skipped += 1
        if skipped:
            self.count(Notice.SKIPPED, skipped)

    def relist(self) -> None:
        """Routes all keys and builds all ready lists anew, in the order of the records. O(span +
        keys aside).
        """
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
        # A key that nobody accepts is skipped, and leaves `queues` of the records aside meanwhile.
        for offset in sorted(window.aside.queues):
            self._relist(window.aside.queues.get(offset), offset)
        queues = window.queues
        mask = window.mask
        for offset in range(window.front, window.read_position):
            self._relist(queues[offset & mask], offset)

    def _relist(self, queue: KeyQueue | None, offset: int) -> None:
        if queue is None or queue.head != offset:
            return
        queue.listed = False
        if self.owners.loads is None or not self._stays(queue):
            queue.owner = self.owner_of(queue.key, offset)
        self.offer(queue)
        self.draining_keys.look_at(queue)

    def _stays(self, queue: KeyQueue) -> bool:
        """Whether, with bounded loads, a key stays: it has records in flight or held, and an owner
        that still takes it.
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

    # ------------------------------------------------------------------------------ ends of records

    def detach(self, offset: int) -> Lease:
        """Ends the delivery in flight of `offset`; the caller decides its next state."""
        window = self.window
        lease = window.lease_at(offset)
        assert lease is not None, f"{offset} is not in flight"
        window.unlease(offset)
        lease.session.member.in_flight -= 1
        self.touch(lease.session.member)
        lease.live -= 1
        if lease.live == 0:
            self.ended.append(lease)
        queue = window.queue_at(offset)
        if queue is not None:
            queue.in_flight -= 1
            if queue.in_flight == 0 and self.draining_keys.by_key:
                self.draining_keys.released.append(queue)
        return lease

    def accept_aside(self, offset: int) -> None:
        """Settles a record aside that is in flight, and lets the next of its key go."""
        queue = self.window.queue_at(offset)
        self.detach(offset)
        self.settle(offset)
        self.offer_key_of(queue)

    def settle(self, offset: int) -> None:
        """The end of a record that is not in flight. Its key is not offered: the caller does, when
        all is done.
        """
        window = self.window
        queue = window.queue_at(offset)
        window.mark(offset)
        self.forget(offset)
        if queue is None:
            window.unread.discard(offset)
            return
        window.unlink(queue, offset)
        if queue.head < 0:
            queue.retried = False
            if queue.key is not None:
                self.idle_keys += 1

    def end_lost(self, offset: int) -> None:
        """The end of a record that the log has lost, and that was not settled. It is not in flight,
        and its key is not offered.
        """
        self.settle(offset)
        self.count(Notice.TRUNCATED, 1)
        self.example(Notice.TRUNCATED, offset)

    def drop_idle_keys(self) -> None:
        if self.idle_keys:
            self.by_key = {key: queue for key, queue in self.by_key.items() if queue.head >= 0}
            self.idle_keys = 0

    def forget(self, offset: int) -> None:
        if self.retries.by_offset and self.retries.forget(offset):
            self.forgotten.append(offset)

    def offer_key_of(self, queue: KeyQueue | None) -> None:
        if queue is not None:
            self.offer(queue)

    def take_back(self, offset: int, reason: Reason, now_ms: int) -> None:
        """A delivery ended without success: wait and go out again, or one of the poison policies. A
        REJECT goes by its own policy, also if it ends the last permitted delivery.
        """
        queue = self.window.queue_at(offset)
        returned = reason is Reason.NOT_SENT or (
            queue is not None and self._returned(queue, offset, reason)
        )
        lease = self.detach(offset)
        if offset < self.log_start or offset in self.strays:  # Nobody can have it again.
            self.end_lost(offset)
            self.offer_key_of(queue)
            return
        member_id = lease.session.member.member_id
        retry = self.retries.by_offset.get(offset)
        if retry is None:
            retry = new_retry(offset, reason, member_id, now_ms)
            self.retries.note(retry)
            if queue is not None:
                queue.retried = True
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
            self.retries.turn(retry, RetryState.WAITING)
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
            earlier = self.window.after(queue, earlier)
        return False

    def give_back(self, lease: Lease, reason: Reason, now_ms: int) -> None:
        """Everything a lease still holds."""
        window = self.window
        accept = reason is Reason.MEMBER_EVICTED and self.policy.on_evict is EvictPolicy.ACK
        for offset in lease.offsets:
            if window.lease_at(offset) is lease:
                if accept:
                    queue = window.queue_at(offset)
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

    def poison_anew(self, retry: Retry, now_ms: int) -> None:
        """Poison that was to become a dead letter, of a group without a DLQ."""
        rejected = retry.reason is Reason.REJECTED
        policy = self.policy.rejected if rejected else self.policy.exhausted
        blocks = policy is PoisonPolicy.DEAD_LETTER
        self.poison(retry, PoisonPolicy.BLOCK if blocks else policy, now_ms)

    def dead_letter(self, retry: Retry) -> None:
        """The key is held until the DLQ has the record durably."""
        self._hold(retry, RetryState.DEAD_LETTER)
        self.dead_letters.append(retry)

    def _hold(self, retry: Retry, state: RetryState) -> None:
        self.retries.turn(retry, state)
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

    # ------------------------------------------------------------------------- members with a limit

    def may_have(self, queue: KeyQueue, member: MemberQueue) -> bool:
        """Whether a member with a limit may have the next record of a key that is listed for it."""
        return self.may_go_out(queue, member) and self.first_of(queue) <= member.limit

    def may_have_of(self, member: MemberQueue) -> int:
        """How many of the records that are listed for a member with a limit it may have."""
        count = 0
        for offset in member.sort_ready():  # From its front nothing is taken.
            queue = self.window.queue_at(offset)
            if queue is not None and self.may_have(queue, member):
                count += 1
        return count


def _read_ahead(policy: Policy) -> int:
    """Offsets that may be read and not settled when there are no holes."""
    return min(policy.span_max, policy.window_records or policy.span_max)
