"""The life of one window: loading, up, broken, closed, and the order of its events and answers.

    LOADING ──► UP ──► BROKEN ──► LOADING        any state ──► CLOSED

The dispatcher exists while the window is UP. Its steps are persisted in batches, one batch at a
time: a step that changes something, and every step behind it, waits until its batch is in the
store; then the event is answered and the effects are performed. If a batch may not have reached the
store, the dispatcher is thrown away, all that waits is refused, and the window is loaded again, so
the way back from a crash is the only way back.

The committed offset in Kafka is not the window's alone. While the group has no members, an operator
or the offsets that follow from another cluster may set it. So a window without members, one that
was just loaded, and one whose last commit failed look before they commit (`looks_first`). If there
is a commit that counts more (`overtakes` in reconcile.py), they are loaded again and start there.

This is the whole decision, without waiting and without I/O. Its shell (gateway/windows, or the
simulation in tests/sim) calls a method for each thing that happens and performs the commands
that it returns, in their order. An event that somebody waits for carries a ticket; exactly one
`Answer` or `Refuse` names that ticket.
"""

from __future__ import annotations

from dispatcher.core.dispatcher import Core, core_of
from dispatcher.core.epochs import epoch_at, last_epoch, parted
from dispatcher.core.events.ticking import NEVER, NEXT_TICK
from dispatcher.core.hold import Hold, HoldMoved
from dispatcher.core.life.batches import Batch, Entry
from dispatcher.core.life.commands import (
    NO_TICKET,
    PERSIST,
    Answer,
    Command,
    CommitState,
    Failure,
    ForgetBelow,
    Load,
    Pause,
    Refuse,
    RetentionPassed,
    StopReading,
    TailLost,
    Tell,
    Ticket,
    TroubleBegan,
    TroubleOver,
)
from dispatcher.core.life.commits import Capture, Commits
from dispatcher.core.life.given_up import GivenUp
from dispatcher.core.life.states import NEXT, LifeEvent, LifeState
from dispatcher.core.limits import RELOAD_MS_MAX, RELOAD_MS_MIN
from dispatcher.core.model import (
    Event,
    LogCut,
    LogTruncated,
    Member,
    MembersChanged,
    NotSent,
    Policy,
    RecordsRead,
    Ticked,
)
from dispatcher.core.steps import (
    AckResult,
    Delivered,
    ReadOn,
    Snapshot,
    Step,
    settles,
)
from dispatcher.core.stored.cut import Cut


class Handled:
    """`step` is known at once, None: the window is not up. Nothing of it may be told to anybody
    before its `Answer`. `stirred`: the window needs a tick (`due_ms`).
    """

    def __init__(
        self, step: Step | None, commands: list[Command], *, stirred: bool = False
    ) -> None:
        self.step = step
        self.commands = commands
        self.stirred = stirred


