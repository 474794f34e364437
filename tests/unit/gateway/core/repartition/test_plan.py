"""What a topic must be like to get more partitions with the order of its keys kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.repartition.partitioners import Partitioner, Shown
from gateway.core.repartition.plan import TopicFacts, planned
from gateway.core.repartition.record import Move, Pace, Repartition

FACTS = TopicFacts(
    name="orders",
    topic_id=b"t" * 16,
    partitions=4,
    compacted=False,
    shown=Shown(Partitioner.MURMUR2, 10),
    ordered_groups=("billing",),
    unreliable_groups=(),
    other_groups=(),
)
RUNNING = Repartition(
    topic="orders",
    topic_id="",
    before=4,
    after=8,
    partitioner=None,
    pace=Pace(adoption_ms=1, settle_ms=1, late_ms=1),
)


def test_a_multiple_is_planned() -> None:
    plan = planned(FACTS, 8, None, ())
    assert not plan.refusals
    assert (plan.before, plan.after, plan.partitioner) == (4, 8, Partitioner.MURMUR2)
    assert "assigned partitions" in plan.warnings[0]


@pytest.mark.parametrize(
    ("facts", "after", "reason"),
    [
        (FACTS, 4, "Kafka takes none away"),
        (FACTS, 6, "partitions: 8 is"),
        (FACTS, 10, "8 or 12 is"),
        (FACTS, 4_000, "at most 1024"),
        (replace(FACTS, topic_id=bytes(16)), 8, "no topic ids"),
        (replace(FACTS, name="__consumer_offsets"), 8, "Kafka's own"),
        (replace(FACTS, name="app-store-changelog"), 8, "Streams"),
        (replace(FACTS, compacted=True), 8, "compacted"),
        (replace(FACTS, shown=Shown(None, 9, ((2, b"k"),))), 8, "another partitioner"),
        (replace(FACTS, unreliable_groups=("live",)), 8, "unreliable"),
    ],
)
def test_it_is_refused_with_a_reason(facts: TopicFacts, after: int, reason: str) -> None:
    refusals = planned(facts, after, None, ()).refusals
    assert len(refusals) == 1
    assert reason in refusals[0]


def test_the_order_of_consumer_groups_is_kept_but_for_those_that_give_it_up() -> None:
    facts = replace(FACTS, other_groups=("audit", "mail"))
    plan = planned(facts, 8, None, ["audit"])
    assert not plan.refusals
    assert plan.ordered_groups == ("billing", "mail")
    assert plan.unordered_groups == ("audit",)


def test_an_operator_may_give_up_the_order_of_unreliable_groups() -> None:
    facts = replace(FACTS, unreliable_groups=("audit",))
    assert not planned(facts, 8, None, ["audit"]).refusals
    assert "no position" in planned(facts, 8, None, ["audit", "nobody"]).refusals[0]


def test_what_went_before() -> None:
    assert "8 partitions now: marked" in planned(FACTS, 8, RUNNING, ()).refusals[0]
    aborted = RUNNING.moved(Move.ABORT)
    hidden = replace(FACTS, partitions=8)
    assert not planned(hidden, 8, aborted, ()).refusals
    assert (
        "hidden since an abort"
        in planned(replace(FACTS, partitions=12), 8, aborted, ()).refusals[0]
    )
