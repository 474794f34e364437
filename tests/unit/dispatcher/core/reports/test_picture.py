"""The picture of a window: every state, the bound of its runs."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.limits import STRETCH_OFFSETS
from dispatcher.core.model import AckType, MemberId, PoisonPolicy, Policy, Reason
from dispatcher.core.records.retry import new_retry
from dispatcher.core.records.state import WindowState
from dispatcher.core.reports.picture import (
    DRAWN_ASIDE_MAX,
    OffsetState,
    Run,
    drawn,
    picture_of,
    runs_of,
)
from dispatcher.core.steps import RetryState
from tests.rig.playbook import Playbook

S = OffsetState


def test_every_state() -> None:
    policy = Policy(rejected=PoisonPolicy.BLOCK)
    play = Playbook(policy).join("c1").produce(b"a", b"b", b"c", b"d", b"a", b"e").hole(2)
    play.produce(b"f")
    play.acquire("c1", 5)  # a, b, c, d, e
    play.ack("c1", 1)
    play.ack("c1", 2, AckType.REJECT)
    play.ack("c1", 3, AckType.RELEASE)
    picture = play.core.picture(100)
    assert picture.resolution == 1
    assert picture.runs == [
        Run(S.IN_FLIGHT, 0, 0),
        Run(S.SETTLED, 1, 1),
        Run(S.PARKED, 2, 2),
        Run(S.BACKING_OFF, 3, 3),
        Run(S.READY, 4, 4),
        Run(S.IN_FLIGHT, 5, 5),
        Run(S.SETTLED, 6, 7),
        Run(S.READY, 8, 8),
    ]
    assert picture.counts == [3, 2, 2, 1, 0, 1]


def test_dead_letters_under_way() -> None:
    play = Playbook(Policy(rejected=PoisonPolicy.DEAD_LETTER)).join("c1").produce(b"a")
    play.acquire("c1")
    play.ack("c1", 0, AckType.REJECT)
    assert play.core.picture(9).runs == [Run(S.DEAD_LETTERING, 0, 0)]


def test_a_window_that_has_read_nothing() -> None:
    picture = Playbook().core.picture(9)
    assert (picture.resolution, picture.runs, picture.counts) == (1, [], [0] * len(S))


def test_an_unreliable_window() -> None:
    play = Playbook(Policy(reliable=False)).join("c1").produce(b"a", b"b", b"c", b"d")
    play.acquire("c1", 1)
    play.hole(1)
    play.produce(b"e")
    assert play.core.picture(9).runs == [
        *(Run(S.READY, 1, 3), Run(S.SETTLED, 4, 4), Run(S.READY, 5, 5)),
    ]


def test_of_a_step_the_state_that_needs_an_operator_most() -> None:
    states = bytearray([S.READY, S.SETTLED, S.PARKED, S.SETTLED, S.SETTLED])
    picture = drawn(runs_of(states, 100), 3)
    assert picture.resolution == 2
    assert picture.runs == [
        Run(S.READY, 100, 101),
        Run(S.PARKED, 102, 103),
        Run(S.SETTLED, 104, 104),
    ]
    assert picture.counts == [3, 1, 0, 0, 0, 1]
    assert drawn(runs_of(states, 100), 1).runs == [Run(S.PARKED, 100, 104)]


@pytest.mark.parametrize("cursor", [0, 1_000_000_007])
def test_many_records_aside_are_drawn_by_stretches(cursor: int) -> None:
    """Every seventh offset is aside, but for a stretch of settled ones in the middle."""
    count = DRAWN_ASIDE_MAX * 10
    aside = [cursor + at for at in range(0, count, 7) if not 40_000 < at < 60_000]
    state = WindowState(Policy(), cursor)
    window = state.window
    for offset in aside:
        window.aside.add(offset)
    window.front = window.read_position = cursor + count
    parked = new_retry(aside[-1], Reason.RELEASED, MemberId("m"), 0)
    parked.held, parked.state = True, RetryState.PARKED
    state.retries.note(parked)
    picture = picture_of(state, 100)
    counts = [count - len(aside), len(aside) - 1, 0, 0, 0, 1]
    assert picture.counts == counts
    assert picture.resolution >= STRETCH_OFFSETS
    runs = picture.runs
    assert [run.state for run in runs] == [S.READY, S.SETTLED, S.READY, S.PARKED]
    assert (runs[0].first, runs[-1].last) == (cursor, cursor + count - 1)
    assert all(a.last + 1 == b.first for a, b in pairwise(runs))
    assert cursor + 40_000 <= runs[1].first <= runs[1].last <= cursor + 60_000
    assert runs[3].first <= aside[-1]
    assert len(picture_of(state, 2).runs) <= 2


@pytest.mark.parametrize("size", [1, 2, 3, 16_384])
def test_the_worst_window_is_bounded(size: int) -> None:
    picture = drawn(runs_of(bytearray(at & 1 for at in range(size)), 7), 64)
    assert len(picture.runs) <= 64
    assert picture.runs[-1].last == 7 + size - 1


@given(st.binary(max_size=200).map(lambda data: bytearray(b % 6 for b in data)), st.integers(1, 50))
def test_runs_cover_the_span_and_differ_from_their_neighbours(
    states: bytearray, runs_max: int
) -> None:
    picture = drawn(runs_of(bytearray(states), 10), runs_max)
    assert len(picture.runs) <= runs_max
    assert [offset for run in picture.runs for offset in range(run.first, run.last + 1)] == list(
        range(10, 10 + len(states))
    )
    assert all(a.state != b.state for a, b in zip(picture.runs, picture.runs[1:], strict=False))
    assert sum(picture.counts) == len(states)
    for run in picture.runs:
        assert run.state == max(states[run.first - 10 : run.last - 9])
        if picture.resolution == 1:
            assert set(states[run.first - 10 : run.last - 9]) == {run.state}
