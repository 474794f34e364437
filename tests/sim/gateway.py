"""The simulated shell around the real core: it persists, then performs; it crashes and rebuilds.

Modelled on gateway/window.py: events are handled at once, the changes of all events since the last
round trip are persisted together, a read that does not start at the read position is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

from dispatcher.core.commit import decode, encode
from dispatcher.core.dispatcher import Core, Dispatcher, core_of
from dispatcher.core.limits import IDLE_KEYS_MAX
from dispatcher.core.model import (
    Acknowledge,
    AckResult,
    AckType,
    Acquire,
    Change,
    DeadLettered,
    Delivered,
    Effect,
    Event,
    LogTruncated,
    Member,
    MemberId,
    MembersChanged,
    MembersReady,
    Noticed,
    NotSent,
    OperatorAct,
    OperatorVerb,
    PoisonPolicy,
    ReadOn,
    Reason,
    RecordsRead,
    SessionClosed,
    SessionLost,
    SessionOpened,
    Snapshot,
    Step,
    Ticked,
    WriteDeadLetters,
)
from dispatcher.store.base import Fence, StoreError, WindowKey, Write
from dispatcher.store.memory import MemoryStore
from tests.sim.checkers import CheckFailure

if TYPE_CHECKING:
    from tests.sim.world import World

KEY = WindowKey("group", "topicAAAAAAAAAAAAAAAAA", 0)
TICK_MS = 500

Answer = Callable[[list[Effect]], None] | None


class Gateway:
    def __init__(self, world: World) -> None:
        self.world = world
        self.store = MemoryStore()
        self.core: Core | None = None
        self.fence = Fence(0)
        self.life = 0  # of the core: what was started for an earlier one is dropped
        self.members: dict[MemberId, Member] = {}  # memberships outlive a restart
        self.pending: list[tuple[Event, Step, Answer]] = []
        self.persisting = False
        self.wish: ReadOn | None = None
        self.last_read: RecordsRead | None = None
        self.commit = (0, encode(0, []))
        self.dead_letters: list[int] = []
        self.rebuilds = 0

    # ------------------------------------------------------------------------------------ events in

    def handle(self, event: Event, answer: Answer = None) -> bool:
        """False: the window is not up, the event is lost."""
        if self.core is None:
            return False
        step = self.core.handle(event)
        self.world.saw(type(event).__name__)
        for change in step.changes:
            self.world.saw(type(change).__name__)
        for effect in step.effects:
            self.world.saw(
                effect.notice.name if isinstance(effect, Noticed) else type(effect).__name__
            )
        self.world.trace("event", event)
        self.core.check_invariants()
        self._check_bounds(self.core)
        self.pending.append((event, step, answer))
        if not self.persisting:
            self.persisting = True
            life = self.life
            delay = self.world.rng.randint(0, self.world.options.persist_ms_max)
            self.world.after(delay, lambda: self._persist(life))
        return True

    def set_members(self, members: dict[MemberId, Member], reason: Reason) -> None:
        self.members = members
        self.handle(MembersChanged(tuple(members.values()), self.world.now_ms, reason))

    # ------------------------------------------------------------------------ persist, then effects

    def _persist(self, life: int) -> None:
        if life != self.life:
            return
        self.persisting = False
        batch, self.pending = self.pending, []
        faults, rng = self.world.faults, self.world.rng
        if rng.random() < faults.crash_before_persist:
            self.pending = batch
            self.crash("before persist")
            return
        if rng.random() < faults.store_error:
            self.pending = batch
            self.fail("store error, nothing applied")
            return
        changes: list[Change] = [change for _, step, _ in batch for change in step.changes]
        (error,) = self.store.apply_now([Write(KEY, self.fence, changes)])
        if error is not None:
            self.pending = batch + self.pending
            self.fail(str(error))
            return
        lost_answer = rng.random() < faults.store_error_applied
        crash = rng.random() < faults.crash_after_persist
        for event, step, answer in batch:
            self._judge(event, step, told=not (lost_answer or crash))
            if not (lost_answer or crash):
                self._perform(step, answer)
        if crash or lost_answer:
            self.pending = batch
        if crash:
            self.crash("after persist")
        elif lost_answer:
            self.fail("store error, applied")

    def _judge(self, event: Event, step: Step, *, told: bool) -> None:  # noqa: C901 - one case per event
        """What the outside knows now that this step is persisted, in the order of the steps."""
        if not self.world.options.policy.reliable:
            self.world.unreliable.judge(event, step, told=told)
            return
        checkers = self.world.checkers
        now_ms = event.now_ms
        grace_ms = self.world.options.policy.disconnect_grace_ms
        match event:
            case Acknowledge():
                (result,) = [e for e in step.effects if isinstance(e, AckResult)]
                checkers.acknowledging(
                    event.member_id, event.session_id, event.batches, result.errors, now_ms
                )
                for (first, last, types), failed in zip(event.batches, result.errors, strict=True):
                    if types == bytes([AckType.RENEW]) and failed is None:
                        until_ms = now_ms + self.world.options.policy.lock_duration_ms
                        for offset in range(first, last + 1):
                            checkers.renewed(offset, until_ms)
            case NotSent():
                checkers.not_sent(event.offsets, event.member_id, event.session_id)
            case SessionClosed():
                checkers.forget_holds(event.member_id, event.session_id, evicted=False)
            case SessionLost():
                checkers.lost(event.member_id, event.session_id, now_ms + grace_ms)
            case SessionOpened():
                checkers.opened(event.member_id, event.session_id, now_ms + grace_ms)
            case MembersChanged():
                checkers.members_changed(event.members, event.reason, now_ms + grace_ms)
            case DeadLettered():
                for offset in event.offsets if event.durable else ():
                    checkers.cause(offset, "dead-lettered")
            case OperatorAct():
                for offset in event.offsets:
                    if event.verb is OperatorVerb.SKIP:
                        checkers.cause(offset, "skipped by the operator")
                    else:
                        checkers.operator_retries(offset)
            case Ticked():
                checkers.expired(now_ms)
            case Acquire() | RecordsRead() | LogTruncated():
                pass
            case _:
                assert_never(event)
        checkers.persisted(step.changes, acquired=isinstance(event, Acquire))
        for effect in step.effects:
            if isinstance(effect, Delivered):
                if told:
                    checkers.delivered(effect, self.world.now_ms)
                else:
                    checkers.never_arrived(effect)

    def _perform(self, step: Step, answer: Answer) -> None:
        if answer is not None:
            answer(step.effects)
        life = self.life
        for effect in step.effects:
            match effect:
                case Delivered() | AckResult() | Noticed():
                    pass  # answered, or for the log
                case MembersReady(members):
                    self.world.ready(members)
                case ReadOn():
                    self.wish = effect
                    delay_ms = self.world.rng.choice((0, 1, 5, 100))
                    self.world.after(delay_ms, lambda: self._read(life))
                case WriteDeadLetters():
                    self._write_dead_letters(effect)
                case _:
                    assert_never(effect)

    # -------------------------------------------------------------------------- the log and the DLQ

    def _read(self, life: int) -> None:
        log, rng = self.world.log, self.world.rng
        wish = self.wish
        if life != self.life or wish is None or self.core is None:
            return
        if wish.position >= log.end:
            return  # A long poll: `log_grew` answers it.
        self.wish = None
        if self.last_read is not None and rng.random() < self.world.faults.stale_read:
            self._on_read(self.last_read)
        if log.start > wish.position:
            self.handle(LogTruncated(log.start, self.world.now_ms))
            return
        end = min(log.end, wish.position + rng.randint(1, wish.offsets_max))
        offsets, keys = log.read(wish.position, end)
        if log.start > self.core.cursor:
            self.handle(LogTruncated(log.start, self.world.now_ms))
        self._on_read(RecordsRead(wish.position, end, offsets, keys, self.world.now_ms, log.end))

    def _on_read(self, read: RecordsRead) -> None:
        if self.core is not None and read.start == self.core.read_position:
            self.last_read = read
            self.handle(
                RecordsRead(
                    read.start, read.end, read.offsets, read.keys, self.world.now_ms, read.log_end
                )
            )

    def log_grew(self) -> None:
        if self.wish is not None:
            life = self.life
            self.world.after(0, lambda: self._read(life))

    def _write_dead_letters(self, effect: WriteDeadLetters) -> None:
        durable = self.world.rng.random() >= self.world.faults.dead_letter_failure
        if durable:
            self.dead_letters += effect.offsets
        life = self.life

        def answered() -> None:
            if life == self.life:
                self.handle(DeadLettered(effect.offsets, durable, self.world.now_ms))

        self.world.after(self.world.rng.randint(1, 50), answered)

    # ---------------------------------------------------------------------------- crash and rebuild

    def crash(self, when: str) -> None:
        """The process is gone, and every connection with it."""
        self.fail(when)
        self.world.disconnect_all()

    def fail(self, why: str) -> None:
        """The core is thrown away: what it had in memory only is lost."""
        self.world.trace("fail", why)
        self.core = None
        self.life += 1
        unanswered, self.pending = self.pending, []
        for _, _, answer in unanswered:
            if answer is not None:
                answer([])  # A retriable error.
        self.persisting = False
        self.wish = None
        self.world.after(self.world.rng.randint(1, 200), self.rebuild)

    def rebuild(self) -> None:
        if self.core is not None:
            return
        try:
            claimed = self.store.claim_now(KEY, "node")
            snapshot = claimed.snapshot
            if snapshot is None:
                cursor, metadata = self.commit
                snapshot = Snapshot(cursor=cursor, settled=decode(cursor, metadata) or [])
                self.store.create_now(KEY, claimed.fence, snapshot)
                self.world.checkers.regressed(snapshot)
        except StoreError:
            self.world.after(300, self.rebuild)
            return
        self.fence = claimed.fence
        if not self.world.options.policy.reliable:
            cursor, metadata = self.commit
            snapshot = Snapshot(cursor=cursor, settled=decode(cursor, metadata) or [])
            self.world.unreliable.rebuilt(snapshot)
        self.world.checkers.rebuilt()
        self.core = core_of(self.world.options.policy, snapshot)
        self.core.check_invariants()
        self.rebuilds += 1
        self.world.trace("rebuilt", self.core)
        if self.members:
            members = tuple(self.members.values())
            self.handle(MembersChanged(members, self.world.now_ms, Reason.MEMBER_LEFT))
        self.world.ready(list(self.members))

    def tick(self) -> None:
        self.handle(Ticked(self.world.now_ms))

    def commit_now(self) -> None:
        """Only what is persisted may be committed."""
        if self.core is not None and not self.pending:
            cursor, ranges = self.core.cursor, self.core.settled_ranges()
            if self.world.options.policy.reliable:
                self.world.checkers.committed(cursor, ranges)
            self.commit = (cursor, encode(cursor, ranges))

    def operator(self, verb: OperatorVerb) -> None:
        if self.core is not None:
            offsets = [parked.offset for parked in self.core.stats().parked]
            if offsets:
                self.handle(OperatorAct(verb, offsets, self.world.now_ms))

    def _check_bounds(self, core: Core) -> None:
        stats = core.stats()
        policy = self.world.options.policy
        span = stats.read_position - stats.cursor
        if span > policy.span_max:
            raise CheckFailure("BoundedMemory", f"span {span}")
        if not isinstance(core, Dispatcher):
            return  # recounts its own bounds in `check_invariants`
        if policy.window_records is not None and stats.unsettled > policy.window_records:
            raise CheckFailure("BoundedMemory", f"{stats.unsettled} records")
        flow = core._flow
        bounds = {
            "keys": (len(flow.by_key), span + IDLE_KEYS_MAX),
            "retries": (len(flow.retries.by_offset), policy.span_max),
            "timers": (len(flow.retries.timers), 3 * policy.span_max),
            "leases": (len(flow.book.leases), policy.span_max),
            "sessions": (len(flow.book.sessions), policy.span_max),
            "ring": (flow.window.capacity, max(64, 2 * policy.span_max)),
        }
        for name, (size, bound) in bounds.items():
            if size > bound:
                raise CheckFailure("BoundedMemory", f"{name}: {size} > {bound}")
        window = self.store.windows.get(KEY)
        if window is not None and len(window.retries) > policy.span_max:
            raise CheckFailure("BoundedMemory", f"{len(window.retries)} retries in the store")
        if policy.poison is not PoisonPolicy.BLOCK and stats.parked:
            raise CheckFailure("Policy", "parked without the block policy")
