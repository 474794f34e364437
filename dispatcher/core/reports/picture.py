"""The picture of one window for operators: its offsets in runs of one state, however many it has.

A window with more runs than may be shown is drawn in steps of 2, 4, 8, ... offsets. A step has the
state of its offset that needs an operator most: that is the order of `OffsetState`. Steps begin at
multiples of their size. Many records aside are drawn in steps of a stretch or more from the start,
so that a picture does not cost as much as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from dispatcher.core.limits import STRETCH_OFFSETS
from dispatcher.core.records.state import WindowState
from dispatcher.core.steps import RetryState

DRAWN_ASIDE_MAX: Final = 16_384  # records aside that are drawn one by one, like a span's


class OffsetState(IntEnum):
    """The later, the more it needs an operator."""

    SETTLED = 0  # or without a record
    READY = 1
    IN_FLIGHT = 2
    BACKING_OFF = 3
    DEAD_LETTERING = 4
    PARKED = 5


class Run(NamedTuple):
    """Neighbouring offsets, `last` included."""

    state: int  # of OffsetState
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Picture:
    """`runs` cover all offsets from the cursor to the read position, ascending. `counts`: offsets
    by state, exact whatever the `resolution`, the offsets of one step.
    """

    resolution: int
    runs: list[Run]
    counts: list[int]


HELD = {
    RetryState.WAITING: OffsetState.BACKING_OFF,
    RetryState.DEAD_LETTER: OffsetState.DEAD_LETTERING,
    RetryState.PARKED: OffsetState.PARKED,
}


def picture_of(state: WindowState, runs_max: int) -> Picture:
    """O(span + stretches aside + records with a retry)."""
    ahead = runs_of(_states_ahead(state), state.window.front)
    if state.window.aside.count <= DRAWN_ASIDE_MAX:
        return drawn(_runs_aside(state) + ahead, runs_max)
    size, aside, counts = _steps_aside(state, runs_max)
    picture = drawn(aside + ahead, runs_max, size)
    for run in ahead:
        counts[run.state] += run.last - run.first + 1
    return Picture(picture.resolution, picture.runs, counts)


def _states_ahead(state: WindowState) -> bytearray:
    """The state of each offset from the front to the read position. O(span)."""
    window = state.window
    queues = window.queues
    leases = window.leases
    mask = window.mask
    front = window.front
    states = bytearray(max(window.read_position - front, 0))
    for at in range(len(states)):
        slot = (front + at) & mask
        if leases[slot] is not None:
            states[at] = 2
        elif queues[slot] is not None:
            states[at] = 1
    for offset, retry in state.retries.by_offset.items():
        at = offset - front
        if retry.held and 0 <= at < len(states) and states[at] == 1:
            states[at] = int(HELD[retry.state])
    return states


def _runs_aside(state: WindowState) -> list[Run]:
    """From the cursor to the front, or as far as it was read again since a restart."""
    window = state.window
    end = min(window.read_position, window.front)
    runs: list[Run] = []
    start = window.cursor
    busy = _busy_aside(state, end)
    for offset in window.aside.between(start, end):
        kind = busy.get(offset, OffsetState.READY)
        if offset > start:
            runs.append(Run(0, start, offset - 1))
        runs.append(Run(int(kind), offset, offset))
        start = offset + 1
    if start < end:
        runs.append(Run(0, start, end - 1))
    return runs


def _busy_aside(state: WindowState, end: int) -> dict[int, OffsetState]:
    """The states of the records aside below `end` that are not merely ready."""
    busy = dict.fromkeys(
        [leased for leased in state.window.aside.leases if leased < end], OffsetState.IN_FLIGHT
    )
    for offset, retry in state.retries.by_offset.items():
        if retry.held and offset < end and offset not in busy:
            busy[offset] = HELD[retry.state]
    return busy


def _steps_aside(state: WindowState, runs_max: int) -> tuple[int, list[Run], list[int]]:
    """As `_runs_aside`, in steps of as many stretches that no more than some 4 * `runs_max` are
    drawn; their size, their runs, and how many offsets have each state.
    """
    window = state.window
    begin, end = window.cursor, min(window.read_position, window.front)
    size = STRETCH_OFFSETS
    while end - begin > 4 * runs_max * size:
        size *= 2
    first = begin // size
    steps = bytearray((end - 1) // size - first + 1 if end > begin else 0)
    counts = [0] * len(OffsetState)
    for stretch, count in window.aside.stretches(end):
        steps[stretch * STRETCH_OFFSETS // size - first] = OffsetState.READY
        counts[OffsetState.READY] += count
    counts[OffsetState.SETTLED] = max(end - begin, 0) - counts[OffsetState.READY]
    for offset, kind in _busy_aside(state, end).items():
        at = offset // size - first
        steps[at] = max(steps[at], kind)
        counts[OffsetState.READY] -= 1
        counts[kind] += 1
    runs = [
        Run(state, max((first + low) * size, begin), min((first + high + 1) * size, end) - 1)
        for state, low, high in runs_of(steps, 0)
    ]
    return size, runs, counts


def runs_of(states: bytearray, first: int) -> list[Run]:
    """The runs of these states, the first of which is at offset `first`. O(their number)."""
    runs: list[Run] = []
    begin = 0
    for at in range(1, len(states) + 1):
        if at == len(states) or states[at] != states[begin]:
            runs.append(Run(states[begin], first + begin, first + at - 1))
            begin = at
    return runs


def drawn(runs: list[Run], runs_max: int, resolution: int = 1) -> Picture:
    """The picture of these runs, which lie one behind the other. O(their number)."""
    counts = [0] * len(OffsetState)
    for run in runs:
        counts[run.state] += run.last - run.first + 1
    shown = _in_steps(runs, resolution)
    while len(shown) > runs_max:
        resolution *= 2
        shown = _in_steps(shown, resolution)
    return Picture(resolution, shown, counts)


def _in_steps(runs: list[Run], size: int) -> list[Run]:
    """In steps of `size` offsets, each with the state of its offset that needs an operator most;
    neighbours of one state are one run.
    """
    merged: list[Run] = []
    if not runs:
        return merged
    begin, end = runs[0].first, runs[-1].last
    for run in runs:
        first = max(run.first // size * size, begin)
        last = min((run.last // size + 1) * size - 1, end)
        if merged and first <= merged[-1].last:  # They share a step.
            before = merged.pop()
            if before.state >= run.state:
                merged.append(before)
                first = before.last + 1
            elif before.first < first:
                merged.append(Run(before.state, before.first, first - 1))
        if first > last:
            continue
        if merged and merged[-1].state == run.state:
            merged.append(Run(run.state, merged.pop().first, last))
        else:
            merged.append(Run(run.state, first, last))
    return merged
