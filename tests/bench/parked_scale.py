"""`make campaign NAME=parked-scale`: 100 parked keys, then ten million records of other keys.

They go through the core and a model of the store; the rate beside the same without parked keys,
and the memory.

One record in 5,000, at random, has a parked key: their backlogs wait aside. The window is then
loaded from the store, as after a restart, and the commit is asked what a loss of Redis would
repeat. At the end the parked records are released, and their backlogs come in order.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
from collections.abc import Iterator

from dispatcher.core.dispatcher import Dispatcher
from dispatcher.core.model import (
    Acknowledge,
    AckType,
    Acquire,
    Member,
    MemberId,
    MembersChanged,
    OperatorAct,
    OperatorVerb,
    Policy,
    RecordsRead,
    SessionId,
)
from dispatcher.core.steps import Delivered, ReadOn, Snapshot, Step
from dispatcher.core.stored.snapshot import StoredWindow, state_of
from keyway.commit_metadata.core.metadata import decode, encode

RECORDS = 10_000_000
PARKED = 100
KEYS = 5_000
BACKLOG_EVERY = 5_000
RATE_MIN = 0.9  # of the run without parked keys
FETCH = 500
READ = 4_096
MIB = 1024 * 1024
ME, SESSION = MemberId("m"), SessionId("s")


class Run:
    """A window whose log has record `at` of key `at mod KEYS`, but for those of parked keys."""

    def __init__(self, parked: int, snapshot: Snapshot | None = None) -> None:
        self.parked = parked
        start = snapshot or Snapshot(cursor=0)
        self.core = Dispatcher(Policy(deliveries_max=1), start)
        self.stored: StoredWindow = state_of(start)
        self.reads = 0  # records
        self.wish: ReadOn | None = None
        self.handled(self.core.handle(MembersChanged((Member(ME),), 1)))

    def handled(self, step: Step) -> list[int]:
        self.stored.apply(step.changes)
        taken: list[int] = []
        for effect in step.effects:
            if isinstance(effect, ReadOn):
                self.wish = effect
            elif isinstance(effect, Delivered):
                taken = effect.offsets
        return taken

    def key_of(self, offset: int) -> bytes:
        if offset < self.parked:
            return b"poison-%d" % offset
        if offset * 2_654_435_761 % 2**32 * BACKLOG_EVERY < 2**32 and self.parked:
            return b"poison-%d" % (offset // BACKLOG_EVERY % self.parked)
        return b"key-%d" % (offset % KEYS)

    def read(self, end: int) -> bool:
        wish, self.wish = self.wish, None
        if wish is None or wish.position >= end:
            self.wish = wish
            return False
        last = min(end, wish.position + min(wish.offsets_max, READ))
        offsets = list(range(wish.position, last))
        self.reads += len(offsets)
        keys = [self.key_of(offset) for offset in offsets]
        self.handled(self.core.handle(RecordsRead(wish.position, last, offsets, list(keys), 1)))
        return True

    def acquire(self) -> list[int]:
        return self.handled(self.core.handle(Acquire(ME, SESSION, FETCH, 1)))

    def acknowledge(self, offsets: list[int], kind: AckType) -> None:
        batches = [(first, last, bytes([kind])) for first, last in ranges(offsets)]
        self.handled(self.core.handle(Acknowledge(ME, SESSION, batches, 1)))

    def park(self) -> None:
        while self.read(self.parked):
            pass
        self.acknowledge(self.acquire(), AckType.RELEASE)
        assert len(self.core.stats().parked) == self.parked

    def drain(self, end: int) -> int:
        """Until nothing is left to take."""
        taken = 0
        while True:
            if offsets := self.acquire():
                taken += len(offsets)
                self.acknowledge(offsets, AckType.ACCEPT)
            elif not self.read(end):
                return taken
            else:
                continue
            self.read(end)


def ranges(offsets: list[int]) -> Iterator[tuple[int, int]]:
    first = last = offsets[0]
    for offset in offsets[1:]:
        if offset != last + 1:
            yield first, last
            first = offset
        last = offset
    yield first, last


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.parked_scale")
    parser.add_argument("--records", type=int, default=RECORDS)
    records = parser.parse_args().records
    say = sys.stdout.write
    rates: dict[int, list[float]] = {0: [], PARKED: []}
    part = records // 10
    for parked, run in ((parked, Run(parked)) for parked in rates):
        if parked:
            run.park()
        for end in range(part, records + 1, part):
            began = time.process_time()
            done = run.drain(end)
            rates[parked].append(done / (time.process_time() - began))
        first, last = rates[parked][0], rates[parked][-1]
        say(f"{parked} parked: first tenth {first:,.0f} records/s of CPU, last {last:,.0f}\n")
    ratio = rates[PARKED][-1] / rates[0][-1]
    say(f"the last tenth at {ratio:.2f} of the rate without parked keys\n")
    stats = run.core.stats()
    say(f"cursor {stats.cursor}, read to {stats.read_position:,}, {stats.aside:,} records aside\n")
    tracemalloc.start()
    stored = run.stored.snapshot()
    again = Run(PARKED, stored)
    while again.read(records):
        pass
    size = tracemalloc.get_traced_memory()[0] / MIB
    tracemalloc.stop()
    say(f"a restart reads {again.reads:,} records again and repeats none;")
    say(f" it takes {size:.1f} MiB with the state of the store\n")
    store = sum(len(data) + 8 for data in run.stored.aside.values())
    store += sum(len(data) for data in run.stored.chunks.values())
    say(f"the store holds {store / 1024:,.0f} KiB\n")
    text = encode(stats.cursor, run.core.committed_ranges())
    told = sum(high - low + 1 for low, high in decode(stats.cursor, text) or [])
    settled = run.core.settled_count()
    say(f"a loss of Redis repeats {settled - told:,} of {settled:,} ({len(text):,} characters)\n")
    held = stats.unsettled
    run.handled(run.core.handle(OperatorAct(OperatorVerb.RETRY, list(range(PARKED)), 1)))
    began = time.process_time()
    assert run.drain(records) == held
    say(f"the backlogs drain at {held / (time.process_time() - began):,.0f} records/s of CPU\n")
    assert run.core.cursor == records
    assert size < 64, f"{size} MiB"
    assert ratio >= RATE_MIN, "slower than without parked keys"
    return 0


if __name__ == "__main__":
    sys.exit(main())
