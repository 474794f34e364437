"""The recount notices when two copies of a fact differ: a check that cannot fail checks nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from librt.vecs import append, pop

from dispatcher.core.model import AckType
from dispatcher.core.records.state import WindowState
from dispatcher.core.reports.invariants import check
from tests.rig.playbook import Playbook


def _settled_bit(state: WindowState) -> None:
    state.window.bits[0] |= 1


def _lost_queue(state: WindowState) -> None:
    state.window.queues[1] = None


def _in_flight(state: WindowState) -> None:
    state.members[0].in_flight += 1


def _live(state: WindowState) -> None:
    next(iter(state.book.leases.values())).live += 1


def _not_listed(state: WindowState) -> None:
    member = state.members[0]
    member.ready, _ = pop(member.sort_ready())


def _twice_listed(state: WindowState) -> None:
    member = state.members[0]
    ready = member.sort_ready()
    member.ready = append(ready, ready[-1])


def _timer(state: WindowState) -> None:
    state.retries.timers.clear()


def _owner(state: WindowState) -> None:
    state.by_key[b"ready"].owner = None


def _idle(state: WindowState) -> None:
    state.idle_keys += 1


def _unfinished(state: WindowState) -> None:
    state.forget(2)
    state.window.mark(2)


@pytest.mark.parametrize(
    "damage",
    [
        _settled_bit,
        _lost_queue,
        _in_flight,
        _live,
        _not_listed,
        _twice_listed,
        _timer,
        _owner,
        _idle,
        _unfinished,
    ],
)
def test_damage_is_noticed(damage: Callable[[WindowState], None]) -> None:
    play = Playbook().join("c1").produce(b"held", b"held", b"waits")
    play.acquire("c1")
    play.ack("c1", 2, AckType.RELEASE)
    play.produce(b"ready")
    state = play.core._state
    check(state)
    damage(state)
    with pytest.raises((AssertionError, KeyError)):
        check(state)
