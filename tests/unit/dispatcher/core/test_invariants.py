"""The recount notices when what is kept twice differs: a check that cannot fail checks nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dispatcher.core.flow import Flow
from dispatcher.core.invariants import check
from dispatcher.core.model import AckType
from tests.playbook import Playbook


def _settled_bit(flow: Flow) -> None:
    flow.window.bits[0] |= 1


def _lost_queue(flow: Flow) -> None:
    flow.window.queues[1] = None


def _in_flight(flow: Flow) -> None:
    flow.members[0].in_flight += 1


def _live(flow: Flow) -> None:
    next(iter(flow.book.leases.values())).live += 1


def _not_listed(flow: Flow) -> None:
    flow.members[0].sort_ready().pop()


def _twice_listed(flow: Flow) -> None:
    ready = flow.members[0].sort_ready()
    ready.append(ready[-1])


def _timer(flow: Flow) -> None:
    flow.retries.timers.clear()


def _owner(flow: Flow) -> None:
    flow.by_key[b"ready"].owner = None


def _idle(flow: Flow) -> None:
    flow.idle_keys += 1


def _unfinished(flow: Flow) -> None:
    flow.forget(2)
    flow.window.mark(2)


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
def test_damage_is_noticed(damage: Callable[[Flow], None]) -> None:
    play = Playbook().join("c1").produce(b"held", b"held", b"waits")
    play.acquire("c1")
    play.ack("c1", 2, AckType.RELEASE)
    play.produce(b"ready")
    flow = play.core._flow
    check(flow)
    damage(flow)
    with pytest.raises((AssertionError, KeyError)):
        check(flow)
