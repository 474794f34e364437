"""A topic that grows from P to n·P partitions, or moves into another of any number, one Key-Shared
group, one seed.

Real: the dispatchers of all windows, their snapshots, reports, holds, and looks at log ends.
Modelled: producers that learn of the new partitions when they like and whose batches of before come
late, nodes with clocks that are off, windows that move, steps that are lost in a crash, reports and
looks that are late, and consumers that are slow.

Judged from outside: a record goes out only when all earlier ones of its key are settled, in the
store; and at the end every record is settled.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

from dispatcher.core.dispatcher import Dispatcher
from dispatcher.core.hold import HELD_WHOLE, HoldMoved
from dispatcher.core.model import (
    Acknowledge,
    Acquire,
    Event,
    Member,
    MemberId,
    MembersChanged,
    Policy,
    RecordsRead,
    SessionId,
    Ticked,
)
from dispatcher.core.steps import Change, Delivered, Snapshot
from dispatcher.core.stored.snapshot import apply_changes
from gateway.core.repartition.holding import (
    LogEnds,
    Look,
    Report,
    hold_for,
    report_of,
    together,
    unpacked,
)
from gateway.core.repartition.partitioners import Partitioner, partition_of
from gateway.core.repartition.record import Move, Pace, Repartition

ME, SESSION = MemberId("c1"), SessionId("s1")
POLICY = Policy(span_max=64, lock_duration_ms=10_000_000)


class OutOfOrder(AssertionError):
    """A record went out before an earlier one of its key was settled."""


@dataclass(frozen=True, slots=True)
class Options:
    before: int
    after: int
    moves: bool  # into another topic, which has the partitions from `before` on
    keys: int
    records: int
    settle_ms: int
    late_ms: int  # a batch of the older routing comes so long after it was sent, at most
    clock_ms: int  # the bound of what a node knows of Redis's clock
    crash: float  # per step
    open_at: float  # part of the records that are sent by then


def drawn(rng: Random) -> Options:
    before, moves = rng.choice((1, 2, 3)), rng.random() < 0.4
    settle_ms = rng.choice((300, 3_000))
    return Options(
        before=before,
        after=before + rng.choice((1, 2, 5)) if moves else before * rng.choice((2, 3)),
        moves=moves,
        keys=rng.choice((1, 5, 10)),
        records=rng.choice((50, 120)),
        settle_ms=settle_ms,
        late_ms=rng.choice((0, settle_ms, settle_ms, settle_ms)),
        clock_ms=rng.choice((0, 50, 2_000)),
        crash=rng.choice((0.0, 0.002, 0.02)),
        open_at=rng.random(),
    )


@dataclass(slots=True)
class Producer:
    """Of some keys. Batches of one partition arrive in their order."""

    keys: list[bytes]
    knows: int  # partitions
    # By partition: due time, key, its number.
    sent: dict[int, deque[tuple[int, bytes, int]]] = field(default_factory=dict)
    numbers: dict[bytes, int] = field(default_factory=dict)


@dataclass(slots=True)
class Window:
    """With its owner: `skew_ms`, how its clock is off, and what it has seen of the logs."""

    partition: int
    skew_ms: int
    ends: LogEnds
    stored: Snapshot
    core: Dispatcher
    unstored: list[Change] = field(default_factory=list)
    effects: list[Delivered] = field(default_factory=list)
    acks: list[int] = field(default_factory=list)  # the consumer has them
    confirming: list[int] = field(default_factory=list)  # acknowledged, not stored yet
    noted: int = 0  # settled up to here, as the judge knows
    report: Report | None = None  # computed, and not told before all of its time is stored


# Long: one state, which producers, windows, nodes and the judge all look at.
class World:
    busy = 0.5  # records per step

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.options = options = drawn(self.rng)
        self.now_ms = 1_000_000
        self.logs: list[list[tuple[bytes, int]]] = [[] for _ in range(options.after)]
        self.settled: dict[bytes, set[int]] = {}
        self.left = options.records
        self.told: dict[int, bytes] = {}  # reports, by old partition
        self.record = Repartition(
            topic="t",
            topic_id="00",
            before=options.before,
            after=options.after,
            into="u" if options.moves else "",
            partitioner=self.rng.choice((None, *Partitioner)),
            pace=Pace(adoption_ms=0, settle_ms=options.settle_ms, late_ms=0),
        )
        self.hashes_by = self.record.partitioner or Partitioner.MURMUR2
        self.producers = [Producer([], options.before) for _ in range(3)]
        for number in range(options.keys):
            self.rng.choice(self.producers).keys.append(b"key-%d" % number)
        self.producers = [producer for producer in self.producers if producer.keys]
        self.windows = [self._window(partition) for partition in range(options.after)]

    # ---------------------------------------------------------------------------------- the windows

    def _window(self, partition: int) -> Window:
        core = Dispatcher(POLICY, Snapshot(cursor=0))
        skew = self.rng.randint(-self.options.clock_ms, self.options.clock_ms)
        window = Window(partition, skew, LogEnds(), Snapshot(cursor=0), core)
        self._begin(window)
        return window

    def _begin(self, window: Window) -> None:
        if window.partition >= self.options.before and self._known(window).runs:
            self._handle(window, HoldMoved(HELD_WHOLE, self.now_ms))
        self._handle(window, MembersChanged((Member(ME),), self.now_ms))

    def _known(self, _window: Window) -> Repartition:
        """By which the node of the window acts."""
        return self.record

    def _handle(self, window: Window, event: Event) -> None:
        step = window.core.handle(event)
        window.unstored += step.changes
        window.effects += [effect for effect in step.effects if isinstance(effect, Delivered)]

    def _crash(self, window: Window) -> None:
        """Steps that are not stored are lost, or the last ones are stored and told. The consumer
        acknowledges again what was not confirmed.
        """
        window.report = None
        if self.rng.random() < 0.5:
            self._store(window)
        window.core = Dispatcher(POLICY, window.stored)
        window.acks += window.confirming
        window.unstored, window.effects, window.confirming = [], [], []
        if self.rng.random() < 0.5:  # another node has it now
            window.ends = LogEnds()
            window.skew_ms = self.rng.randint(-self.options.clock_ms, self.options.clock_ms)
        self._begin(window)

    def _store(self, window: Window) -> None:
        window.stored = apply_changes(window.stored, window.unstored)
        window.unstored = []
        self._note_settled(window)
        if window.report is not None:
            self.told[window.partition] = window.report.packed()
            window.report = None
        for effect in window.effects:
            for offset in effect.offsets:
                self._delivered(*self.logs[window.partition][offset])
        window.acks += [offset for delivered in window.effects for offset in delivered.offsets]
        window.effects, window.confirming = [], []

    def _note_settled(self, window: Window) -> None:
        log = self.logs[window.partition]
        stored = window.stored
        done = list(range(window.noted, stored.cursor))
        window.noted = stored.cursor
        done += [at for first, last in stored.settled for at in range(first, last + 1)]
        for offset in done:
            key, number = log[offset]
            self.settled.setdefault(key, set()).add(number)

    def _delivered(self, key: bytes, number: int) -> None:
        missing = set(range(number)) - self.settled.get(key, set())
        if missing:
            raise OutOfOrder(f"{key!r} {number} before {sorted(missing)}")

    # ------------------------------------------------------------------------------------ the steps

    def run(self) -> None:
        while not self._finished():
            self.step()
            assert self.now_ms < 60_000_000, "it does not end"

    def step(self) -> None:
        rng = self.rng
        self.now_ms += rng.choice((0, 1, 5, 20, 60))
        if self.left and rng.random() < self.busy:
            self._produce(rng.choice(self.producers))
        self._arrive()
        self._go_on()
        window = rng.choice(self.windows)
        if rng.random() < self.options.crash:
            self._crash(window)
        if rng.random() < 0.1:
            self._beat()
        self._act(window)

    def _go_on(self) -> None:
        """The repartition, and what producers know of it."""
        sent = 1 - self.left / self.options.records
        if not self.record.boundaries and sent >= self.options.open_at:
            ends = tuple(len(log) for log in self.logs[: self.options.before])
            for move in (Move.CREATE, Move.SHOW):
                self.record = self.record.moved(move)
            self.record = self.record.moved(Move.OPEN, boundaries=ends)
        for producer in self.producers:
            if self.rng.random() < 0.01:
                producer.knows = self.options.after

    def _beat(self) -> None:
        """As fast as it can be: what is known at this moment counts at once."""
        old, new = self.windows[: self.options.before], self.windows[self.options.before :]
        for window in old:
            self._look(window)
            self._read(window)
            self._report(window)
            self._store(window)
        for window in new:
            if not self._known(window).runs:
                continue
            self._look(window)
            self._read(window)
            self._hold(window)
            self._handle(window, Acquire(ME, SESSION, 20, self.now_ms))
            self._store(window)

    def _act(self, window: Window) -> None:
        rng = self.rng
        act = rng.randrange(6)
        if act == 0:
            self._read(window)
        elif act == 1:
            self._handle(window, Acquire(ME, SESSION, rng.randint(1, 20), self.now_ms))
        elif act == 2 and window.acks:
            chosen = rng.sample(window.acks, rng.randint(1, len(window.acks)))
            window.acks = [offset for offset in window.acks if offset not in chosen]
            window.confirming += chosen
            batches = [(offset, offset, b"\1") for offset in sorted(chosen)]
            self._handle(window, Acknowledge(ME, SESSION, batches, self.now_ms))
        elif act == 3:
            self._store(window)
        elif act == 4:
            self._look(window)
        elif window.partition < self.options.before:
            self._report(window)
        elif self._known(window).runs:
            self._hold(window)

    def _read(self, window: Window) -> None:
        log, start = self.logs[window.partition], window.core.read_position
        end = min(len(log), start + self.rng.randint(1, 40), window.core.front + POLICY.span_max)
        if end > start:
            offsets = list(range(start, end))
            keys: list[bytes | None] = [log[offset][0] for offset in offsets]
            self._handle(window, RecordsRead(start, end, offsets, keys, self.now_ms, len(log)))
        else:
            self._handle(window, Ticked(self.now_ms))

    def _look(self, window: Window) -> None:
        """The answer takes a while, and is of some moment in between."""
        bound = self.options.clock_ms
        asked_ms = self.now_ms + window.skew_ms - bound
        ends = {partition: len(self.logs[partition]) for partition in self._answering()}
        look = Look(asked_ms, self.now_ms + window.skew_ms + bound, ends)
        window.ends.saw(look, self._ways(), self.record)

    def _answering(self) -> list[int]:
        """Partitions whose leaders answer."""
        away = self.rng.randrange(len(self.logs)) if self.rng.random() < 0.02 else None
        return [partition for partition in range(len(self.logs)) if partition != away]

    def _ways(self) -> dict[int, object]:
        """How producers reach partitions now."""
        return dict.fromkeys(range(self.options.before), 0)

    def _report(self, window: Window) -> None:
        core = window.core
        as_of_ms = window.ends.as_of_ms(window.partition, core.keys_known_to)
        window.report = report_of(
            self._known(window), window.partition, as_of_ms, core.cursor, core.first_unsettled()
        )

    def _hold(self, window: Window) -> None:
        sources = self.record.sources_of(window.partition)
        told = [unpacked(self.told[source]) for source in sources if source in self.told]
        report = together(told) if len(told) == len(sources) else None
        hold = hold_for(self._known(window), window.partition, report, window.ends)
        self._handle(window, HoldMoved(hold, self.now_ms))
        window.core.check_invariants()

    # ------------------------------------------------------------------------------------ producers

    def _produce(self, producer: Producer) -> None:
        self._send(producer)

    def _send(self, producer: Producer) -> int:
        """Its next record, to a partition."""
        key = self.rng.choice(producer.keys)
        number = producer.numbers.get(key, 0)
        producer.numbers[key] = number + 1
        self.left -= 1
        at = self._place(key, producer.knows)
        sent = producer.sent.setdefault(at, deque())
        sent.append((self._due_ms(at), key, number))
        return at

    def _due_ms(self, partition: int) -> int:
        """The retries of a partition hold up what is behind; so late is nothing that is not."""
        late_ms = (
            self.options.late_ms
            if partition < self.options.before
            else (self.options.late_ms // 10)
        )
        return self.now_ms + self.rng.randint(0, late_ms)

    def _place(self, key: bytes, knows: int) -> int:
        first = self.record.first if knows == self.options.after else 0
        return first + partition_of(self.hashes_by, key, knows - first)

    def _arrive(self) -> None:
        for producer in self.producers:
            for partition, sent in sent_of(producer):
                while self._arrives(producer, partition) and sent and sent[0][0] <= self.now_ms:
                    _, key, number = sent.popleft()
                    self.logs[partition].append((key, number))

    def _arrives(self, _producer: Producer, _partition: int) -> bool:
        return True

    def _finished(self) -> bool:
        if self.left or any(sent for producer in self.producers for sent in producer.sent.values()):
            return False
        return all(
            window.stored.cursor == len(log)
            for window, log in zip(self.windows, self.logs, strict=True)
        )


def sent_of(producer: Producer) -> list[tuple[int, deque[tuple[int, bytes, int]]]]:
    return list(producer.sent.items())
