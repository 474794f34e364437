"""Which of two records of a topic is the earlier one."""

from __future__ import annotations

from dataclasses import replace

from gateway.core.repartition.partitioners import Partitioner
from gateway.core.repartition.record import Move, Pace, Phase, Repartition
from gateway.repartition.steps import begun

MARKED = Repartition(
    topic="orders",
    topic_id="11" * 16,
    before=2,
    after=4,
    partitioner=Partitioner.MURMUR2,
    pace=Pace(adoption_ms=1, settle_ms=1, late_ms=1),
    began_ms=1_000,
)


def test_a_record_is_before_all_later_ones_of_its_topic() -> None:
    created = MARKED.moved(Move.CREATE)
    aborted = created.moved(Move.ABORT)
    again = begun(MARKED, aborted, now_ms=500)  # a clock that was set back
    first_again = replace(MARKED, began_ms=2_000)  # everybody had forgotten the other one
    anew = replace(MARKED, topic_id="22" * 16, began_ms=3_000)
    chain = [MARKED, created, aborted, again, first_again, anew]
    assert (again.phase, again.version) == (Phase.MARKED, 4)
    for at, earlier in enumerate(chain):
        assert not earlier.is_before(earlier)
        for later in chain[at + 1 :]:
            assert earlier.is_before(later)
            assert not later.is_before(earlier)
