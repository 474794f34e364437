"""The shell around one window's life (dispatcher/core/life/life.py): it performs the commands.

Every decision is the life's: to wait for the store, to refuse, to load again. Here are the steps
that take time or may fail: reading, dead letters, the log lines. The window's task loads it
(window_task.py); the persister and the committer ask the life itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, assert_never

import structlog

from dispatcher.core.dispatcher import Core
from dispatcher.core.epochs import last_epoch
from dispatcher.core.life.commands import (
    NO_TICKET,
    Answer,
    Command,
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
from dispatcher.core.model import (
    Acquire,
    DeadLettered,
    Event,
    Member,
    MemberId,
    NotSent,
    RecordsRead,
    SessionId,
    Ticked,
)
from dispatcher.core.steps import (
    Delivered,
    MembersReady,
    Notice,
    Noticed,
    ReadOn,
    Snapshot,
    Step,
    TailDone,
    WriteDeadLetters,
)
from dispatcher.core.stored.times import brought_near
from dispatcher.store.base import WindowKey
from gateway.config.groups import GroupSection
from gateway.core.cluster.topology import TopicPartition
from gateway.core.reading.cache import RecordsReplaced, epoch_max_of
from gateway.core.reading.fetching import ReadResult, Unreadable
from gateway.core.wire.errors import ErrorCode
from gateway.windows.dependencies import Dependencies
from gateway.windows.failures import WindowUnavailable, failure_of
from gateway.windows.life_log import log_life, log_loaded
from gateway.windows.limits import FORGET_OFFSETS, KEPT_ASIDE_OFFSETS
from gateway.windows.loading import Loaded
from gateway.windows.read_results import taken_in
from gateway.windows.start_position import source_of
from gateway.windows.tickets import Answered, Tickets

log = structlog.get_logger("keyway.window")

NOBODY = 0  # no connection: the node itself
TOO_LARGE = "too large when decompressed"


class Acquired(NamedTuple):
    """Equally long columns. `persisted` may hold WindowUnavailable: then nothing was handed out."""

    offsets: list[int]
    attempts: list[int]
    persisted: Answered
    epoch_max: int  # of the records that are meant


# Long: what a window is asked, and a method for each command of its life that takes some lines.
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
        partitions: int,  # of the topic, now
        asked_by: int = NOBODY,  # the connection that it was opened for
    ) -> None:
        self.key = key
        self.partition = partition
        self.section = dependencies.settings.of(key.group)
        self.partitions = partitions
        self.asked_by = asked_by
        self.leader = -1  # the virtual broker that was last known to lead the partition
        self._members = members
        self._dependencies = dependencies
        self._persist_soon = persist_soon
        self._stirred = stirred
        self._when_loaded = when_loaded
        self.source = source_of(self.section, partition)
        self.life = WindowLife()
        self._forget_from = 0  # the next offset below which the reader is told to forget
        self._tickets = Tickets()
        self._up = asyncio.Event()
        self.when_read: Callable[[ReadResult], None] | None = None  # sees all that is read
        self.work: asyncio.Queue[Load | Pause | None] = asyncio.Queue()  # None: the end

    def __repr__(self) -> str:
        return f"Window({self.key.group} {self.partition.topic}-{self.key.partition})"

    # ------------------------------------------------------------------------------------ events in

    @property
    def dispatcher(self) -> Core | None:
        """The core, None while the window is not up."""
        return self.life.core

    @property
    def trouble(self) -> str:
        """Why the window could not be loaded, or broke; empty: it is up, or on its way."""
        return self.life.trouble

    async def loaded(self) -> None:
        """Waits until the window is up. The caller sets the deadline."""
        await self._up.wait()

    def ask(self, event: Event) -> Answered:
        """Handles `event` now. Its effects come when it is persisted; WindowUnavailable if it was
        not, or nobody knows.
        """
        ticket, future = self._tickets.issue()
        self._handle(event, ticket)
        return future

    def acquire(self, event: Acquire) -> Acquired | None:
        """Acquires records. Which ones is known at once; they may be sent when `persisted` is done.
        None: there are none, or the window is not up.
        """
        if self.life.core is None:
            return None
        ticket, persisted = self._tickets.issue()
        step = self._handle(event, ticket)
        for effect in step.effects if step is not None else ():
            if isinstance(effect, Delivered) and effect.offsets:
                return Acquired(effect.offsets, effect.attempts, persisted, self.epoch_max)
        return None

    def post(self, event: Event) -> None:
        """Handles `event`. A window that is not up ignores it: reloading derives it again."""
        self._handle(event, NO_TICKET)

    def has_session(self, member_id: MemberId, session_id: SessionId) -> bool:
        """Whether records of the window are in flight with this share session; False while it is
        not up.
        """
        core = self.life.core
        return core is not None and core.has_session(member_id, session_id)

    def tick(self, now_ms: int, waiting: frozenset[MemberId]) -> int:
        """The watchdog's; the fetches of `waiting` wait for records. Returns the time of the next
        tick with something to do, if nothing happens before (dispatcher/core/events/ticking.py).
        """
        self.post(Ticked(now_ms, waiting))
        return self.life.due_ms()

    def _handle(self, event: Event, ticket: Ticket) -> Step | None:
        try:
            handled = self.life.handle(event, ticket)
        # A bug in a core costs its own window a rebuild, never the node.
        except Exception as bug:
            log.exception("dispatcher_bug", window=repr(self), event_type=type(event).__name__)
            self.fail(bug)
            if ticket != NO_TICKET:
                self._tickets.refuse(ticket, "internal error")
            return None
        if handled.stirred:
            self._stirred(self)
        if handled.commands:
            self.perform(handled.commands)
        return handled.step

    def ready_for(self, member_id: MemberId, now_ms: int) -> int:
        """How many records `acquire` would hand out now, roughly; 0 = none."""
        core = self.life.core
        return 0 if core is None else core.ready_for(member_id, now_ms)

    @property
    def unsettled_span(self) -> int:
        """Offsets from the oldest unsettled record to the last one read: what a pass over all of
        them costs; 0 while the window is not up.
        """
        core = self.life.core
        return 0 if core is None else max(core.read_position - core.front, 0)

    # ------------------------------------------------------------------------------------- commands

    def perform(self, commands: list[Command]) -> None:  # noqa: C901 - one case each
        """Carries out what follows from an event of the window's life."""
        core = self.life.core
        for command in commands:
            try:
                match command:  # the most frequent first: the cases are tried in their order
                    case Answer():
                        self._tickets.answer(command.ticket, command.effects)
                    case Persist():
                        self._persist_soon(self)
                    case (
                        Noticed()
                        | MembersReady()
                        | ReadOn()
                        | ForgetBelow()
                        | WriteDeadLetters()
                        | TailDone()
                        | Tell()
                    ):
                        if self.life.core is core:  # else the window has broken meanwhile
                            self._perform_effect(command)
                    case Refuse(ticket=ticket, why=why):
                        self._tickets.refuse(ticket, why)
                    case StopReading():
                        self._stop_reading()
                    case Load() | Pause():
                        self.work.put_nowait(command)
                    case TroubleBegan() | TroubleOver() | RetentionPassed() | TailLost():
                        log_life(self._dependencies.log, self.key.group, repr(self), command)
                    case _:
                        assert_never(command)
            except Exception as bug:
                log.exception("command_failed", window=repr(self), command=repr(command))
                self.fail(bug)

    def _perform_effect(
        self,
        effect: Noticed | MembersReady | ReadOn | ForgetBelow | WriteDeadLetters | TailDone | Tell,
    ) -> None:
        match effect:
            case Noticed():
                self._dependencies.noticed(self.key.group, self.partition, effect)
            case MembersReady(members=members):
                ready = [str(one) for one in members]
                self._dependencies.ready.wake(self.key.group, ready)
            case ReadOn(position=position, offsets_max=ahead):
                self._read_on(position, ahead)
            case ForgetBelow(offset=offset):
                self._forget_below(offset)
            case WriteDeadLetters():
                self._dependencies.spawn(self._write_dead_letters(effect))
            case TailDone():
                self.perform(self.life.tail_done(self._dependencies.now_ms()))
            case Tell(event=event):
                self.post(event)
            case _:
                assert_never(effect)

    def _read_on(self, position: int, offsets_max: int) -> None:
        reader, ready = self._dependencies.reader, self._dependencies.ready
        awaited = ready.awaited(self.key.group, self.leader)
        sink, epoch = self.on_read, self._epoch
        reader.read_on(self.source, position, offsets_max, sink, epoch, awaited=awaited)

    def awaited(self) -> None:
        """A fetch waits for its records."""
        self._dependencies.reader.hasten(self.source, self.on_read)

    @property
    def epoch_max(self) -> int:
        """No record of the window is of a later leader epoch."""
        return epoch_max_of(self._epoch)

    @property
    def _epoch(self) -> int:
        core = self.life.core
        return -1 if core is None else last_epoch(core.epochs)

    async def replaced(self, given_back: NotSent) -> None:
        """Other records have taken the offsets of some of this window's, which were to be sent: it
        is loaded and read again, and finds where they begin.
        """
        try:
            await self.ask(given_back)
        except WindowUnavailable:
            return  # it is loaded again anyway
        self._read_again()

    def _read_again(self) -> None:
        self.fail(WindowUnavailable("the log has lost some of its records"))

    def _forget_below(self, offset: int) -> None:
        """Not for every few records that are settled, unless nothing is left behind them."""
        core = self.life.core
        if offset >= self._forget_from or core is None or offset == core.read_position:
            self._forget_from = offset + FORGET_OFFSETS
            if core is not None:
                offset = max(core.cursor, offset - KEPT_ASIDE_OFFSETS)
            self._dependencies.reader.forget_below(self.source, offset, self.on_read)

    def _stop_reading(self) -> None:
        self._forget_from = 0
        if self.life.core is None:
            self._up.clear()
            self._stirred(self)
        self._dependencies.reader.stop(self.source, self.on_read)

    def look_again(self) -> None:
        """Loads the window again: the group may have been moved meanwhile."""
        self.perform(self.life.look_again())

    @property
    def dead_letter_trouble(self) -> str | None:
        """Why the group's dead letters are not being written; None if they are."""
        topic = self.section.dead_letter_topic or ""
        return self._dependencies.dead_letters.trouble(self.partition.topic, topic)

    @property
    def unreadable(self) -> Unreadable | None:
        """Why nothing more can be read of the partition; None if it can."""
        core = self.life.core
        if core is None:
            return None
        return self._dependencies.unreadables.unreadable(self.source, core.read_position)

    def give_up(self, end: int) -> Answered:
        """Reads on at `end`, behind a batch that is too large. The answer is as that of `ask`."""
        core = self.life.core
        assert core is not None
        start = core.read_position
        self.life.given_up.by_operator(start, end)
        done = self.ask(RecordsRead(start, end, [], [], self._dependencies.now_ms()))
        self._gave_up(start)
        return done

    def _gave_up(self, start: int) -> None:
        core = self.life.core
        if core is not None and core.read_position > start:
            given_up = Noticed(Notice.DROPPED, core.read_position - start, TOO_LARGE, start)
            self._dependencies.noticed(self.key.group, self.partition, given_up)

    # -------------------------------------------------------------------------------------- the log

    def on_read(self, read: ReadResult) -> None:
        """The reader's sink."""
        if self.when_read is not None:
            self.when_read(read)
        commands = taken_in(self.life, read, self._dependencies.now_ms())
        self.perform(commands)
        # No commands: the window has left that place, or waits there for an operator.
        if read.error == ErrorCode.MESSAGE_TOO_LARGE and commands:
            self._gave_up(read.start)

    async def _write_dead_letters(self, effect: WriteDeadLetters) -> None:
        section, origin = self.section, self.life.origin
        durable: Sequence[bool | None]
        if not section.dead_letter_topic:
            now_ms = self._dependencies.now_ms()
            self.post(DeadLettered(effect.offsets, durable=False, now_ms=now_ms, no_topic=True))
            return
        try:
            durable = await self._dependencies.dead_letters.write_offsets(
                self.key.group,
                self.source,
                section.dead_letter_topic,
                effect,
                section.dead_letter_queue,
            )
        except RecordsReplaced as replaced:
            durable = replaced.durable
            core = self.life.core
            if core is not None and core.read_position >= core.known_end:
                self._read_again()  # else it comes to where they begin
        except Exception:  # The records stay held and are tried again, as after any failure.
            log.exception("dead_letters_failed", window=repr(self))
            durable = [False] * len(effect.offsets)
        if origin != self.life.origin:
            return  # other records may have the offsets now
        now_ms = self._dependencies.now_ms()
        for wanted in (True, False, None):
            offsets = [o for o, ok in zip(effect.offsets, durable, strict=True) if ok is wanted]
            if offsets:
                durably, gone = wanted is not False, wanted is None
                self.post(DeadLettered(offsets, durable=durably, now_ms=now_ms, gone=gone))

    # ------------------------------------------------------------------------------- life and death

    def go_up(self, loaded: Loaded) -> None:
        # They may have changed while the store was asked, and nobody tells a window on its way.
        self.section = self._dependencies.settings.of(self.key.group)
        self.source = source_of(self.section, self.partition)
        policy, now_ms = self.section.policy(), self._dependencies.now_ms()
        snapshot = brought_near(loaded.snapshot, policy, now_ms)
        commands = self.life.loaded(
            policy,
            snapshot,
            self._members(),
            now_ms,
            fence=loaded.fence,
            origin=loaded.origin,
            settled_ms=loaded.settled_ms,
            hold=self._dependencies.hold_of(self.key) if self.section.reliable else None,
        )
        if self.life.core is None:
            return  # closed meanwhile
        self._up.set()
        log_loaded(repr(self), snapshot)
        self.perform(commands)
        self._when_loaded(self, snapshot)

    def retune(self, section: GroupSection) -> None:
        """The group's settings changed. A window that is not up learns them when it loads."""
        if self.life.core is None:
            return
        self.section = section
        if source_of(section, self.partition) != self.source:
            self.fail(WindowUnavailable("the isolation level has changed"))
        else:
            self.life.retune(section.policy())
            self._stirred(self)

    def fail(self, error: Exception) -> None:
        """Throws the core away and refuses every event that is not persisted."""
        self.perform(self.life.broke(failure_of(error), self._dependencies.now_ms()))

    def close(self) -> None:
        """Stops serving; the state in the store stays. Persist pending steps first."""
        self.perform(self.life.close())
        self.work.put_nowait(None)
