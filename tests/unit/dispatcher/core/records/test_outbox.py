"""The records of an unreliable group that wait for one member."""

from __future__ import annotations

from dispatcher.core.model import MemberId
from dispatcher.core.records.outbox import Outbox


def test_an_outbox() -> None:
    box = Outbox(MemberId("c1"), 1_000)
    assert box.attention.heard_ms == 1_000
    for offset, key in ((1, b"a"), (3, None), (4, b"b"), (7, b"a"), (9, b"c")):
        box.put(offset, key)
    assert box.waiting() == 5
    assert box.take(1) == [1]
    assert box.records() == [(3, None), (4, b"b"), (7, b"a"), (9, b"c")]
    assert box.forget_below(4) == 1
    assert box.keep(2) == 1
    assert box.records() == [(4, b"b"), (7, b"a")]
    assert repr(box) == "<c1 waiting=2 dropped=0>"
