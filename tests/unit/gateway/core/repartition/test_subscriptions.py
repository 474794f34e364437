"""What the members of plain groups subscribe to."""

from __future__ import annotations

import struct

import pytest

from gateway.core.repartition.subscriptions import classic_topics, consumer_topics
from gateway.core.wire.schema import Message


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 3, len(topics)) + names + b"\xff\xff\xff\xff"


def classic(*members: bytes, state: str = "Stable", protocol: str = "consumer") -> Message:
    rows = [{"MemberMetadata": one} for one in members]
    return {"ProtocolType": protocol, "GroupState": state, "Members": rows}


def test_the_topics_of_all_members_of_a_classic_group() -> None:
    row = classic(subscription("a", "b"), subscription("c"), subscription())
    assert classic_topics(row) == frozenset(("a", "b", "c"))
    assert classic_topics(classic()) == frozenset()
    assert classic_topics(classic(b"\0\1", protocol="connect")) == frozenset()


def test_only_its_members_know_the_topics_of_a_group_that_rebalances() -> None:
    assert classic_topics(classic(b"", state="PreparingRebalance")) is None


@pytest.mark.parametrize("damaged", [b"", b"\0\1\0\0\0\2", b"\0\1\0\0\0\1\0\1\xff"])
def test_what_no_consumer_writes_is_no_subscription(damaged: bytes) -> None:
    assert classic_topics(classic(damaged)) == frozenset()


def test_a_consumer_group_names_topics_or_has_those_of_a_pattern() -> None:
    def member(names: list[str], *assigned: str) -> Message:
        topics = [{"TopicName": name} for name in assigned]
        return {
            "SubscribedTopicNames": names,
            "Assignment": {"TopicPartitions": topics[:1]},
            "TargetAssignment": {"TopicPartitions": topics},
        }

    row = {"Members": [member(["a"], "a"), member([], "b", "c")]}
    assert consumer_topics(row) == frozenset(("a", "b", "c"))
