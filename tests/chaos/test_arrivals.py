"""Pauses and waits of a partition, as `make campaign NAME=nodes` reports them."""

from __future__ import annotations

from tests.chaos.nodes.load import Arrivals, p99_ms
from tests.rig.clients.share_lines import Delivery

S = 1_000_000_000


def arrived(offset: int, made_s: float, at_s: float) -> Delivery:
    made = b"%d" % int(made_s * S)
    return Delivery("m", int(at_s * S), "t", 0, offset, 1, 0, b"k", made, ())


def test_figures_of_a_span() -> None:
    its = Arrivals([arrived(2, 3, 9.5), arrived(0, 1, 1.5), arrived(1, 2, 2.25)])
    assert its.pause_s(0, 10 * S) == 7.25
    assert its.pause_s(3 * S, 9 * S) == 6, "nothing came"
    assert its.pause_s(2 * S, 10 * S) == 7.25
    assert [wait / S for wait in its.waits_ns(1 * S, 3 * S)] == [0.5, 0.25]
    assert p99_ms(its.waits_ns(0, 10 * S)) == 6_500
    assert p99_ms(its.waits_ns(4 * S, 10 * S)) is None
