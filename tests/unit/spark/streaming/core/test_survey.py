"""The copied topics, their start positions, and the reason for each refusal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark.streaming.core.survey import (
    Copied,
    Grown,
    Missing,
    Policy,
    Position,
    Stopped,
    Topic,
    compare,
    start,
)

STRICT = Policy(create_topics=False, stop_on_gap=True, stop_on_recreated=True)
EASY = Policy(create_topics=True, stop_on_gap=False, stop_on_recreated=False)

ENDS = {0: 100, 1: 100}


def topic(partitions: int = 2, topic_id: str = "one", **configs: str) -> Topic:
    return Topic("t", topic_id, partitions, {k.replace("_", "."): v for k, v in configs.items()})


def test_topics_that_are_alike() -> None:
    assert compare(topic(), topic(), STRICT) is None
    assert compare(topic(max_message_bytes="5"), topic(max_message_bytes="6"), STRICT) is None


def test_a_topic_that_the_target_lacks() -> None:
    assert compare(topic(), None, EASY) == Missing()
    verdict = compare(topic(), None, STRICT)
    assert isinstance(verdict, Stopped)
    assert "create_topics is false" in verdict.reason


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (topic(3), "2 partitions here and 3 on the target"),
        (topic(1), "2 partitions here and 1 on the target"),
        (topic(message_timestamp_type="LogAppendTime"), "LogAppendTime"),
        (topic(max_message_bytes="999"), "max.message.bytes is 999 on the target and 1000 here"),
    ],
)
def test_topics_that_cannot_be_kept_alike(target: Topic, words: str) -> None:
    verdict = compare(topic(max_message_bytes="1000"), target, EASY)
    assert isinstance(verdict, Stopped)
    assert words in verdict.reason


def test_a_topic_with_more_partitions_than_can_be_told() -> None:
    """Kafka refused the record with its rows, which failed every round of the link."""
    bounded = replace(EASY, partitions_max=2)
    assert compare(topic(), topic(), bounded) is None
    verdict = compare(topic(3), topic(2), bounded, copied_before=True)
    assert verdict == Stopped("it has 3 partitions: a link copies topics of up to 2")


def test_partitions_that_came_while_it_was_copied() -> None:
    assert compare(topic(3), topic(2), EASY, copied_before=True) == Grown()
    assert isinstance(compare(topic(3), topic(2), STRICT, copied_before=True), Stopped)
    assert isinstance(compare(topic(2), topic(3), EASY, copied_before=True), Stopped)


def test_a_new_topic_begins_at_its_log_start() -> None:
    assert start(topic(), {}, {0: 7, 1: 0}, ENDS, STRICT) == Copied({0: 7, 1: 0}, {})


def test_a_known_topic_goes_on_and_a_new_partition_begins() -> None:
    positions = {0: Position(50, "one")}
    assert start(topic(), positions, {0: 50, 1: 3}, ENDS, STRICT) == Copied({0: 50, 1: 3}, {})


def test_records_that_were_deleted_before_they_were_copied() -> None:
    positions = {0: Position(50, "one"), 1: Position(9, "one")}
    verdict = start(topic(), positions, {0: 60, 1: 0}, ENDS, STRICT)
    assert isinstance(verdict, Stopped)
    assert verdict.gaps == {0: 10}
    assert "10 of partition 0" in verdict.reason
    assert start(topic(), positions, {0: 60, 1: 0}, ENDS, EASY) == Copied({0: 60, 1: 9}, {0: 10})


def test_a_topic_that_was_created_again() -> None:
    positions = {0: Position(50, "old"), 1: Position(9, "one")}
    verdict = start(topic(), positions, {0: 0, 1: 0}, ENDS, STRICT)
    assert isinstance(verdict, Stopped)
    assert "topic id old, now one" in verdict.reason
    assert start(topic(), positions, {0: 0, 1: 0}, ENDS, EASY) == Copied({0: 0, 1: 9}, {})


def test_a_position_of_unknown_topic_id_is_taken_as_it_is() -> None:
    assert start(topic(1), {0: Position(5, "")}, {0: 0}, ENDS, STRICT) == Copied({0: 5}, {})


@pytest.mark.parametrize("policy", [STRICT, EASY])
def test_a_position_beyond_the_end_of_the_log(policy: Policy) -> None:
    """Spark's source would fail with it, and with it the other topics of the link."""
    positions = {0: Position(100, "one"), 1: Position(101, "one")}
    verdict = start(topic(), positions, {0: 0, 1: 0}, ENDS, policy)
    assert isinstance(verdict, Stopped)
    assert "101 of partition 1 (the log ends at 100)" in verdict.reason
    assert "partition 0" not in verdict.reason


def test_a_position_that_was_beyond_the_end_of_the_log() -> None:
    """The log has grown since. Only somebody's word ends it: another position, or the same one
    without the id that a link stores with it.
    """

    def stands_at(position: Position) -> Copied | Stopped:
        return start(topic(1), {0: position}, {0: 0}, {0: 100}, EASY, {0: 90})

    stopped = stands_at(Position(90, "one"))
    assert isinstance(stopped, Stopped)
    assert stopped.beyond == {0: 90}
    assert stands_at(Position(90, "")) == Copied({0: 90}, {})
    assert stands_at(Position(80, "one")) == Copied({0: 80}, {})


@pytest.mark.parametrize("policy", [STRICT, EASY])
def test_a_position_in_a_log_that_was_cut_and_has_grown_again(policy: Policy) -> None:
    positions = {0: Position(90, "one"), 1: Position(80, "one")}
    verdict = start(topic(), positions, {0: 0, 1: 0}, ENDS, policy, cut={0})
    assert isinstance(verdict, Stopped)
    assert "90 of partition 0 (the log ends at 100)" in verdict.reason
    assert verdict.beyond == {0: 90}


def test_a_position_of_an_older_topic_is_not_measured_at_the_new_one() -> None:
    old = {0: Position(500, "old")}
    assert start(topic(1), old, {0: 0}, ENDS, EASY, cut={0}) == Copied({0: 0}, {})
