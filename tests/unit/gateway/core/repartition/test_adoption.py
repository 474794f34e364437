"""Who may still produce by the Metadata of before."""

from __future__ import annotations

from gateway.core.repartition.adoption import Adopting, Producing


def test_only_those_of_before_that_produce_and_were_not_served() -> None:
    adopting = Adopting(newest=5, since_ms=0)
    others = [Producing(6, produces=True, oldest_ns=None), Producing(4, False, None)]
    old = Producing(5, produces=True, oldest_ns=None)
    assert adopting.outstanding([old, *others]) == [5]
    adopting.served(5, now_ns=100)
    assert adopting.outstanding([old]) == []


def test_a_request_of_before_is_waited_for() -> None:
    adopting = Adopting(newest=5, since_ms=0)
    adopting.served(5, now_ns=100)
    adopting.served(5, now_ns=900)  # again: the first time counts
    for oldest_ns, outstanding in ((0, [5]), (100, [5]), (101, []), (0, [])):
        assert adopting.outstanding([Producing(5, True, oldest_ns)]) == outstanding
    adopting.closed(5)
    assert adopting.outstanding([]) == []
