"""The simulated shell around one real core: it persists, then performs; it is thrown away and
rebuilt.

Modelled on gateway/windows/window.py: events are handled at once, the changes of all events since
the last round trip are persisted together, a read that does not start at the read position is
dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from dispatcher.core.dispatcher import Core, Dispatcher, core_of
from dispatcher.core.limits import IDLE_KEYS_MAX
from dispatcher.core.model import (
    Acknowledge,
    AckResult,
    Acquire,
    Change,
    DeadLettered,
    Delivered,
    Effect,
    Event,
    LogTruncated,
    MembersChanged,
    MembersReady,
    Noticed,
    NotSent,
    OperatorAct,
    OperatorVerb,
    PoisonPolicy,
    Policy,
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
from dispatcher.core.reconcile import reconciled
from dispatcher.store.base import Claimed, Fence, StoreError, WindowKey, Write
from settled.core.metadata import decode, encode, read
from tests.sim.checkers import Checkers, CheckFailure
from tests.sim.filed import settled_of
from tests.sim.unreliable import UnreliableChecker
from tests.sim.upstream import Log

if TYPE_CHECKING:
    from tests.sim.world import World

Answer = Callable[[list[Effect]], None] | None


@dataclass(frozen=True, slots=True)
class Pending:
    """One step that is not persisted yet, and the policy it was made under."""

    event: Event
    step: Step
    answer: Answer
    policy: Policy


class Window:
    def __init__(self, world: World, topic: str, partition: int) -> None:
        self.world = world
        self.key = WindowKey("group", topic, partition)
        self.log = Log()
        self.checkers = Checkers(world.policy, self.log)
        self.unreliable = UnreliableChecker(world.policy, self.log)
        self.core: Core | None = None
        self.fence = Fence(0)
        self.origin = 0
        self.set_back = False  # the store was, and the core does not know it
        self.life = 0  # of the core: what was started for an earlier one is dropped
        self.closed = False  # the topic was deleted
        self.pending: list[Pending] = []
        self.persisting = False
        self.wish: ReadOn | None = None
        self.last_read: RecordsRead | None = None
        self.commit = (0, encode(0, []))
        self.dead_letters: list[int] = []
        self.handled = 0  # events
        self.handled_ms = 0  # when the last one was

    def __repr__(self) -> str:
        return f"{self.key.topic_id}-{self.key.partition}"

    # ------------------------------------------------------------------------------------ events in

    def handle(self, event: Event, answer: Answer = None) -> bool:
        """False: the window is not up, the event is lost."""
        core, world = self.core, self.world
        if core is None:
            return False
        if world.traced:
            world.trace("event", f"{self!r} {event}")
        step = core.handle(event)
        world.events += 1
        world.saw(event, step)
        self.handled += 1
        self.handled_ms = event.now_ms
        if core.read_position - core.cursor > world.policy.span_max:
            raise CheckFailure("BoundedMemory", f"span {core.cursor} to {core.read_position}")
        if self.handled % world.options.recount_every == 0:
            self.recount()
        self.pending.append(Pending(event, step, answer, world.policy))
        if not self.persisting:
            if not step.changes:
                self._settle(told=True)
                return True
            self._persist_soon()
        return True

    def tick(self) -> None:
        self.handle(Ticked(self.world.now_ms))

    def operator(self, verb: OperatorVerb) -> None:
        if self.core is not None:
            offsets = [parked.offset for parked in self.core.stats().parked]
            if offsets:
                self.handle(OperatorAct(verb, offsets, self.world.now_ms))

    # ------------------------------------------------------------------------ persist, then effects

    def _persist_soon(self) -> None:
        self.persisting = True
        life = self.life
        delay_ms = self.world.rng.randint(0, self.world.options.persist_ms_max)
        self.world.after(delay_ms, lambda: self._persist(life))

    def _persist(self, life: int) -> None:
        if life != self.life:
            return
        faults, rng = self.world.faults, self.world.rng
        if rng.random() < faults.crash_before_persist:
            self.world.gateway.crash("before persist")
            return
        changes = [change for entry in self.pending for change in entry.step.changes]
        if rng.random() < faults.store_error:
            self.fail("store error, nothing applied")
            return
        if rng.random() < faults.store_late:
            self._applies_late(changes)
            return
        error = self._apply(self.fence, changes)
        if error is not None:
            self.fail(str(error))
            return
        lost_answer = rng.random() < faults.store_error_applied
        crash = rng.random() < faults.crash_after_persist
        if not (crash or lost_answer):
            self._settle(told=True)
            if life == self.life:
                self.persisting = False
                if self.pending:  # What performing this has led to.
                    self._persist_soon()
            return
        unanswered = self.pending
        self._settle(told=False)
        self.pending = unanswered
        if crash:
            self.world.gateway.crash("after persist")
        else:
            self.fail("store error, applied")

    def _apply(self, fence: Fence, changes: list[Change]) -> StoreError | None:
        (error,) = self.world.gateway.store.apply_now([Write(self.key, fence, changes)])
        return error

    def _applies_late(self, changes: list[Change]) -> None:
        """The round trip is given up, and its write is still on its way."""
        late, fence = self.pending, self.fence
        self.fail("store error, on its way")

        def arrives() -> None:
            if self.closed or self._apply(fence, changes) is not None:
                return
            if self.fence != fence:
                raise CheckFailure("Fencing", "a write of before the claim was taken")
            for entry in late:
                self._judge(entry, told=False)

        self.world.after(self.world.rng.randint(1, 400), arrives)

    def _settle(self, *, told: bool) -> None:
        """Persists the pending steps."""
        batch, self.pending = self.pending, []
        life = self.life
        for entry in batch:
            self._judge(entry, told=told)
            if told and life == self.life:
                self._perform(entry.step, entry.answer)

    def _judge(self, entry: Pending, *, told: bool) -> None:  # noqa: C901 - one case per event
        """Tells the checkers about a persisted step, in the order of the steps."""
        checkers, event, step = self.checkers, entry.event, entry.step
        if not entry.policy.reliable:
            self.unreliable.judge(event, step, told=told)
            return
        checkers.policy = entry.policy
        now_ms = event.now_ms
        match event:
            case Acknowledge():
                (result,) = [e for e in step.effects if isinstance(e, AckResult)]
                checkers.acknowledging(
                    event.member_id, event.session_id, event.batches, result.errors, now_ms
                )
            case NotSent():
                checkers.not_sent(event.offsets, event.member_id, event.session_id)
            case SessionClosed():
                checkers.closed(event.member_id, event.session_id)
            case SessionLost():
                checkers.lost(event.member_id, event.session_id, now_ms)
            case SessionOpened():
                checkers.opened(event.member_id, event.session_id, now_ms)
            case MembersChanged():
                checkers.members_changed(event.members, event.reason, now_ms)
            case DeadLettered():
                for offset in event.offsets if event.durable else ():
                    checkers.cause(offset, "dead-lettered")
            case OperatorAct():
                for offset in event.offsets:
                    if event.verb is OperatorVerb.SKIP:
                        checkers.cause(offset, "skipped by the operator")
                    elif event.verb is OperatorVerb.RETRY:
                        checkers.operator_retries(offset)
            case Ticked():
                checkers.expired(now_ms)
            case RecordsRead():
                checkers.read(event)
            case Acquire() | LogTruncated():
                pass
            case _:
                assert_never(event)
        checkers.persisted(step.changes, acquired=isinstance(event, Acquire))
        if isinstance(event, Acquire):
            (delivered,) = [e for e in step.effects if isinstance(e, Delivered)]
            self._judge_delivered(event, delivered, told=told)

    def _judge_delivered(self, event: Acquire, effect: Delivered, *, told: bool) -> None:
        checkers = self.checkers
        if not told:
            checkers.never_arrived(effect)
            return
        checkers.delivered(effect, event.records_max, self.world.now_ms)
        few = len(effect.offsets) < event.records_max and checkers.may_hold_more(event.member_id)
        if few and self.handled % self.world.options.recount_every == 0:
            offset = checkers.withheld(event.member_id, event.now_ms)
            if offset is not None:
                raise CheckFailure("NothingWithheld", f"{offset} from {event.member_id}")

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
        log, rng = self.log, self.world.rng
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

    # ---------------------------------------------------------------------------- fail and rebuild

    def fail(self, why: str) -> None:
        """The core is thrown away: what it had in memory only is lost."""
        self.world.trace("fail", f"{self!r} {why}")
        self._drop_core()
        self.world.after(self.world.rng.randint(1, 200), self.rebuild)

    def close(self) -> None:
        """The topic is gone: what was produced to it is owed to nobody."""
        self.closed = True
        self._drop_core()

    def _drop_core(self) -> None:
        self.core = None
        self.life += 1
        unanswered, self.pending = self.pending, []
        for entry in unanswered:
            if entry.answer is not None:
                entry.answer([])  # A retriable error.
        self.persisting = False
        self.wish = None

    def rebuild(self) -> None:
        world, gateway = self.world, self.world.gateway
        if self.core is not None or self.closed:
            return
        cursor, metadata = self.commit
        committed = Snapshot(cursor=cursor, settled=decode(cursor, metadata) or [])
        try:
            claimed = gateway.store.claim_now(self.key, "node")
            snapshot = self._reconciled(claimed, committed)
            if snapshot is not claimed.snapshot:
                gateway.store.create_now(self.key, claimed.fence, snapshot)
        except StoreError:
            world.after(300, self.rebuild)
            return
        self._judge_loaded(claimed, snapshot, committed)
        self.fence = claimed.fence
        self.origin = claimed.origin if snapshot is claimed.snapshot else claimed.fence
        if not world.policy.reliable:
            snapshot = committed
            self.unreliable.rebuilt(snapshot)
        self.life += 1
        self.core = core_of(world.policy, snapshot)
        self.core.check_invariants()
        self.checkers.rebuilt(self.core.read_position)
        world.trace("rebuilt", self.core)
        # What it missed while it was away, as gateway/windows/windows.py tells it.
        now_ms = world.now_ms
        self.handle(MembersChanged(tuple(gateway.members.values()), now_ms, Reason.MEMBER_LEFT))
        for lease in snapshot.leases:
            if lease.session_id in gateway.ended:
                self.handle(SessionLost(lease.member_id, lease.session_id, now_ms))
        for session_id, member_id in gateway.sessions.items():
            self.handle(SessionOpened(member_id, session_id, now_ms))

    def _reconciled(self, claimed: Claimed, committed: Snapshot) -> Snapshot:
        """As gateway/windows/loading.py."""
        if claimed.snapshot is None:
            return committed
        if not self.world.policy.reliable:
            return claimed.snapshot
        return reconciled(claimed.snapshot, claimed.origin, committed, self._committed_origin)

    @property
    def _committed_origin(self) -> int:
        _, origin = read(*self.commit)
        return origin

    def _judge_loaded(self, claimed: Claimed, snapshot: Snapshot, committed: Snapshot) -> None:
        was_set_back, self.set_back = self.set_back, False
        if claimed.snapshot is None:
            self.checkers.regressed(committed)
        elif not self.world.policy.reliable:
            return
        elif not was_set_back:
            # Holes of the log are in the commit alone.
            come = settled_of(snapshot) - settled_of(claimed.snapshot)
            if come & self.log.records.keys():
                raise CheckFailure("StoreIsAhead", f"{claimed} of {committed}")
        elif self._committed_origin > claimed.origin:
            self.checkers.regressed(committed)
        else:
            same = self._committed_origin == claimed.origin
            self.checkers.set_back(snapshot, committed if same else Snapshot(cursor=0))
            if snapshot is not claimed.snapshot:
                self.world.note("Merged")

    def commit_now(self) -> None:
        """Only what is persisted may be committed; the store is asked, and may be another."""
        if self.core is None or self.pending:
            return
        cursor, ranges = self.core.cursor, self.core.settled_ranges()
        if self.world.policy.reliable:
            if self._apply(self.fence, []) is not None:
                self.fail("the store does not have it")
                return
            self.checkers.committed(cursor, ranges)
        self.commit = (cursor, encode(cursor, ranges, origin=self.origin))

    # --------------------------------------------------------------------------------------- bounds

    def recount(self) -> None:
        """Checks that cost by the size of the window: the core's own recount, and its memory."""
        core = self.core
        if core is None:
            return
        core.check_invariants()
        if not isinstance(core, Dispatcher):
            return  # recounts its own bounds in `check_invariants`
        policy = self.world.policy
        state = core._state
        span = core.read_position - core.cursor
        bounds = {
            "keys": (len(state.by_key), span + IDLE_KEYS_MAX),
            "retries": (len(state.retries.by_offset), policy.span_max),
            "timers": (len(state.retries.timers), 3 * policy.span_max),
            "leases": (len(state.book.leases), policy.span_max),
            "sessions": (len(state.book.sessions), policy.span_max),
            "ring": (state.window.capacity, max(64, 2 * policy.span_max)),
        }
        for name, (size, bound) in bounds.items():
            if size > bound:
                raise CheckFailure("BoundedMemory", f"{name}: {size} > {bound}")
        stored = self.world.gateway.store.windows.get(self.key)
        if stored is not None and len(stored.retries) > policy.span_max:
            raise CheckFailure("BoundedMemory", f"{len(stored.retries)} retries in the store")
        blocks = policy.poison is PoisonPolicy.BLOCK or self.world.options.faults.retune > 0
        stats = core.stats()
        if policy.window_records is not None and stats.unsettled > policy.window_records:
            raise CheckFailure("BoundedMemory", f"{stats.unsettled} records")
        if not blocks and stats.parked:
            raise CheckFailure("Policy", "parked without the block policy")
