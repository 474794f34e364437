"""The dispatcher's own cost per record, over numbers of keys and of members.

The pure core of one window, as it runs in the gateway, without sockets, store or Kafka: records are
read until the window is full, every member that has something ready acquires and at once
accepts all of it. CPU time of the calls alone. Keys are drawn evenly; members are on the ring with
their 100 points each. A window's state is bounded, so some RECORDS show the cost of any number.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from itertools import pairwise

from dispatcher.core.dispatcher import Dispatcher
from dispatcher.core.model import (
    Acknowledge,
    AckType,
    Acquire,
    Event,
    Member,
    MemberId,
    MembersChanged,
    Policy,
    RecordsRead,
    SessionId,
)
from dispatcher.core.steps import Delivered, Effect, MembersReady, ReadOn, Snapshot

KEYS = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
MEMBERS = (1, 10, 100, 1_000)
RECORDS = 100_000
READ_MAX = 6_000  # records of one read; a Fetch brings some 8,000 of 100 bytes
ACCEPT = bytes([AckType.ACCEPT])
NOW_MS = 1  # nothing here runs out


class Drive:
    """One window from its first record to its last. `cpu_ns`: spent inside the core."""

    def __init__(self, keys: int, members: int, records: int, seed: int) -> None:
        self.cpu_ns = 0
        self.settled = 0
        self._records = records
        self._keys = keys
        self._chosen = random.Random(seed)
        self._ready: dict[MemberId, None] = {}
        self._read_on: ReadOn | None = None
        self._core = Dispatcher(Policy(), Snapshot(cursor=0))
        ids = [MemberId(f"member-{at:04}") for at in range(members)]
        self._sessions = {member: SessionId(f"session of {member}") for member in ids}
        joined = MembersChanged(tuple(Member(member) for member in ids), NOW_MS)
        self._handle(joined)
        self.cpu_ns = 0  # building the ring is a join's cost, not a record's

    @property
    def cursor(self) -> int:
        return self._core.cursor

    def run(self) -> float:
        """CPU nanoseconds per record."""
        while self.settled < self._records:
            if self._read_on is not None:
                self._read()
            ready, self._ready = self._ready, {}
            assert ready or self._read_on is not None, "neither to read nor to deliver"
            for member in ready:
                self._work(member)
        return self.cpu_ns / self.settled

    def _read(self) -> None:
        assert self._read_on is not None
        wish, self._read_on = self._read_on, None
        end = min(wish.position + min(wish.offsets_max, READ_MAX), self._records)
        offsets = list(range(wish.position, end))
        if not offsets:
            return  # the log ends here
        # As in the gateway, equal keys of different batches are different objects.
        keys: list[bytes | None] = [
            b"key-%05d" % int(self._chosen.random() * self._keys) for _ in offsets
        ]
        self._handle(RecordsRead(wish.position, end, offsets, keys, NOW_MS))

    def _work(self, member: MemberId) -> None:
        session = self._sessions[member]
        for effect in self._handle(
            Acquire(member, session, Policy().in_flight_per_member_max, NOW_MS)
        ):
            if isinstance(effect, Delivered) and effect.offsets:
                batches = [(first, last, ACCEPT) for first, last in runs(effect.offsets)]
                self._handle(Acknowledge(member, session, batches, NOW_MS))
                self.settled += len(effect.offsets)
                self._ready[member] = None  # it may have more

    def _handle(self, event: Event) -> list[Effect]:
        started = time.thread_time_ns()
        step = self._core.handle(event)
        self.cpu_ns += time.thread_time_ns() - started
        for effect in step.effects:
            if isinstance(effect, MembersReady):
                self._ready |= dict.fromkeys(effect.members)
            elif isinstance(effect, ReadOn):
                self._read_on = effect
        return step.effects


def runs(offsets: list[int]) -> Iterator[tuple[int, int]]:
    """The inclusive ranges of ascending offsets, as a client acknowledges them."""
    first = offsets[0]
    for before, offset in pairwise(offsets):
        if offset != before + 1:
            yield first, before
            first = offset
    yield first, offsets[-1]
