"""Partition counts and routing versions, as nodes see them in Kafka."""

from __future__ import annotations

from gateway.core.routing.topics import TopicRouting, changed, reflects


def test_a_new_topic_begins_with_version_one() -> None:
    assert changed({}, {"t": 4}) == {"t": TopicRouting(partitions=4, version=1)}


def test_a_topic_that_grows_gets_the_next_version() -> None:
    known = {"t": TopicRouting(partitions=4, version=2)}
    assert changed(known, {"t": 8}) == {"t": TopicRouting(partitions=8, version=3)}


def test_nothing_changes_for_who_sees_the_same_or_an_older_kafka() -> None:
    known = {"t": TopicRouting(partitions=4), "gone": TopicRouting(partitions=1)}
    assert changed(known, {"t": 4}) == {}
    assert changed(known, {"t": 2}) == {}
    assert changed(known, {}) == {}, "absence is no proof"


def test_metadata_of_a_broker_that_is_behind_does_not_reflect_the_content() -> None:
    known = {"t": TopicRouting(partitions=4)}
    assert reflects(known, {"t": 4, "unknown": 1})
    assert reflects(known, {"t": 5})
    assert reflects(known, {})
    assert not reflects(known, {"t": 3})
