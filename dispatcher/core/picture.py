"""The picture of one window for operators: its offsets in runs of one state, however many it has.

A window with more runs than may be shown is drawn in steps of 2, 4, 8, ... offsets. A step has the
state of its offset that needs an operator most: that is the order of `OffsetState`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from dispatcher.core.model import RetryState
from dispatcher.core.state import WindowState


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
    """O(span)."""
    return drawn(states_of(state), state.window.cursor, runs_max)


def states_of(state: WindowState) -> bytearray:
    """Of each offset from the cursor to the read position. O(span)."""
    window = state.window
    queues = window.queues
    leases = window.leases
    mask = window.mask
    cursor = window.cursor
    states = bytearray(window.read_position - cursor)
    for at in range(len(states)):
        slot = (cursor + at) & mask
        if leases[slot] is not None:
            states[at] = 2
        elif queues[slot] is not None:
            states[at] = 1
    for offset, retry in state.retries.by_offset.items():
        at = offset - cursor
        if retry.held and 0 <= at < len(states) and states[at] == 1:
            states[at] = int(HELD[retry.state])
    return states


def drawn(states: bytearray, first: int, runs_max: int) -> Picture:
    """The picture of these states, the first of them at offset `first`. O(their number)."""
    counts = [states.count(int(it)) for it in OffsetState]
    size = len(states)
    resolution = 1
    while _runs_in(states) > runs_max:
        states = _halved(states)
        resolution *= 2
    runs: list[Run] = []
    begin = 0
    for at in range(1, len(states) + 1):
        if at == len(states) or states[at] != states[begin]:
            last = min(at * resolution, size) - 1
            runs.append(Run(states[begin], first + begin * resolution, first + last))
            begin = at
    return Picture(resolution, runs, counts)


def _runs_in(states: bytearray) -> int:
    runs = 0
    before = -1
    for at in range(len(states)):
        if states[at] != before:
            runs += 1
            before = states[at]
    return runs


def _halved(states: bytearray) -> bytearray:
    """Of each two neighbours the one that needs an operator more."""
    halved = bytearray((len(states) + 1) // 2)
    for at in range(len(states)):
        if states[at] > halved[at >> 1]:
            halved[at >> 1] = states[at]
    return halved
