"""The records of an unreliable group that wait for one member."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize(
    ("missing", "back"),
    [
        ([3, 4, 7], [3, 4, 7]),
        ([4, 7], [4, 7]),
        ([1], []),  # the later one of its key has gone out
        ([3], [3]),  # no key, no order
        ([2, 9], []),  # it was not sent these
    ],
)
def test_what_could_not_be_sent_is_next_again_in_order(missing: list[int], back: list[int]) -> None:
    box = Outbox(MemberId("c1"), 1_000)
    for offset, key in ((1, b"a"), (3, None), (4, b"b"), (7, b"a"), (9, b"c")):
        box.put(offset, key)
    assert box.send(4) == [1, 3, 4, 7]
    assert box.put_back(missing) == len(back)
    assert box.put_back(missing) == 0
    assert (box.offsets, box.back) == ([*back, 9], len(back))
    assert box.send(1) == [*back, 9][:1]
    assert box.back == max(0, len(back) - 1)


def test_who_has_been_sent_nothing_more_may_still_give_back() -> None:
    box = Outbox(MemberId("c1"), 1_000)
    box.put(1, b"a")
    assert box.send(9) == [1]
    assert box.send(9) == []
    assert box.put_back([1]) == 1
    assert box.keep(0) == 1
    assert box.back == 0
