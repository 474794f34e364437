"""The shell around one dispatcher: one (group, topic, partition) window.

An event is handled at once, in memory; the changes of all events since the last round trip are
persisted together, and only then are their effects performed. After a failed persist the core is
thrown away and rebuilt from the store, or, when the store has lost the window, from the offset and
bitmap committed to Kafka: the crash path is the only path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

import structlog

from dispatcher.core.dispatcher import Core, core_of
from dispatcher.core.model import (
    AckResult,
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
    ReadOn,
    Reason,
    RecordsRead,
    Step,
    WriteDeadLetters,
)
from dispatcher.store.base import Fence, FencedError, StoreError, WindowKey, Write
from gateway.config import GroupSection
from gateway.core.cluster.topology import TopicPartition
from gateway.core.reading.fetching import ReadResult
from gateway.core.wire.errors import ErrorCode
from gateway.upstream.errors import UpstreamError
from gateway.windows.dependencies import CommitState, Dependencies, retrieved
from gateway.windows.limits import WINDOW_RETRY_MS_MAX, WINDOW_RETRY_MS_MIN
from gateway.windows.loading import load
from gateway.windows.start_position import isolation_of
from gateway.windows.store_availability import away
from gateway.windows.unconfirmed_deliveries import UnconfirmedDeliveries

log = structlog.get_logger("keyway.window")


class WindowUnavailable(Exception):
    """The window has no store, no upstream or no owner right now; nothing of the event was kept.
    Retriable.
    """


@dataclass(frozen=True, slots=True)
class Acquired:
    """Equally long columns. `persisted` may hold WindowUnavailable: then nothing was handed out."""

    offsets: list[int]
    attempts: list[int]
    persisted: asyncio.Future[list[Effect]]


_Waiting = asyncio.Future[list[Effect]] | None


class Window:
    def __init__(
        self,
        key: WindowKey,
        partition: TopicPartition,
        members: Callable[[], tuple[Member, ...]],
        dependencies: Dependencies,
        *,
        added_while_reading: bool = False,  # the partition is younger than the group
    ) -> None:
        self.key = key
        self.partition = partition
        self.section = dependencies.settings.of(key.group)
        self._added_while_reading = added_while_reading
        self.idle_since_ms: int | None = None
        self.leader = -1  # the broker that was last known to lead the partition
        self.commit_wanted = False
        self.committed: CommitState | None = None
        self.committable: CommitState | None = None
        self._members = members
        self._dependencies = dependencies
        self._dispatcher: Core | None = None
        self._fence = Fence(0)
        self._origin = 0
        self._forgotten_below = -1
        self._isolation = isolation_of(self.section)
        self._steps: list[tuple[Step, _Waiting]] = []
        self._persisting: list[tuple[Step, _Waiting]] = []
        self._unconfirmed = UnconfirmedDeliveries()
        self._capture: CommitState | None = None
        self._write: Write | None = None
        self._reset_to: int | None = None
        self._reads_no_more = False
        self._broken = asyncio.Event()
        self._closed = asyncio.Event()
        self._loaded = asyncio.Event()
        self._trouble = ""

    def __repr__(self) -> str:
        return f"Window({self.key.group} {self.partition.topic}-{self.key.partition})"

    # ------------------------------------------------------------------------------------ events in

    @property
    def dispatcher(self) -> Core | None:
        """The core, None while the window is being rebuilt."""
        return self._dispatcher

    @property
    def unsettled_span(self) -> int:
        """Offsets from the cursor to the last one read; 0 while the window is being rebuilt."""
        core = self._dispatcher
        return 0 if core is None else core.read_position - core.cursor

    @property
    def trouble(self) -> str:
        """Why the window could not be loaded, or broke; empty: it is up, or on its way."""
        return self._trouble

    async def loaded(self) -> None:
        """Waits until the core is there. The caller sets the deadline."""
        await self._loaded.wait()

    def ask(self, event: Event) -> asyncio.Future[list[Effect]]:
        """Handles `event` now; the effects come when its changes are persisted. The future may hold
        WindowUnavailable.
        """
        future: asyncio.Future[list[Effect]] = asyncio.get_running_loop().create_future()
        if self._dispatcher is None:
            future.set_exception(WindowUnavailable(self._trouble or "loading"))
            future.add_done_callback(retrieved)
            return future
        future.add_done_callback(retrieved)
        self._handle(event, future)
        return future

    def acquire(self, event: Acquire) -> Acquired | None:
        """Records from the core, known at once; they may be sent when they are persisted."""
        if self._dispatcher is None:
            return None
        persisted: asyncio.Future[list[Effect]] = asyncio.get_running_loop().create_future()
        persisted.add_done_callback(retrieved)
        step = self._handle(event, persisted)
        for effect in step.effects if step is not None else ():
            if isinstance(effect, Delivered) and effect.offsets:
                return Acquired(effect.offsets, effect.attempts, persisted)
        persisted.cancel()
        return None

    def ready_for(self, member_id: MemberId, now_ms: int) -> int:
        """How many records `acquire` would hand out now, roughly; 0 = none."""
        core = self._dispatcher
        return 0 if core is None else core.ready_for(member_id, now_ms)

    async def bytes_for(self, offsets: list[int], records_max: int, bytes_max: int) -> bytes:
        """Batches with exactly these records. Raises RecordsGone, RecordsLarge, UpstreamError."""
        return await self._dependencies.reader.bytes_for(
            self.partition, offsets, records_max, bytes_max, isolation=self._isolation
        )

    @property
    def mean_record_bytes(self) -> int:
        return self._dependencies.reader.mean_record_bytes(
            self.partition, isolation=self._isolation
        )

    def post(self, event: Event) -> None:
        """Handles `event` if the window is up. One that is not will learn the same when it is
        rebuilt.
        """
        if self._dispatcher is not None:
            self._handle(event, None)

    def _handle(self, event: Event, future: _Waiting) -> Step | None:
        assert self._dispatcher is not None
        try:
            step = self._dispatcher.handle(event)
        # A bug in a core costs its own window a rebuild, never the node.
        except Exception as bug:
            log.exception("dispatcher_bug", window=repr(self), event_type=type(event).__name__)
            if future is not None:
                future.set_exception(WindowUnavailable("internal error"))
            self.fail(bug)
            return None
        if not step.changes and not self._steps and not self._persisting:
            self._settle(step, future)
            return step
        self._steps.append((step, future))
        self._dependencies.dirty(self)
        return step

    # ------------------------------------------------------------------------ persist, then effects

    def take_write(self) -> Write | None:
        """The changes since the last write; `persisted` or `not_persisted` must follow before the
        next.
        """
        if self._dispatcher is None or self._write is not None:
            return None
        if self.commit_wanted:
            self._capture = self._state_of(self._dispatcher)
            self.commit_wanted = False
        elif not self._steps:
            return None
        self._persisting, self._steps = self._steps, []
        changes: list[Change] = []
        for step, _ in self._persisting:
            changes.extend(step.changes)
        self._write = Write(self.key, self._fence, changes)
        return self._write

    def persisted(self, write: Write) -> None:
        if write is not self._write:
            return  # of a core that was thrown away meanwhile
        self._write = None
        done, self._persisting = self._persisting, []
        if self._capture is not None:
            self.committable, self._capture = self._capture, None
        for step, future in done:
            self._settle(step, future)
        self._forget_settled()
        if self._steps or self.commit_wanted:
            self._dependencies.dirty(self)

    def not_persisted(self, write: Write, error: StoreError) -> None:
        if write is self._write:
            self.fail(error)

    def _settle(self, step: Step, future: _Waiting) -> None:
        if future is not None and not future.done():
            future.set_result(step.effects)
        try:
            for effect in step.effects:
                self._perform(effect)
        except Exception as bug:
            log.exception("effect_failed", window=repr(self))
            self.fail(bug)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Delivered() | AckResult():
                pass  # answered through the future of the event
            case MembersReady(members=members):
                self._dependencies.members_ready(
                    self.key.group, [str(member) for member in members]
                )
            case ReadOn() if self._reads_no_more:
                pass
            case ReadOn(position=position, offsets_max=offsets_max):
                self._dependencies.reader.read_on(
                    self.partition, position, offsets_max, self.on_read, isolation=self._isolation
                )
            case WriteDeadLetters():
                self._dependencies.spawn(self._write_dead_letters(effect))
            case Noticed():
                self._dependencies.noticed(self.key.group, self.partition, effect)
            case _:
                assert_never(effect)

    def _forget_settled(self) -> None:
        """Batches below the cursor need no room in the cache any more."""
        core = self._dispatcher
        if core is not None and core.cursor != self._forgotten_below:
            self._forgotten_below = core.cursor
            self._dependencies.reader.forget_below(
                self.partition, core.cursor, self.on_read, isolation=self._isolation
            )

    @property
    def busy(self) -> bool:
        """There are steps that are not persisted yet."""
        return self._write is not None or bool(self._steps) or self.commit_wanted

    def want_commit(self) -> None:
        """The next round trip captures what may be committed, into `committable`."""
        core = self._dispatcher
        if core is not None and self.section.reliable:
            self.commit_wanted = True
            self._dependencies.dirty(self)
        elif core is not None:  # It has no round trips: Kafka alone knows where it stands.
            self.committable = self._state_of(core)
            self._forget_settled()

    @property
    def uncommitted(self) -> bool:
        core = self._dispatcher
        return core is not None and self.committed != self._state_of(core)

    def _state_of(self, core: Core) -> CommitState:
        return CommitState(core.cursor, core.settled_ranges(), self._origin)

    @property
    def dead_letter_trouble(self) -> str | None:
        """Why the group's dead letters are not being written; None if they are."""
        topic = self.section.dead_letter_topic or ""
        return self._dependencies.dead_letters.trouble(self.partition.topic, topic)

    @property
    def read_trouble(self) -> str | None:
        """Why nothing more can be read of the partition; None if it can."""
        return self._dependencies.reader.trouble(self.partition, isolation=self._isolation)

    # -------------------------------------------------------------------------------------- the log

    def on_read(self, read: ReadResult) -> None:
        """The reader's sink."""
        core = self._dispatcher
        if core is None or read.start != core.read_position:
            return  # the window was rebuilt or moved on meanwhile and has asked again
        now_ms = self._dependencies.now_ms()
        if read.error == ErrorCode.NONE:
            if read.log_start > core.cursor:
                self.post(LogTruncated(read.log_start, now_ms))
                core = self._dispatcher
                if core is None or read.start != core.read_position:
                    return
            ahead = read.high_watermark
            self.post(RecordsRead(read.start, read.end, read.offsets, read.keys, now_ms, ahead))
        elif read.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(read, core, now_ms)
        else:
            # The reader has tried long enough: claim and try again from the start, with back-off.
            self.fail(WindowUnavailable(f"reading failed with Kafka error {read.error}"))

    def _out_of_range(self, read: ReadResult, core: Core, now_ms: int) -> None:
        if read.log_start > core.read_position:
            log.warning(
                "retention_passed_cursor",
                window=repr(self),
                cursor=core.cursor,
                log_start=read.log_start,
            )
            self.post(LogTruncated(read.log_start, now_ms))
            return
        # The log ends below what was read before: an unclean election, or offsets set beyond the
        # end.
        earliest = self.section.auto_offset_reset == "earliest"
        self._reset_to = read.log_start if earliest else read.high_watermark
        log.error(
            "position_beyond_log_end",
            window=repr(self),
            position=core.read_position,
            log_end=read.high_watermark,
            reset_to=self._reset_to,
        )
        self.fail(WindowUnavailable("reset"))

    async def _write_dead_letters(self, effect: WriteDeadLetters) -> None:
        try:
            durable = await self._dependencies.dead_letters.write_offsets(
                self.key.group,
                self.partition,
                self.section.dead_letter_topic or "",
                effect,
                isolation=self._isolation,
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
        """Loads the window and loads it again whenever it breaks, until `close`.

        The pause between two attempts doubles unless the window had been up for a while: one that
        breaks as soon as it is loaded must not claim, log and read ten times a second.
        """
        wait_ms = WINDOW_RETRY_MS_MIN
        while not self._closed.is_set():
            if await self._loads():
                up_since = asyncio.get_running_loop().time()
                await self._broken.wait()
                if asyncio.get_running_loop().time() - up_since >= WINDOW_RETRY_MS_MAX / 1000:
                    wait_ms = WINDOW_RETRY_MS_MIN
            await self._pause(wait_ms)
            wait_ms = min(2 * wait_ms, WINDOW_RETRY_MS_MAX)

    async def _loads(self) -> bool:
        try:
            await self._load()
        except (StoreError, UpstreamError) as error:
            self._note_trouble(error)
            return False
        # As a bug in a core: what it cannot load costs the node this window, not the others.
        except Exception as bug:
            log.exception("window_not_loaded", window=repr(self))
            self._trouble = f"{type(bug).__name__}: {bug}"
            return False
        if self._trouble:
            log.debug("window_recovered", window=repr(self), after=self._trouble)
            self._trouble = ""
        return True

    def _note_trouble(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        # A store that is away concerns all windows: store_availability.py logs it once.
        if text != self._trouble and not (isinstance(error, StoreError) and away(error)):
            log.warning("window_waits", window=repr(self), reason=text)
        self._trouble = text

    async def _pause(self, wait_ms: int) -> None:
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._closed.wait()
        except TimeoutError:
            pass

    async def _load(self) -> None:
        await self._dependencies.settings.known(self.key.group)
        loaded = await load(
            self._dependencies,
            self.key,
            self.partition,
            reliable=self.section.reliable,
            added_while_reading=self._added_while_reading,
            reset_to=self._reset_to,
        )
        self._reset_to = None
        if self._closed.is_set():
            return
        # They may have changed while the store was asked, and nobody tells a window on its way.
        self.section = self._dependencies.settings.of(self.key.group)
        self._isolation = isolation_of(self.section)
        self._fence, self._origin, snapshot = loaded.fence, loaded.origin, loaded.snapshot
        self._broken.clear()
        self._dispatcher = core_of(self.section.policy(), snapshot)
        self._loaded.set()
        log.info(
            "window_loaded",
            window=repr(self),
            cursor=snapshot.cursor,
            settled=sum(last - first + 1 for first, last in snapshot.settled),
            leases=len(snapshot.leases),
            retries=len(snapshot.retries),
        )
        self.post(MembersChanged(self._members(), self._dependencies.now_ms()))
        for taken_back in self._unconfirmed.taken_back(self._dependencies.now_ms()):
            self.post(taken_back)
        self._dependencies.loaded(self, snapshot)

    def members_changed(self, members: tuple[Member, ...], reason: Reason) -> None:
        self.post(MembersChanged(members, self._dependencies.now_ms(), reason))

    def retune(self, section: GroupSection) -> None:
        """The group's settings changed. A window that is not up learns them when it loads."""
        if self._dispatcher is None:
            return
        self.section = section
        if isolation_of(section) != self._isolation:
            self.fail(WindowUnavailable("the isolation level has changed"))
        else:
            self._dispatcher.retune(section.policy())

    def fail(self, error: Exception) -> None:
        """Throws the core away; every event that is not persisted is told so."""
        if self._dispatcher is None:
            return
        if not isinstance(error, WindowUnavailable):
            self._note_trouble(error)
        if isinstance(error, FencedError):
            log.error("window_fenced", window=repr(self))
        self._drop_core(str(error))

    def _drop_core(self, why: str) -> None:
        self._dispatcher = None
        self._loaded.clear()
        self._dependencies.reader.stop(self.partition, self.on_read, isolation=self._isolation)
        waiting = [*self._persisting, *self._steps]
        self._unconfirmed.note(step for step, _ in self._persisting)
        self._persisting, self._steps, self._capture, self._write = [], [], None, None
        self.commit_wanted, self.committable = False, None
        for _, future in waiting:
            if future is not None and not future.done():
                future.set_exception(WindowUnavailable(why))
        self._broken.set()

    def read_no_more(self) -> None:
        """Ends reading: records (of keys that no member accepts) may change the window."""
        self._reads_no_more = True
        self._dependencies.reader.stop(self.partition, self.on_read, isolation=self._isolation)

    def close(self) -> None:
        """Stops serving; what is in the store stays. Persist what is pending first."""
        self._closed.set()
        self._drop_core("closed")
