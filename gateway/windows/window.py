"""The shell around one window's life (dispatcher/core/life.py): it performs the commands, and holds
the futures of the waiting callers, by ticket.

Every decision is the life's: to wait for the store, to refuse, to load again. Here are the steps
that take time or may fail: loading, reading, dead letters, the log lines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

import structlog

from dispatcher.core.commands import (
    NO_TICKET,
    Answer,
    Command,
    CommitState,
    Failure,
    ForgetBelow,
    Load,
    Pause,
    Persist,
    PositionReset,
    Refuse,
    RetentionPassed,
    StopReading,
    Tell,
    Ticket,
    TroubleBegan,
    TroubleOver,
)
from dispatcher.core.dispatcher import Core
from dispatcher.core.life import Batch, WindowLife
from dispatcher.core.life_states import LifeState
from dispatcher.core.model import (
    Acquire,
    DeadLettered,
    Delivered,
    Effect,
    Event,
    Member,
    MemberId,
    MembersChanged,
    MembersReady,
    Notice,
    Noticed,
    ReadOn,
    Reason,
    RecordsRead,
    Snapshot,
    Step,
    Ticked,
    WriteDeadLetters,
)
from dispatcher.store.base import Fence, FencedError, StoreError, WindowKey, Write
from gateway.config import GroupSection
from gateway.core.cluster.topology import TopicPartition
from gateway.core.reading.fetching import ReadResult, Unreadable
from gateway.core.wire.errors import ErrorCode
from gateway.upstream.errors import UpstreamError
from gateway.windows.dependencies import Dependencies, retrieved
from gateway.windows.failures import WindowUnavailable, failure_of
from gateway.windows.life_log import log_life, log_loaded
from gateway.windows.loading import Loaded, load
from gateway.windows.read_results import taken_in
from gateway.windows.start_position import source_of

log = structlog.get_logger("keyway.window")

NOBODY = 0  # no connection: the node itself
TOO_LARGE = "too large when decompressed"


@dataclass(frozen=True, slots=True)
class Acquired:
    """Equally long columns. `persisted` may hold WindowUnavailable: then nothing was handed out."""

    offsets: list[int]
    attempts: list[int]
    persisted: asyncio.Future[list[Effect]]


class Window:
    def __init__(
        self,
        key: WindowKey,
        partition: TopicPartition,
        members: Callable[[], tuple[Member, ...]],
        dependencies: Dependencies,
        *,
        persist_soon: Callable[[Window], None],  # there are steps to persist
        stirred: Callable[[Window], None],  # something has happened since its last tick
        when_loaded: Callable[[Window, Snapshot], None],
        added_while_reading: bool = False,  # the partition is younger than the group
        asked_by: int = NOBODY,  # the connection that it was opened for
    ) -> None:
        self.key = key
        self.partition = partition
        self.section = dependencies.settings.of(key.group)
        self._added_while_reading = added_while_reading
        self.asked_by = asked_by
        self.leader = -1  # the broker that was last known to lead the partition
        self._members = members
        self._dependencies = dependencies
        self._persist_soon = persist_soon
        self._stirred = stirred
        self._when_loaded = when_loaded
        self.source = source_of(self.section, partition)
        self._life = WindowLife()
        self._tickets = 0
        self._waiting: dict[Ticket, asyncio.Future[list[Effect]]] = {}
        self._up = asyncio.Event()
        self._work: asyncio.Queue[Load | Pause | None] = asyncio.Queue()  # for `run`; None: the end

    def __repr__(self) -> str:
        return f"Window({self.key.group} {self.partition.topic}-{self.key.partition})"

    # ------------------------------------------------------------------------------------ events in

    @property
    def dispatcher(self) -> Core | None:
        """The core, None while the window is not up."""
        return self._life.core

    @property
    def unsettled_span(self) -> int:
        """Offsets of the span; 0 while the window is not up."""
        core = self._life.core
        return 0 if core is None else max(core.read_position - core.front, 0)

    @property
    def trouble(self) -> str:
        """Why the window could not be loaded, or broke; empty: it is up, or on its way."""
        return self._life.trouble

    async def loaded(self) -> None:
        """Waits until the window is up. The caller sets the deadline."""
        await self._up.wait()

    def ask(self, event: Event) -> asyncio.Future[list[Effect]]:
        """Handles `event` now; its effects, or WindowUnavailable, come when it is persisted."""
        ticket, future = self._ticket()
        self._handle(event, ticket)
        return future

    def acquire(self, event: Acquire) -> Acquired | None:
        """The records that the core hands out, known at once; they may be sent when `persisted` is
        done. None: there are none, or the window is not up.
        """
        if self._life.core is None:
            return None
        ticket, persisted = self._ticket()
        step = self._handle(event, ticket)
        for effect in step.effects if step is not None else ():
            if isinstance(effect, Delivered) and effect.offsets:
                return Acquired(effect.offsets, effect.attempts, persisted)
        persisted.cancel()
        return None

    def post(self, event: Event) -> None:
        """Handles `event`. A window that is not up ignores it: reloading derives it again."""
        self._handle(event, NO_TICKET)

    def tick(self, now_ms: int, waiting: frozenset[MemberId]) -> int:
        """The watchdog's; the fetches of `waiting` wait for records. Returns the time of the next
        tick with something to do, if nothing happens before (dispatcher/core/ticking.py).
        """
        self.post(Ticked(now_ms, waiting))
        return self._life.due_ms()

    def _ticket(self) -> tuple[Ticket, asyncio.Future[list[Effect]]]:
        future: asyncio.Future[list[Effect]] = asyncio.get_running_loop().create_future()
        future.add_done_callback(retrieved)
        self._tickets += 1
        ticket = Ticket(self._tickets)
        self._waiting[ticket] = future
        return ticket, future

    def _handle(self, event: Event, ticket: Ticket) -> Step | None:
        try:
            handled = self._life.handle(event, ticket)
        # A bug in a core costs its own window a rebuild, never the node.
        except Exception as bug:
            log.exception("dispatcher_bug", window=repr(self), event_type=type(event).__name__)
            self.fail(bug)
            if ticket != NO_TICKET:
                self._refuse(ticket, "internal error")
            return None
        if handled.stirred:
            self._stirred(self)
        if handled.commands:
            self._perform(handled.commands)
        return handled.step

    def ready_for(self, member_id: MemberId, now_ms: int) -> int:
        """How many records `acquire` would hand out now, roughly; 0 = none."""
        core = self._life.core
        return 0 if core is None else core.ready_for(member_id, now_ms)

    # ------------------------------------------------------------------------ persist, then effects

    def take_batch(self) -> Batch | None:
        """The changes since the last write; `persisted` or `not_persisted` must follow."""
        return self._life.take_batch()

    def write_of(self, batch: Batch) -> Write:
        return Write(self.key, Fence(batch.fence), batch.changes)

    def persisted(self, batch: Batch) -> None:
        self._perform(self._life.persisted(batch))

    def not_persisted(self, batch: Batch, error: StoreError) -> None:
        now_ms = self._dependencies.now_ms()
        commands = self._life.not_persisted(batch, failure_of(error), now_ms)
        if commands and isinstance(error, FencedError):
            self._dependencies.log.note(self.key.group, "window_fenced", window=repr(self))
        self._perform(commands)

    def _perform(self, commands: list[Command]) -> None:  # noqa: C901 - one case each
        core = self._life.core
        for command in commands:
            try:
                match command:  # the most frequent first: the cases are tried in their order
                    case Answer():
                        future = self._waiting.pop(command.ticket)
                        if not future.done():
                            future.set_result(command.effects)
                    case Persist():
                        self._persist_soon(self)
                    case (
                        Noticed()
                        | MembersReady()
                        | ReadOn()
                        | ForgetBelow()
                        | WriteDeadLetters()
                        | Tell()
                    ):
                        if self._life.core is core:  # else the window has broken meanwhile
                            self._perform_effect(command)
                    case Refuse(ticket=ticket, why=why):
                        self._refuse(ticket, why)
                    case StopReading():
                        self._stop_reading()
                    case Load() | Pause():
                        self._work.put_nowait(command)
                    case TroubleBegan() | TroubleOver() | RetentionPassed() | PositionReset():
                        log_life(self._dependencies.log, self.key.group, repr(self), command)
                    case _:
                        assert_never(command)
            except Exception as bug:
                log.exception("command_failed", window=repr(self), command=repr(command))
                self.fail(bug)

    def _perform_effect(
        self, effect: Noticed | MembersReady | ReadOn | ForgetBelow | WriteDeadLetters | Tell
    ) -> None:
        match effect:
            case Noticed():
                self._dependencies.noticed(self.key.group, self.partition, effect)
            case MembersReady(members=members):
                ready = [str(one) for one in members]
                self._dependencies.ready.wake(self.key.group, ready)
            case ReadOn(position=position, offsets_max=ahead):
                self._dependencies.reader.read_on(self.source, position, ahead, self.on_read)
            case ForgetBelow(offset=offset):
                self._dependencies.reader.forget_below(self.source, offset, self.on_read)
            case WriteDeadLetters():
                self._dependencies.spawn(self._write_dead_letters(effect))
            case Tell(event=event):
                self.post(event)
            case _:
                assert_never(effect)

    def _stop_reading(self) -> None:
        if self._life.core is None:
            self._up.clear()
            self._stirred(self)
        self._dependencies.reader.stop(self.source, self.on_read)

    def _refuse(self, ticket: Ticket, why: str) -> None:
        future = self._waiting.pop(ticket)
        if not future.done():
            future.set_exception(WindowUnavailable(why))

    @property
    def commit_due(self) -> bool:
        """Something has happened that Kafka may not know of."""
        return self._life.commit_due

    def want_commit(self) -> None:
        """The next round trip captures the state that may be committed: `take_committable`."""
        self._perform(self._life.want_commit())

    def take_committable(self) -> CommitState | None:
        """None: nothing new to commit."""
        return self._life.take_committable()

    @property
    def looks_first(self) -> bool:
        """Somebody else may have committed: look at Kafka's commit before the next one."""
        return self._life.looks_first()

    def commit_taken(self, state: CommitState) -> None:
        """Kafka has it."""
        self._life.commit_taken(state)

    def commit_failed(self) -> None:
        """Kafka may have it nevertheless."""
        self._life.commit_failed()

    def look_again(self) -> None:
        """Loads the window again: the group may have been moved meanwhile."""
        self._perform(self._life.look_again())

    @property
    def may_leave(self) -> bool:
        return self._life.may_leave()

    @property
    def dead_letter_trouble(self) -> str | None:
        """Why the group's dead letters are not being written; None if they are."""
        topic = self.section.dead_letter_topic or ""
        return self._dependencies.dead_letters.trouble(self.partition.topic, topic)

    @property
    def unreadable(self) -> Unreadable | None:
        """Why nothing more can be read of the partition; None if it can."""
        core = self._life.core
        if core is None:
            return None
        return self._dependencies.unreadables.unreadable(self.source, core.read_position)

    def give_up(self, end: int) -> asyncio.Future[list[Effect]]:
        """Reads on at `end`, behind a batch that is too large. The future is as that of `ask`."""
        core = self._life.core
        assert core is not None
        start = core.read_position
        self._life.given_up.by_operator(start, end)
        done = self.ask(RecordsRead(start, end, [], [], self._dependencies.now_ms()))
        self._gave_up(start)
        return done

    def _gave_up(self, start: int) -> None:
        core = self._life.core
        if core is not None and core.read_position > start:
            given_up = Noticed(Notice.DROPPED, core.read_position - start, TOO_LARGE, start)
            self._dependencies.noticed(self.key.group, self.partition, given_up)

    # -------------------------------------------------------------------------------------- the log

    def on_read(self, read: ReadResult) -> None:
        """The reader's sink."""
        commands = taken_in(self._life, self.section, read, self._dependencies.now_ms())
        self._perform(commands)
        # No commands: the window has left that place, or waits there for an operator.
        if read.error == ErrorCode.MESSAGE_TOO_LARGE and commands:
            self._gave_up(read.start)

    async def _write_dead_letters(self, effect: WriteDeadLetters) -> None:
        try:
            durable = await self._dependencies.dead_letters.write_offsets(
                self.key.group, self.source, self.section.dead_letter_topic or "", effect
            )
        except Exception:  # The records stay held and are tried again, as after any failure.
            log.exception("dead_letters_failed", window=repr(self))
            durable = [False] * len(effect.offsets)
        now_ms = self._dependencies.now_ms()
        for wanted in (True, False):
            offsets = [o for o, ok in zip(effect.offsets, durable, strict=True) if ok is wanted]
            if offsets:
                self.post(DeadLettered(offsets, durable=wanted, now_ms=now_ms))

    # ------------------------------------------------------------------------------- life and death

    async def run(self) -> None:
        """Loads the window, and pauses before it is loaded again, until `close`."""
        self._perform(self._life.start())
        work = await self._work.get()
        while work is not None:
            match work:
                case Load(reset_to=reset_to):
                    await self._load(reset_to)
                    work = await self._work.get()
                case Pause(wait_ms=wait_ms):
                    work = await self._pause(wait_ms)
                case _:
                    assert_never(work)

    async def _pause(self, wait_ms: int) -> Load | Pause | None:
        try:
            async with asyncio.timeout(wait_ms / 1000):
                return await self._work.get()  # only the end comes meanwhile
        except TimeoutError:
            self._perform(self._life.pause_over())
        return await self._work.get()

    async def _load(self, reset_to: int | None) -> None:
        try:
            async with self._dependencies.loads.turn(self.asked_by):
                await self._dependencies.settings.known(self.key.group)
                loaded = await load(
                    self._dependencies,
                    self.key,
                    self.partition,
                    reliable=self.section.reliable,
                    added_while_reading=self._added_while_reading,
                    reset_to=reset_to,
                )
            self._go_up(loaded)
        except (StoreError, UpstreamError) as error:
            self._not_loaded(error, failure_of(error))
        # A window that cannot be loaded for a bug costs the node this window, not the others.
        except Exception as bug:
            log.exception("window_not_loaded", window=repr(self))
            self._not_loaded(bug, Failure(str(bug), f"{type(bug).__name__}: {bug}", logged=True))

    def _not_loaded(self, error: Exception, failure: Failure) -> None:
        if self._life.state is LifeState.LOADING:
            self._perform(self._life.load_failed(failure))
        else:  # It was up for a moment, or is broken or closed already.
            self.fail(error)

    def _go_up(self, loaded: Loaded) -> None:
        # They may have changed while the store was asked, and nobody tells a window on its way.
        self.section = self._dependencies.settings.of(self.key.group)
        self.source = source_of(self.section, self.partition)
        snapshot = loaded.snapshot
        commands = self._life.loaded(
            self.section.policy(),
            snapshot,
            self._members(),
            self._dependencies.now_ms(),
            fence=loaded.fence,
            origin=loaded.origin,
            settled_ms=loaded.settled_ms,
        )
        if self._life.core is None:
            return  # closed meanwhile
        self._up.set()
        log_loaded(repr(self), snapshot)
        self._perform(commands)
        self._when_loaded(self, snapshot)

    def members_changed(self, members: tuple[Member, ...], reason: Reason) -> None:
        self.post(MembersChanged(members, self._dependencies.now_ms(), reason))

    def retune(self, section: GroupSection) -> None:
        """The group's settings changed. A window that is not up learns them when it loads."""
        if self._life.core is None:
            return
        self.section = section
        if source_of(section, self.partition) != self.source:
            self.fail(WindowUnavailable("the isolation level has changed"))
        else:
            self._life.retune(section.policy())
            self._stirred(self)

    def fail(self, error: Exception) -> None:
        """Throws the core away and refuses every event that is not persisted."""
        self._perform(self._life.broke(failure_of(error), self._dependencies.now_ms()))

    def read_no_more(self) -> None:
        self._perform(self._life.stop_reads())

    def close(self) -> None:
        """Stops serving; the state in the store stays. Persist pending steps first."""
        self._perform(self._life.close())
        self._work.put_nowait(None)
