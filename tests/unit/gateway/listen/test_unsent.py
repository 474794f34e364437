"""Reads are small exactly while the node is beyond its bound."""

from __future__ import annotations

from gateway.listen.limits import READ_BYTES_MAX, SMALL_READ_BYTES
from gateway.listen.unsent import Unsent, UnsentOfOne


def test_reads_are_small_while_all_hold_too_much() -> None:
    node = Unsent()
    node.bytes_max = 1_000
    one, other = UnsentOfOne(node), UnsentOfOne(node)
    one.hold(1_000)
    assert (len(node.buffer), node.full) == (READ_BYTES_MAX, False)
    other.hold(1)
    assert (len(node.buffer), node.full) == (SMALL_READ_BYTES, True)
    one.hold(900)
    assert (node.total, node.full) == (901, False)
    other.hold(0)
    one.hold(0)
    assert node.total == 0
