"""Random histories of one topic partition on three clusters, and the records that a group is owed.

Records are produced on one or several clusters, with timestamps in order, equal, reversed or from
the future, some in transactions (a marker takes an offset) of which some are aborted. Links copy
each stream in its order, late, or not at all for a while. Compaction and DeleteRecords take records
anywhere. A group works on A and commits. Everything here is plain lists, judged by looking at all
records: the oracle knows nothing of segments, vectors or timestamps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from offsets.core.index import PartitionIndex
from offsets.core.model import ReadRange, Rows, Search, Stream
from offsets.core.stored import packed, unpacked

Answer = TypeVar("Answer")
Place = tuple[Stream, int]
CLUSTERS = ("A", "B", "C")
TIMES = ("ordered", "equal", "reversed", "random", "future")


@dataclass(frozen=True, slots=True)
class Record:
    stream: Stream
    origin: int
    timestamp: int
    key: int


@dataclass(slots=True)
class Log:
    own: Stream
    records: dict[int, Record] = field(default_factory=dict)  # by offset
    start: int = 0
    end: int = 0

    def rows(self, first: int, last: int) -> Rows:
        places = range(max(first, self.start), min(last + 1, self.end))
        chosen = [(at, self.records[at]) for at in places if at in self.records]
        return Rows(
            [at for at, _ in chosen],
            [record.timestamp for _, record in chosen],
            [record.stream for _, record in chosen],
            [record.origin for _, record in chosen],
        )

    def first_at_or_after(self, timestamp: int) -> int | None:
        """As ListOffsets; 0 finds every record."""
        found = (
            at
            for at, record in self.records.items()
            if not timestamp or record.timestamp >= timestamp
        )
        return next(found, None)


def answered(search: Search[Answer], read: Callable[[int, int], Rows]) -> Answer:
    try:
        wish: ReadRange = next(search)
        while True:
            wish = search.send(read(wish.first, wish.last))
    except StopIteration as stop:
        answer: Answer = stop.value
        return answer


class History:
    def __init__(
        self,
        seed: int,
        *,
        producers: tuple[str, ...],
        losses: bool = True,
        live: bool = False,
        lives: bool = False,
    ) -> None:
        self.random = Random(seed)
        self.producers = producers
        self.losses = losses  # the target may lose records, too
        self.live = live  # A's index has read every record before it is lost
        self.lives = lives  # topics are deleted and created again
        self.times = self.random.choice(TIMES)
        self.disorder = self.random.choice((1, 20, 200))
        self.logs = {cluster: Log(Stream(cluster, "topic", 0, "life 0")) for cluster in CLUSTERS}
        self.size = self.random.choice((1, 2, 5, 50))
        self.indexes = {name: self._index(log) for name, log in self.logs.items()}
        self.down: set[tuple[str, str]] = set()
        self.copied = {(a, b): 0 for a in CLUSTERS for b in CLUSTERS if a != b}
        self.clock = self.born = 0
        self.committed = 0
        self.settled: set[int] = set()  # offsets on A behind the commit
        self.missed_before: set[Place] = set()  # of earlier lives
        self.arrived: dict[Place, int] = {}  # where each record stood on A, also if it is gone
        self.group_at_work = True

    def _index(self, log: Log) -> PartitionIndex:
        return PartitionIndex(log.own, 0, segment_records=self.size, segments_max=8)

    # ----------------------------------------------------------------------------- the events

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.clock += self.random.randint(0, 10)
            self._step()

    def _step(self) -> None:
        dice = self.random.random()
        if dice < 0.45:
            self._produce(self.random.choice(self.producers))
        elif dice < 0.80:
            self._copy(*self.random.choice(list(self.copied)))
        elif dice < 0.84:
            self.down ^= {self.random.choice(list(self.copied))}
        elif dice < 0.88:
            self._lose(self.logs[self.random.choice(CLUSTERS)])
        elif dice < 0.90 and self.lives:
            self._create_again(self.random.choice("AC"))
        elif dice < 0.94:
            if self.group_at_work:
                self._work()
        else:
            self.follow(self.random.choice(CLUSTERS))

    def _timestamp(self) -> int:
        match self.times:
            case "ordered":
                return self.clock
            case "equal":
                return self.clock // 100
            case "reversed":
                return 10_000 - self.clock
            case "random":
                return self.clock + self.random.randint(-self.disorder, self.disorder)
            case _:
                return self.clock + (self.random.random() < 0.05) * 10**9

    def _produce(self, name: str) -> None:
        log = self.logs[name]
        if self.random.random() < 0.1:  # an aborted record and its marker, or a marker alone
            log.end += self.random.randint(1, 2)
            return
        for _ in range(self.random.randint(1, 4)):
            key = self.random.randint(0, 20)
            self._append(log, Record(log.own, log.end, self._timestamp(), key))

    def _append(self, log: Log, record: Record) -> None:
        if log is self.logs["A"]:
            self.arrived[record.stream, record.origin] = log.end
        log.records[log.end] = record
        log.end += 1

    def _copy(self, source: str, target: str) -> None:
        """Some of the records produced on `source`, in their order."""
        if (source, target) in self.down:
            return
        log = self.logs[source]
        left = self.random.randint(1, 6)
        for at in range(self.copied[source, target], log.end):
            record = log.records.get(at)
            if left and record is not None and record.stream == log.own:
                self._append(self.logs[target], record)
                self.copied[source, target] = at + 1
                left -= 1

    def _lose(self, log: Log) -> None:
        if log.own.cluster == "B" and not self.losses:
            return
        if log.own.cluster == "A" and self.live:
            self.follow("A")
        if self.random.random() < 0.5:  # compaction
            last = {record.key: at for at, record in log.records.items()}
            cleaned = self.random.randint(log.start, log.end)
            gone = [
                at for at, record in log.records.items() if at < cleaned and last[record.key] != at
            ]
        else:  # DeleteRecords
            log.start = self.random.randint(log.start, (log.start + log.end) // 2)
            gone = [at for at in log.records if at < log.start]
        for at in gone:
            del log.records[at]

    def _create_again(self, name: str) -> None:
        """Its topic is deleted and created again; the offsets of groups there are deleted, too."""
        self.born += 1
        self.missed_before |= self.missed()
        log = self.logs[name] = Log(Stream(name, "topic", 0, f"life {self.born}"))
        self.indexes[name] = self._index(log)
        self.copied |= {(name, other): 0 for other in CLUSTERS if other != name}
        if name == "A":
            self.committed, self.settled, self.arrived = 0, set(), {}

    def _work(self) -> None:
        """The group goes on by some offsets, and may settle a few behind its commit."""
        log = self.logs["A"]
        self.committed = max(self.committed, log.start)
        self.committed = self.random.randint(self.committed, log.end)
        self.settled = {at for at in self.settled if at >= self.committed}
        if self.random.random() < 0.5:
            behind = [at for at in log.records if at >= self.committed]
            self.settled |= set(self.random.sample(behind, self.random.randint(0, len(behind))))

    def follow(self, name: str) -> None:
        """The index reads on, as far as the log goes now."""
        if self.random.random() < 0.1:  # the service starts again
            self.indexes[name] = unpacked(packed(self.indexes[name]))
        log, index = self.logs[name], self.indexes[name]
        index.forget(log.start)
        index.extend(log.rows(index.end, log.end), log.end)

    # ------------------------------------------------------------------------------ the oracle

    def passed(self) -> set[Place]:
        """The records that stood before the group's commit on A, wherever they are now."""
        return {place for place, at in self.arrived.items() if at < self.committed}

    def missed(self) -> set[Place]:
        """Records that A never gets: they were gone before their link to A came by."""
        return self.missed_before | {
            (log.own, origin)
            for name, log in self.logs.items()
            if name != "A"
            for origin in range(self.copied[name, "A"])
            if (log.own, origin) not in self.arrived
        }

    def settled_behind(self) -> set[Place]:
        return {place for place, at in self.arrived.items() if at in self.settled}