# Long: a method for each command and each answer of the world; the table NEXT leads to them.
class WindowLife:
    def __init__(self) -> None:
        self.state = LifeState.LOADING
        self.core: Core | None = None  # while UP
        self.trouble = ""  # why the window could not be loaded, or broke; empty: it is up
        self._commits = Commits()
        self._pending: list[Entry] = []  # steps that are in no batch yet
        self._writing: Batch | None = None
        self._reads_stopped = False
        self._forgotten_below: int | None = None
        self._cut: Cut | None = None
        self._next_cut: Cut | None = None  # when nobody works on what it takes any more
        self.given_up = GivenUp()
        # Deliveries of a batch that may be in the store, and that no client was sent.
        self._unconfirmed: list[Delivered] = []
        self._pause_ms = RELOAD_MS_MIN
        # Grows with each event that may have changed something: a tick may not.
        self.version = 0
        self._stirred = False  # it has grown since the last tick
        # Of the attempt that succeeded last: `loaded` sets them.
        self.fence: int
        self.origin: int
        self.settled_ms: int
        self._reliable: bool
        self._up_since_ms: int

    def __repr__(self) -> str:
        return f"<{self.state.value} {self.core!r} pending={len(self._pending)}>"

    def _go(self, event: LifeEvent) -> None:
        self.state = NEXT[self.state, event]

    # -------------------------------------------------------------------------------------- loading

    def start(self) -> list[Command]:
        """Called before everything else but `close`."""
        if self.state is LifeState.CLOSED:
            return []
        assert self.state is LifeState.LOADING
        return [Load(self._cut)]

    def loaded(
        self,
        policy: Policy,
        snapshot: Snapshot,
        members: tuple[Member, ...],
        now_ms: int,
        *,
        fence: int,
        origin: int,
        settled_ms: int = 0,
        hold: Hold | None = None,
    ) -> list[Command]:
        """`fence`: under which the window was claimed. `origin`: of its incarnation. `settled_ms`:
        when the last record was settled, or earlier; 0 = not known. `hold`: from the first on.
        """
        core = core_of(policy, snapshot)
        self._go(LifeEvent.LOADED)
        if self.state is LifeState.CLOSED:
            return []
        self.core = core
        commands: list[Command] = []
        if self.trouble:
            commands.append(TroubleOver(self.trouble))
            self.trouble = ""
        self.fence = fence
        self.origin = origin
        self.settled_ms = settled_ms
        self._commits.alone = False
        self._reliable = policy.reliable
        self.given_up.by_policy(policy)
        self._cut = None
        self._up_since_ms = now_ms
        self._stir()
        if hold is not None:
            commands.append(Tell(HoldMoved(hold, now_ms)))
        commands.append(Tell(MembersChanged(members, now_ms)))
        # If the store has that batch, these records are leased to clients that never got them:
        # their keys would wait for the locks. If it has not, this changes nothing.
        unconfirmed, self._unconfirmed = self._unconfirmed, []
        commands += [
            Tell(NotSent(delivery.member_id, delivery.session_id, delivery.offsets, now_ms))
            for delivery in unconfirmed
        ]
        return commands

    def load_failed(self, failure: Failure) -> list[Command]:
        self._go(LifeEvent.LOAD_FAILED)
        if self.state is LifeState.CLOSED:
            return []
        commands: list[Command] = []
        self._note_trouble(failure, commands)
        commands.append(self._pause())
        return commands

    def pause_over(self) -> list[Command]:
        self._go(LifeEvent.PAUSE_OVER)
        if self.state is LifeState.CLOSED:
            return []
        return [Load(self._cut)]

    def look_again(self) -> list[Command]:
        """The group's position may have been set elsewhere: loads the window again, at once."""
        was_up = self.state is LifeState.UP
        self._go(LifeEvent.LOOK_AGAIN)
        if not was_up:
            return []  # it is on its way, or looks before it commits
        commands: list[Command] = []
        self._drop_core("the position is looked up again", commands)
        commands.append(Load(None))
        return commands

    def _pause(self) -> Pause:
        pause = Pause(self._pause_ms)
        self._pause_ms = min(2 * self._pause_ms, RELOAD_MS_MAX)
        return pause

    def _note_trouble(self, failure: Failure, commands: list[Command]) -> None:
        if failure.trouble:
            if failure.trouble != self.trouble and not failure.logged:
                commands.append(TroubleBegan(failure.trouble))
            self.trouble = failure.trouble

    # -------------------------------------------------------------------------------------- the end

    def broke(self, failure: Failure, now_ms: int) -> list[Command]:
        """Throws the dispatcher away and refuses all that waits.

        The pause before the next attempt doubles unless the window was up for a while: one that
        breaks as soon as it is up must not claim, log and read ten times a second.
        """
        was_up = self.state is LifeState.UP
        self._go(LifeEvent.BROKE)
        if not was_up:
            return []
        commands: list[Command] = []
        self._note_trouble(failure, commands)
        self._drop_core(failure.why, commands)
        if now_ms - self._up_since_ms >= RELOAD_MS_MAX:
            self._pause_ms = RELOAD_MS_MIN
        commands.append(self._pause())
        return commands

    def close(self) -> list[Command]:
        """The state in the store stays. Persist pending steps first."""
        self._go(LifeEvent.CLOSE)
        commands: list[Command] = []
        self._drop_core("closed", commands)
        return commands

    def _drop_core(self, why: str, commands: list[Command]) -> None:
        self.core = None
        commands.append(StopReading())
        waiting = self._pending
        if self._writing is not None:
            waiting = self._writing.entries + waiting
            for entry in self._writing.entries:
                for effect in entry.step.effects:
                    if isinstance(effect, Delivered) and effect.offsets:
                        self._unconfirmed.append(effect)
        self._pending, self._writing = [], None
        self._commits.forget()
        commands += [Refuse(fetch.ticket, why) for fetch in waiting if fetch.ticket != NO_TICKET]

    # --------------------------------------------------------------------------------------- events

    def handle(self, event: Event, ticket: Ticket) -> Handled:
        """One event of the dispatcher. A window that is not up ignores the event: reloading derives
        it again. A window also ignores records that do not start at its read position: they answer
        an earlier wish. If the dispatcher raises, which is a bug, nothing is kept of the event, its
        ticket is not answered, and the caller reports `broke`.
        """
        core = self.core
        if core is None:
            if ticket == NO_TICKET:
                return Handled(None, [])
            return Handled(None, [Refuse(ticket, self.trouble or self.state.value)])
        if isinstance(event, RecordsRead) and event.start != core.read_position:
            assert ticket == NO_TICKET
            return Handled(None, [])
        step = core.handle(event)
        if isinstance(event, Ticked) and not step.changes and not step.effects:
            self._stirred = False
        else:
            self._stir()
        if settles(step):
            self.settled_ms = event.now_ms
        if isinstance(event, MembersChanged) and not event.members:
            self._commits.alone = False
        commands: list[Command] = []
        if not step.changes and not self._pending and self._writing is None:
            self._perform(step, ticket, commands)
        else:
            self._pending.append(Entry(step, ticket))
            if self._writing is None:  # else `persisted` says whether there is more to write
                commands.append(PERSIST)
        return Handled(step, commands, stirred=self._stirred)

    def _stir(self) -> None:
        self._stirred = True
        self.version += 1

    def due_ms(self) -> int:
        """The time of the next tick with something to do if nothing happens before: NEXT_TICK, a
        time, or NEVER (ticking.py). A tick that finds nothing to do ends the unrest of an event.
        """
        if self.core is None:
            return NEVER
        return NEXT_TICK if self._stirred else self.core.due_ms()

    def records_read(self, read: RecordsRead, log_start: int) -> list[Command]:
        """The answer to a `ReadOn`, from a log that now starts at `log_start`."""
        core = self.core
        if core is None or read.start != core.read_position:
            return []
        # Where compaction has taken all, the epoch is that of a batch behind it.
        first = read.offsets[0] if read.offsets else read.end
        epoch = epoch_at(core.epochs, first) if read.offsets else last_epoch(core.epochs)
        if 0 <= epoch < read.epoch and first < core.known_end:
            return self.diverged(read.start, Cut(read.start, epoch), read.now_ms)
        commands: list[Command] = [Tell(read)]
        if log_start > core.cursor:
            commands.insert(0, Tell(LogTruncated(log_start, read.now_ms)))
        return commands

    def out_of_range(
        self, position: int, log_start: int, log_end: int, now_ms: int
    ) -> list[Command]:
        """The log has no record at `position` and does not end there either."""
        core = self.core
        if core is None or position != core.read_position:
            return []
        commands: list[Command] = []
        if log_start > position:
            commands.append(RetentionPassed(core.cursor, log_start))
            commands.append(Tell(LogTruncated(log_start, now_ms)))
            return commands
        return self.diverged(position, Cut(log_end, last_epoch(core.epochs)), now_ms)

    def diverged(self, position: int, cut: Cut, now_ms: int) -> list[Command]:
        """The log is another one than the one that was read up to `position`, or its epochs are.
        The window is loaded without what is lost, once nobody works on that.
        """
        core = self.core
        if core is None or position != core.read_position:
            return []
        end, _ = parted(core.epochs, cut.end, cut.epoch, core.cursor)
        leases = core.snapshot().leases
        in_flight = sum(offset >= end for lease in leases for offset in lease.offsets)
        commands: list[Command] = []
        if end < core.known_end:
            commands.append(TailLost(core.known_end, end, in_flight))
        self._next_cut = Cut(end, cut.epoch, self.origin)  # a commit knows less of the epochs
        if in_flight:
            return [*commands, Tell(LogCut(end, now_ms))]
        return commands + self.tail_done(now_ms)

    def tail_done(self, now_ms: int) -> list[Command]:
        """Nobody works on what the log has lost."""
        if self.core is None:
            return []
        self._cut = self._next_cut
        return self.broke(Failure("the log has lost its tail"), now_ms)

    def read_failed(self, position: int, failure: Failure, now_ms: int) -> list[Command]:
        """The reader has tried long enough. Loading the window again asks it once more."""
        core = self.core
        if core is None or position != core.read_position:
            return []
        return self.broke(failure, now_ms)

    def stop_reads(self) -> list[Command]:
        """Stops reading for good: records read now may change the window (keys that nobody accepts)
        and so put off its end.
        """
        self._reads_stopped = True
        return [StopReading()]

    def retune(self, policy: Policy) -> None:
        """The group's settings changed. A window that is not up learns them when it is loaded."""
        if self.core is not None:
            self.given_up.by_policy(policy)
            self.core.retune(policy)
            self._stir()

    # ------------------------------------------------------------------------ persist, then perform

    @property
    def busy(self) -> bool:
        """There are steps that are not persisted yet."""
        return self._writing is not None or bool(self._pending) or self._commits.wanted

    def take_batch(self) -> Batch | None:
        """The steps since the last batch; None: there are none, or one is on its way."""
        if self.core is None or self._writing is not None:
            return None
        capture: Capture | None = None
        if self._commits.wanted:
            capture = self._capture(self.core)
            self._commits.wanted = False
        elif not self._pending:
            return None
        entries, self._pending = self._pending, []
        self._writing = Batch(self.fence, entries, capture)
        return self._writing

    def persisted(self, batch: Batch) -> list[Command]:
        if batch is not self._writing:
            return []  # of a dispatcher that was thrown away meanwhile
        self._writing = None
        if batch.capture is not None:
            self._commits.offer(batch.capture)
        commands: list[Command] = []
        # The steps behind that change nothing have waited for this batch alone.
        done = 0
        while done < len(self._pending) and not self._pending[done].step.changes:
            done += 1
        for entry in batch.entries + self._pending[:done]:
            self._perform(entry.step, entry.ticket, commands)
        del self._pending[:done]
        self._forget_settled(commands)
        if self._pending or self._commits.wanted:
            commands.append(PERSIST)
        return commands

    def not_persisted(self, batch: Batch, failure: Failure, now_ms: int) -> list[Command]:
        """The store refused the batch, or nobody knows whether it has it."""
        if batch is not self._writing:
            return []
        return self.broke(failure, now_ms)

    def _perform(self, step: Step, ticket: Ticket, commands: list[Command]) -> None:
        if ticket != NO_TICKET:
            commands.append(Answer(ticket, step.effects))
        for effect in step.effects:
            if isinstance(effect, ReadOn):
                if not self._reads_stopped:
                    commands.append(effect)
            elif not isinstance(effect, (Delivered, AckResult)):  # these answer the ticket
                commands.append(effect)

    def _forget_settled(self, commands: list[Command]) -> None:
        core = self.core
        if core is not None and core.front != self._forgotten_below:
            self._forgotten_below = core.front
            commands.append(ForgetBelow(core.front))

    # -------------------------------------------------------------------------------------- commits

    @property
    def commit_due(self) -> bool:
        """Something has happened that Kafka may not know of; its state may be the same."""
        return self.core is not None and self._commits.due(self.version)

    def want_commit(self) -> list[Command]:
        """`take_committable` has the state to commit after the next batch is persisted; at once if
        the group keeps nothing in the store.
        """
        core = self.core
        if core is None:
            return []
        if self._reliable:
            self._commits.wanted = True
            return [PERSIST]
        self._commits.offer(self._capture(core))
        commands: list[Command] = []
        self._forget_settled(commands)
        return commands

    def take_committable(self, again_before_ms: int = 0) -> CommitState | None:
        """As `Commits.take`; then `commit_taken` or `commit_failed` must follow."""
        return self._commits.take(again_before_ms)

    def looks_first(self) -> bool:
        """Whether somebody else may have committed since Kafka took the last state from here."""
        return not self._commits.alone

    def commit_taken(self, state: CommitState, now_ms: int) -> None:
        alone = self.core is not None and len(self.core.members) > 0
        self._commits.taken(state, now_ms, alone=alone)

    def commit_failed(self) -> None:
        """The commit may be in Kafka nevertheless, and others may have come before the next one."""
        self._commits.failed()

    def is_uncommitted(self) -> bool:
        """Whether the window is up and Kafka has not its newest state. O(span)."""
        core = self.core
        return core is not None and self._commits.lacks(self._commit_state(core))

    def _capture(self, core: Core) -> Capture:
        return Capture(self._commit_state(core), self.version)

    def _commit_state(self, core: Core) -> CommitState:
        settled = core.committed_ranges()
        return CommitState(core.cursor, settled, self.origin, self.settled_ms, core.epochs)

    def may_leave(self) -> bool:
        """An idle window can be closed if it is not up, or store and Kafka have it all. O(span)."""
        return not self.busy and not self.is_uncommitted()

    # --------------------------------------------------------------------------------------- checks

    def check_invariants(self) -> None:
        """For tests: AssertionError if the fields contradict the state."""
        assert (self.core is not None) == (self.state is LifeState.UP), f"{self!r}"
        assert RELOAD_MS_MIN <= self._pause_ms <= RELOAD_MS_MAX
        if self.core is None:
            assert not self.busy, f"{self!r} still waits for a write"
            assert not self._commits.offers
        else:
            assert not self.trouble, f"up, and in trouble: {self.trouble}"
            assert not self._unconfirmed, "the dispatcher was not told"
