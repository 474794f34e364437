"""What a topic must be like to get more partitions with the order of its keys kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatcher.core.routing.hashes import key_hash32
from gateway.core.repartition.partitioners import Partitioner, Shown
from gateway.core.repartition.plan import Into, TopicFacts, internal_topics, planned
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
        (FACTS, 3, "move it into a new topic"),
        (FACTS, 6, "partitions: 8 is; or move it"),
        (FACTS, 10, "8 or 12 is"),
        (FACTS, 4_000, "at most 1024"),
        (replace(FACTS, topic_id=bytes(16)), 8, "no topic ids"),
        (replace(FACTS, name="__consumer_offsets"), 8, "Kafka's own"),
        (replace(FACTS, name="app-store-changelog"), 8, "Streams"),
        (replace(FACTS, compacted=True), 8, "compacted"),
        (replace(FACTS, streams={"app": "app-x-changelog"}), 8, "topics like app-x-changelog"),
        (replace(FACTS, shown=Shown(None, 9, ((2, b"k"),))), 8, "another partitioner"),
        (replace(FACTS, shown=Shown(None, 9, few=2)), 8, "2 different keys, too few to tell"),
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


def test_a_refusal_names_a_key_by_its_hash() -> None:
    """Who may begin a repartition need not be one who may see keys."""
    strays = replace(FACTS, shown=Shown(None, 9, ((2, b"card-4711"),)))
    (refusal,) = planned(strays, 8, None, ()).refusals
    assert f"partition 2 has the key of hash {int(key_hash32(b'card-4711')):08x}" in refusal
    assert "4711" not in refusal.replace("of hash", "")


def test_a_new_topic_has_any_number_and_its_producers_any_partitioner() -> None:
    strays = replace(FACTS, shown=Shown(None, 9, ((2, b"k"),)))
    plan = planned(strays, 3, None, (), Into(name="orders.3", there=False))
    assert (plan.before, plan.after, plan.into, plan.refusals) == (4, 3, "orders.3", ())
    assert "those that write the same key are to move together" in plan.warnings[1]


@pytest.mark.parametrize(
    ("facts", "into", "reason"),
    [
        (FACTS, Into(name="orders", there=True), "a name of its own"),
        (FACTS, Into(name="orders.3", there=True), "exists"),
        (FACTS, Into(name="no/name", there=False), "cannot be called"),
        (FACTS, Into(name="__orders", there=False), "cannot be called"),
        (replace(FACTS, compacted=True), Into(name="orders.3", there=False), "compacted"),
        (replace(FACTS, streams={"app": "a"}), Into(name="orders.3", there=False), "Streams"),
    ],
)
def test_a_new_topic_is_refused_with_a_reason(facts: TopicFacts, into: Into, reason: str) -> None:
    (refusal,) = planned(facts, 3, None, (), into).refusals
    assert reason in refusal


def test_a_topic_with_hidden_partitions_grows_before_it_moves() -> None:
    hidden = replace(FACTS, partitions=8)
    into = Into(name="orders.3", there=False)
    aborted = RUNNING.moved(Move.ABORT)
    assert "let it grow first" in planned(hidden, 3, aborted, (), into).refusals[0]
    moving = replace(RUNNING, after=7, into="orders.3")
    assert "4 to 3 partitions of orders.3 now" in planned(FACTS, 8, moving, ()).refusals[0]
    assert not planned(FACTS, 3, moving.moved(Move.ABORT), (), into).refusals


def test_an_application_of_kafka_streams_is_known_by_its_topics() -> None:
    topics = ["orders", "app-counts-changelog", "app-two-x-repartition", "other-changelog-9"]
    listed = {"app", "app-two", "plain", "other"}
    assert internal_topics(sorted(listed), listed, topics) == {
        "app": "app-counts-changelog",
        "app-two": "app-two-x-repartition",
    }
    assert internal_topics(["plain"], listed, topics) == {}
    assert internal_topics(["app"], {"app", "app-counts"}, topics[:2]) == {}, "it is the other's"
