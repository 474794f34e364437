"""Redelivered records: their deliveries so far, and the reason for which they wait.

Only redelivered records have an entry, so the common record costs nothing here. `deliveries` counts
the deliveries that have ended; the one in flight is the next.
"""

from __future__ import annotations

import heapq

from dispatcher.core.limits import BACKOFF_DOUBLINGS_MAX
from dispatcher.core.model import MemberId, Policy, Reason
from dispatcher.core.records.keys import NO_OFFSET
from dispatcher.core.records.offset_bits import OffsetBits
from dispatcher.core.steps import RetryNoted, RetryState


class Retry:
    """One redelivered record. `held`: not to be delivered now (back-off, parked, on its way to the
    DLQ).
    """

    def __init__(self, noted: RetryNoted, *, held: bool) -> None:
        self.offset = noted.offset
        self.deliveries = noted.deliveries
        self.due_ms = noted.due_ms
        self.state = noted.state
        self.reason = noted.reason
        self.member_id = noted.member_id
        self.held = held
        self.dead_letter_failures = 0

    def __repr__(self) -> str:
        return f"<{self.offset} {self.state.value} deliveries={self.deliveries} due={self.due_ms}>"

    def noted(self) -> RetryNoted:
        return RetryNoted(
            offset=self.offset,
            deliveries=self.deliveries,
            due_ms=self.due_ms,
            state=self.state,
            reason=self.reason,
            member_id=self.member_id,
        )


class RetryBook:
    def __init__(self) -> None:
        self.by_offset: dict[int, Retry] = {}
        self.offsets = OffsetBits()  # of all of them
        self.parked = OffsetBits()
        self.waiting = self.dead_lettering = 0
        self.last = NO_OFFSET  # no record behind it has a retry
        # (due, offset) of records that wait for time. An entry is dropped when it comes up and its
        # retry has moved on; each lives for one back-off at most.
        self.timers: list[tuple[int, int]] = []

    def note(self, retry: Retry) -> None:
        """Notes a retry that is new, or restored."""
        self.by_offset[retry.offset] = retry
        self.offsets.add(retry.offset)
        self.last = max(self.last, retry.offset)
        self._count(retry, 1)

    def turn(self, retry: Retry, state: RetryState) -> None:
        """A noted retry has another state."""
        self._count(retry, -1)
        retry.state = state
        self._count(retry, 1)

    def forget(self, offset: int) -> bool:
        """False: there was none."""
        retry = self.by_offset.pop(offset, None)
        if retry is None:
            return False
        self.offsets.remove(offset)
        self._count(retry, -1)
        return True

    def _count(self, retry: Retry, by: int) -> None:
        if retry.state is RetryState.PARKED:
            if by > 0:
                self.parked.add(retry.offset)
            else:
                self.parked.remove(retry.offset)
        elif retry.state is RetryState.WAITING:
            self.waiting += by
        elif retry.state is RetryState.DEAD_LETTER:
            self.dead_lettering += by

    def deliveries(self, offset: int) -> int:
        retry = self.by_offset.get(offset)
        return 0 if retry is None else retry.deliveries

    def held(self, offset: int) -> bool:
        retry = self.by_offset.get(offset)
        return retry is not None and retry.held

    def wait(self, retry: Retry, due_ms: int) -> None:
        retry.due_ms = due_ms
        retry.held = True
        heapq.heappush(self.timers, (due_ms, retry.offset))

    def is_due(self, now_ms: int) -> bool:
        return len(self.timers) > 0 and self.timers[0][0] <= now_ms

    def take_due(self, now_ms: int) -> list[Retry]:
        """Takes the retries whose time has come, in order of (due, offset)."""
        due: list[Retry] = []
        while self.is_due(now_ms):
            due_ms, offset = heapq.heappop(self.timers)
            retry = self.by_offset.get(offset)
            if retry is None or not retry.held or retry.due_ms != due_ms:
                continue
            if retry.state is RetryState.WAITING or retry.state is RetryState.DEAD_LETTER:
                due.append(retry)
        return due


def backoff_ms(policy: Policy, failures: int) -> int:
    """base · 2^(failures-1), capped; `failures` >= 1."""
    doublings = min(failures - 1, BACKOFF_DOUBLINGS_MAX)
    return min(policy.backoff_base_ms << doublings, policy.backoff_max_ms)


# Given back because the member went away, not because it failed: redelivered at once.
AT_ONCE = frozenset({Reason.SESSION_CLOSED, Reason.MEMBER_LEFT, Reason.MEMBER_EVICTED})

# A clean goodbye says nothing about the record and never exhausts its budget. A crash may: a record
# that kills its consumer is the poison record.
CLEAN = frozenset({Reason.SESSION_CLOSED, Reason.MEMBER_LEFT})


def new_retry(offset: int, reason: Reason, member_id: MemberId, now_ms: int) -> Retry:
    """The retry of a record that was never given back before."""
    return Retry(
        RetryNoted(
            offset=offset,
            deliveries=0,
            due_ms=now_ms,
            state=RetryState.WAITING,
            reason=reason,
            member_id=member_id,
        ),
        held=False,
    )
