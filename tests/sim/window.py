"""The simulated shell around the life of one window, the one that gateway/windows runs: it performs
its commands, late, against a store, a log and a DLQ that fail, and judges every answer.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from dispatcher.core.dispatcher import Core
from dispatcher.core.epochs import last_epoch
from dispatcher.core.hold import Hold, HoldMoved
from dispatcher.core.life.batches import Batch
from dispatcher.core.life.commands import (
    Answer,
    Command,
    Failure,
    ForgetBelow,
    Load,
    Pause,
    Persist,
    Refuse,
    RetentionPassed,
    StopReading,
    TailLost,
    Tell,
    Ticket,
    TroubleBegan,
    TroubleOver,
)
from dispatcher.core.life.life import WindowLife
from dispatcher.core.life.states import LifeState
from dispatcher.core.model import (
    DeadLettered,
    Event,
    OperatorAct,
    OperatorVerb,
    RecordsRead,
    Ticked,
)
from dispatcher.core.steps import (
    Effect,
    MembersReady,
    Noticed,
    ReadOn,
    TailDone,
    WriteDeadLetters,
)
from dispatcher.core.stored.cut import Cut, cut_at
from dispatcher.core.stored.snapshot import known_end
from dispatcher.store.base import Fence, StoreError, WindowKey, Write
from tests.sim.bounds import recount
from tests.sim.checkers import Checkers, CheckFailure
from tests.sim.committed import CommittedOffset
from tests.sim.elsewhere import check_held
from tests.sim.filed import settled_of
from tests.sim.judging import Observer, Pending, judge, refused
from tests.sim.loaded import judge_elected, judge_loaded, judge_lost, judge_untold
from tests.sim.lost import diverged, kept_to, know_lost, may_cut
from tests.sim.rest import Rest
from tests.sim.standing import Standing
from tests.sim.unreliable import UnreliableChecker
from tests.sim.upstream import Log

if TYPE_CHECKING:
    from tests.sim.world import World


# Long: a method for each command of the life, which all act on the same window.
class Window:
    def __init__(self, world: World, topic: str, partition: int) -> None:
        self.world = world
        self.key = WindowKey("group", topic, partition)
        self.log = Log()
        self.checkers = Checkers(world.policy, self.log)
        self.unreliable = UnreliableChecker(world.policy, self.log)
        self.life = WindowLife()
        self.fence = Fence(0)  # of the last claim, also of a process that is gone
        self.set_back = False  # the store was, and the core does not know it
        self.gone = False  # with its topic
        self.left = False  # it was idle, and is not in memory
        self.incarnation = 0  # of the core: work started for an earlier one is dropped
        self.tickets = 0
        self.pending: dict[Ticket, Pending] = {}  # in the order of their events
        self.gathers = False  # a write is about to be made of the pending steps
        self.wish: ReadOn | None = None
        self.last_read: RecordsRead | None = None
        self.kept_to: int | None = None  # what the log has lost behind it was told
        self.committed = CommittedOffset(of_before=world.seed % 4 == 0)
        self.dead_letters: set[tuple[int, int]] = set()  # in the DLQ: offsets, epochs
        self.handled, self.handled_ms = 0, 0  # events, and when the last one was
        self.rest, self.standing = Rest(), Standing()
        self.known_to = 0  # what the core knew of when it was loaded
        self.hold: Hold | None = None  # its records wait for another window

    def __repr__(self) -> str:
        return f"{self.key.topic_id}-{self.key.partition}"

    @property
    def core(self) -> Core | None:
        return self.life.core

    @property
    def busy(self) -> bool:
        return bool(self.pending) or self.life.busy

    # ------------------------------------------------------------------------------------ events in

    def handle(self, event: Event, answer: Observer = None) -> bool:
        """False: the window is not up, the event is lost."""
        core, world = self.core, self.world
        if core is None:
            return False
        if world.traced:
            world.trace("event", f"{self!r} {event}")
        self.tickets += 1
        ticket = Ticket(self.tickets)
        handled = self.life.handle(event, ticket)
        step = handled.step
        assert step is not None
        world.events += 1
        world.saw(event, step)
        if world.policy.reliable:
            check_held(self.hold, self.log, step)
        self.handled += 1
        self.handled_ms = event.now_ms
        # Behind the span there may be what a larger one knew before a restart.
        if core.read_position > max(core.front + world.policy.span_max, self.known_to):
            raise CheckFailure("BoundedMemory", f"span {core.front} to {core.read_position}")
        if self.handled % world.options.recount_every == 0:
            self.recount()
        held = self.hold is not None or self.kept_to is not None
        self.pending[ticket] = Pending(event, step, answer, world.policy, held)
        self.perform(handled.commands)
        return True

    def tick(self) -> None:
        if self.rest.ticks(self.life, self.world.now_ms):
            self.handle(Ticked(self.world.now_ms, self.world.waiting()))

    def hold_as(self, hold: Hold | None) -> None:
        self.hold = hold
        self.handle(HoldMoved(hold, self.world.now_ms))

    def operator(self, verb: OperatorVerb) -> None:
        parked = [] if self.core is None else self.core.stats().parked
        if parked:
            self.handle(OperatorAct(verb, [record.offset for record in parked], self.world.now_ms))

    # ------------------------------------------------------------------------ persist, then effects

    def perform(self, commands: list[Command]) -> None:
        """As an event loop does it: waiting callers go on when all commands are performed."""
        incarnation = self.incarnation
        answers: list[tuple[Observer, list[Effect]]] = []
        for command in commands:
            self._perform(command, answers, still=incarnation == self.incarnation)
        self.life.check_invariants()
        for answer, effects in answers:
            if answer is not None:
                answer(effects)

    def _perform(  # noqa: C901 - one case each
        self, command: Command, answers: list[tuple[Observer, list[Effect]]], *, still: bool
    ) -> None:
        world = self.world
        incarnation = self.incarnation
        match command:
            case Persist():
                if not self.gathers:
                    self.gathers = True
                    delay_ms = world.rng.randint(0, world.options.persist_ms_max)
                    world.after(delay_ms, lambda: self._write(incarnation))
            case Answer(ticket=ticket, effects=effects):
                entry = self.pending.pop(ticket)
                judge(self, entry, told=True)
                answers.append((entry.answer, effects))
            case Refuse(ticket=ticket):
                answers.append((refused(self, ticket), []))
            case StopReading():
                self.wish = None
            case Load(cut=cut):
                world.after(world.rng.choice((0, 0, 5, 50)), lambda: self._load(incarnation, cut))
            case Pause(wait_ms=wait_ms):
                world.after(wait_ms, lambda: self._pause_over(incarnation))
            case ForgetBelow() | TroubleBegan() | TroubleOver() | RetentionPassed() | Noticed():
                pass  # for the cache, or for the log
            case TailLost(kept_to=kept_to):
                if not may_cut(self, kept_to):
                    raise CheckFailure("Log", f"{command}, lost from {self.log.lost_from}")
                self.log.lost(kept_to)
                self.kept_to = kept_to
                world.note("TailLost")
            case _ if not still:
                pass
            case Tell(event=event):
                if not isinstance(event, RecordsRead) or self._starts_here(event):
                    self.handle(event)
            case MembersReady(members=members):
                world.ready(members)
            case ReadOn():
                self.wish = command
                world.after(world.rng.choice((0, 1, 5, 100)), lambda: self._read(incarnation))
            case TailDone():
                self._broken("tail done", self.life.tail_done(world.now_ms))
            case WriteDeadLetters():
                self._write_dead_letters(command)
            case _:
                assert_never(command)

    def _write(self, incarnation: int) -> None:
        """The gathered steps leave; events are handled while they are on their way."""
        if incarnation != self.incarnation:
            return
        self.gathers = False
        batch = self.life.take_batch()
        if batch is not None:
            delay_ms = self.world.rng.randint(0, self.world.options.persist_ms_max)
            self.world.after(delay_ms, lambda: self._arrives(incarnation, batch))

    def _arrives(self, incarnation: int, batch: Batch) -> None:
        if incarnation != self.incarnation:
            return
        faults, rng = self.world.faults, self.world.rng
        if rng.random() < faults.crash_before_persist:
            self.world.gateway.crash("before persist")
            return
        if rng.random() < faults.store_error:
            self._not_persisted(batch, "store error, nothing applied")
            return
        if rng.random() < faults.store_late:
            self._applies_late(batch)
            return
        error = self._apply(batch)
        if error is not None:
            self._not_persisted(batch, str(error))
            return
        lost_answer = rng.random() < faults.store_error_applied
        crash = rng.random() < faults.crash_after_persist
        if crash or lost_answer:
            for entry in self._entries(batch):
                judge(self, entry, told=False)
        if crash:
            self.world.gateway.crash("after persist")
        elif lost_answer:
            self._not_persisted(batch, "store error, applied")
        else:
            self.perform(self.life.persisted(batch))
            self._commit()

    def _entries(self, batch: Batch) -> list[Pending]:
        return [self.pending[entry.ticket] for entry in batch.entries]

    def _apply(self, batch: Batch) -> StoreError | None:
        write = Write(self.key, Fence(batch.fence), batch.changes)
        return self.world.gateway.store.apply_now([write])[0]

    def _applies_late(self, batch: Batch) -> None:
        """The round trip is given up, and its write is still on its way."""
        late = self._entries(batch)
        self._not_persisted(batch, "store error, on its way")

        def arrives() -> None:
            if self.gone or self._apply(batch) is not None:
                return
            if self.fence != batch.fence:
                raise CheckFailure("Fencing", "a write of before the claim was taken")
            for entry in late:
                judge(self, entry, told=False)

        self.world.after(self.world.rng.randint(1, 400), arrives)

    # -------------------------------------------------------------------------- the log and the DLQ

    def _read(self, incarnation: int) -> None:
        log, rng = self.log, self.world.rng
        wish = self.wish
        if incarnation != self.incarnation or wish is None or self.core is None:
            return
        now_ms = self.world.now_ms
        if (cut := diverged(log, wish.position, last_epoch(self.core.epochs))) is not None:
            self.wish = None
            self._performs("diverged", self.life.diverged(wish.position, cut, now_ms))
            return
        judge_untold(self)
        if wish.position == log.end:
            return  # A long poll: `log_grew` answers it.
        self.wish = None
        if self.last_read is not None and rng.random() < self.world.faults.stale_read:
            self._on_read(replace(self.last_read, now_ms=now_ms))
        if not log.start <= wish.position <= log.end:
            place = (wish.position, log.start, log.end)
            self._performs("out of range", self.life.out_of_range(*place, now_ms))
            return
        end = wish.position + rng.randint(1, wish.offsets_max)
        epoch = log.epoch_at(log.next_to(wish.position, end))
        end = min(log.end_of(epoch)[0], end)
        offsets, keys = log.read(wish.position, end)
        self._on_read(RecordsRead(wish.position, end, offsets, keys, now_ms, log.end, epoch))

    def elect(self, end: int) -> None:
        """Another leader, which has the log up to `end`; a poll that is out comes back in a
        while.
        """
        known = self.core.known_end if self.core is not None else self.log.end
        self.log.elect(end)
        self._lost(end, known)

    def elect_former(self) -> None:
        """The leader of before the last election is back, with the records that were lost then."""
        known = self.core.known_end if self.core is not None else self.log.end
        self._lost(self.log.elect_former(), known)

    def _lost(self, end: int, known: int) -> None:
        judge_elected(self, end, known)
        self.world.after(self.world.rng.choice((0, 10, 300)), self.log_grew)

    def _on_read(self, read: RecordsRead) -> None:
        if self._starts_here(read):
            self.last_read = read
        self._performs("read", self.life.records_read(read, self.log.start))

    def _performs(self, why: str, commands: list[Command]) -> None:
        if self.core is None:
            self._broken(why, commands)
        else:
            self.perform(commands)

    def _starts_here(self, read: RecordsRead) -> bool:
        return self.core is not None and read.start == self.core.read_position

    def log_grew(self) -> None:
        if self.wish is not None:
            incarnation = self.incarnation
            self.world.after(0, lambda: self._read(incarnation))

    def _write_dead_letters(self, effect: WriteDeadLetters) -> None:
        durable = self.world.rng.random() >= self.world.faults.dead_letter_failure
        if durable:
            epoch_at = self.log.known_epoch_at
            self.dead_letters |= {(offset, epoch_at(offset)) for offset in effect.offsets}
        incarnation = self.incarnation

        def answered() -> None:
            if incarnation == self.incarnation:
                self.handle(DeadLettered(effect.offsets, durable, self.world.now_ms))

        self.world.after(self.world.rng.randint(1, 50), answered)

    # ---------------------------------------------------------------------------- fail and rebuild

    def start(self) -> None:
        self.perform(self.life.start())

    def _not_persisted(self, batch: Batch, why: str) -> None:
        self._broken(why, self.life.not_persisted(batch, Failure(why), self.world.now_ms))

    def _broken(self, why: str, commands: list[Command]) -> None:
        """Work that was started for this core is dropped from now on."""
        self.world.trace("broken", f"{self!r} {why}")
        self.incarnation += 1
        self.gathers = False
        self.perform(commands)

    def crash(self, why: str, *, opens: bool) -> None:
        """The process is gone: nobody is answered, and the next process knows nothing of it. It
        opens the windows of groups with members alone.
        """
        self.world.trace("crash", f"{self!r} {why}")
        self.incarnation += 1
        self.gathers = False
        self.pending.clear()
        self.wish = None
        self.left = not opens
        self.life = WindowLife()
        if opens:
            self.start()

    def close(self) -> None:
        """The topic is gone: its records are owed to nobody."""
        self.gone = True
        self._broken("topic gone", self.life.close())

    @property
    def may_leave(self) -> bool:
        return not self.left and self.life.may_leave()

    def leave(self) -> None:
        """It has been idle for long: out of memory, until members come back."""
        self.left = True
        if self.life.state is LifeState.LOADING:
            self.world.after(self.world.rng.choice((0, 50)), self._claims_late)
        self._broken("left memory", self.life.close())

    def _claims_late(self) -> None:
        """The load of a window that was closed goes on until the store has answered."""
        if not self.gone:
            with suppress(StoreError):
                self.world.gateway.store.claim_now(self.key, "node")

    def come_back(self) -> None:
        self.left = False
        self.life = WindowLife()
        self.start()

    def _pause_over(self, incarnation: int) -> None:
        if incarnation == self.incarnation:
            self.perform(self.life.pause_over())

    def _load(self, incarnation: int, cut: Cut | None) -> None:
        world, gateway = self.world, self.world.gateway
        if incarnation != self.incarnation:
            return
        committed = self.committed.snapshot
        try:
            claimed = gateway.store.claim_now(self.key, "node")
            found = self.committed.reconciled(claimed, reliable=world.policy.reliable)
            latest = max(claimed.origin if claimed.snapshot else 0, self.committed.origin)
            if cut is not None and not cut.concerns(latest):
                cut = None
            origin = claimed.origin if world.policy.reliable else latest
            snapshot = found if cut is None else cut_at(found, cut)
            if snapshot is not claimed.snapshot:
                origin = max(claimed.next_origin, self.committed.origin)
                gateway.store.create_now(self.key, claimed.fence, snapshot, origin=origin)
        except StoreError as error:
            self.perform(self.life.load_failed(Failure(str(error), str(error))))
            return
        self.fence = claimed.fence
        regressed = self.set_back or claimed.snapshot is None
        told_by = found if world.policy.reliable else committed
        know_lost(self.log, told_by, cut, regressed=regressed)
        judge_loaded(self, claimed, snapshot, committed, kept_to(found, cut))
        if not world.policy.reliable:
            snapshot = committed if cut is None else cut_at(committed, cut)
        told, self.kept_to = self.kept_to, None
        if cut is not None and told is not None and known_end(snapshot) > told:
            raise CheckFailure("Log", f"{snapshot}, which was told to be kept to {told}")
        judge_lost(self, snapshot)
        if not world.policy.reliable:
            self.unreliable.rebuilt(snapshot)
        self.incarnation += 1
        members = gateway.told_members()
        now_ms = world.now_ms
        commands = self.life.loaded(
            *(world.policy, snapshot, members, now_ms),
            fence=claimed.fence,
            origin=origin,
            hold=self.hold,
        )
        assert self.core is not None
        self.core.check_invariants()
        self.known_to = self.core.known_end
        known = settled_of(self.core.snapshot())
        self.checkers.rebuilt(self.core.cursor, self.core.front, known)
        world.trace("loaded", self.core)
        self.perform(commands)
        for event in gateway.missed(snapshot):
            self.handle(event)

    def commit_now(self) -> None:
        """A state that is persisted may be committed; the store is asked, and may be another."""
        if self.rest.commits_now(self.life):
            self.perform(self.life.want_commit())
        self._commit()

    def _commit(self) -> None:
        state = self.life.take_committable()
        if state is None:
            return
        if self.world.gateway.kafka_away:
            self.life.commit_failed()
            return
        if self.life.looks_first() and self.committed.overtakes(state):
            self.world.note("Overtaken")
            self.look_again("a position was set elsewhere")
            return
        if self.world.policy.reliable:
            self.checkers.committed(state.cursor, state.settled)
        self.committed.write(state)
        self.life.commit_taken(state, self.world.now_ms)

    def set_elsewhere(self) -> None:
        store = self.world.gateway.store
        before = max(store.last_fence, store.origins.get(self.key, 0))
        self.committed.set_elsewhere(self.log, self.world.rng, self.world.policy, before)

    def look_again(self, why: str) -> None:
        if self.core is not None:
            self._broken(why, self.life.look_again())

    def recount(self) -> None:
        if self.core is not None:
            stored = self.world.gateway.store.windows.get(self.key)
            span_max_ever = self.world.reshaping.span_max_ever
            recount(self.core, stored, self.world.options, self.world.policy, span_max_ever)
