"""What each window of a node is told to hold."""

from __future__ import annotations

from dataclasses import replace

from dispatcher.core.hold import HELD_WHOLE, Hold
from gateway.core.repartition.holds import Holds
from gateway.core.repartition.record import Pace, Repartition

RECORD = Repartition(
    topic="orders",
    topic_id="00",
    before=2,
    after=4,
    partitioner=None,
    pace=Pace(adoption_ms=0, settle_ms=0, late_ms=0),
    unordered=("free",),
)


def test_new_partitions_are_held_whole_until_more_is_known() -> None:
    holds = Holds()
    assert holds.of(("g", "t", 3)) is None
    holds.hold("t", RECORD)
    assert holds.of(("g", "t", 1)) is None, "an old partition"
    assert holds.of(("g", "other", 3)) is None
    assert holds.of(("free", "t", 3)) is None, "its order was given up"
    assert holds.of(("g", "t", 3)) == HELD_WHOLE
    holds.put(("g", "t", 3), Hold(7))
    assert holds.of(("g", "t", 3)) == Hold(7)
    assert holds.of(("h", "t", 3)) == HELD_WHOLE, "another group"


def test_all_of_a_new_topic_is_held_for_the_groups_of_the_old_one() -> None:
    holds = Holds()
    holds.hold("n", replace(RECORD, into="new", groups=("g", "free")))
    assert holds.of(("g", "n", 0)) == HELD_WHOLE
    assert holds.of(("free", "n", 0)) is None
    assert holds.of(("later", "n", 0)) is None, "it had no position in the old topic"


def test_nothing_of_a_topic_stays_when_it_is_over() -> None:
    holds = Holds()
    for topic_id in ("t", "u"):
        holds.hold(topic_id, RECORD)
        holds.put(("g", topic_id, 3), Hold(7))
    holds.lift("t")
    assert holds.of(("g", "t", 3)) is None
    assert holds.of(("g", "u", 3)) == Hold(7)
    holds.hold("t", RECORD)
    assert holds.of(("g", "t", 3)) == HELD_WHOLE, "a later repartition begins anew"
