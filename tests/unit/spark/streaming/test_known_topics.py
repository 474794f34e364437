"""What is asked of a cluster with many topics, and what is not asked again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from confluent_kafka import KafkaError
from confluent_kafka.admin import AclOperation

from spark.streaming.kafka import KafkaSide
from spark.streaming.known_topics import KnownTopics
from spark.streaming.limits import CONFIGS_AT_ONCE, CONFIGS_S, IDENTITIES_AT_ONCE


class Side:
    """A cluster that counts what it is asked by name."""

    def __init__(self, count: int) -> None:
        self.topics = {f"topic-{number:04}": ("one", 2) for number in range(count)}
        self.unlisted: set[str] = set()
        self.limit = "1000"
        self.described_by_name: list[str] = []
        self.asked_configs: list[str] = []

    def listed(self) -> dict[str, int]:
        return {
            name: count for name, (_, count) in self.topics.items() if name not in self.unlisted
        }

    def described(
        self, names: Sequence[str], _: AclOperation | None = None
    ) -> dict[str, tuple[str, int] | KafkaError]:
        self.described_by_name += names
        missing = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return {name: self.topics.get(name, missing) for name in names}

    def configs(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        self.asked_configs += names
        return {name: {"max.message.bytes": self.limit, "x": "y"} for name in names}


class Looking:
    """One side that is looked at now and then."""

    def __init__(self, count: int) -> None:
        self.clock = 1_000.0
        self.side = Side(count)
        self.names = sorted(self.side.topics)
        self.known = KnownTopics(cast(KafkaSide, self.side), clock=lambda: self.clock)

    def look(self, *at_work: str) -> dict[str, tuple[str, int, str]]:
        self.side.described_by_name, self.side.asked_configs = [], []
        self.known.listed()
        found = self.known.look(self.names, at_work)
        return {
            name: (topic.topic_id, topic.partitions, topic.configs["max.message.bytes"])
            for name, topic in found.items()
        }


def test_a_second_look_asks_a_share_by_name_and_no_configs() -> None:
    """All of a thousand topics were described at each look, and all their configs each minute."""
    looking = Looking(1_000)
    first = looking.look()
    assert len(first) == len(looking.side.described_by_name) == len(looking.side.asked_configs)
    assert looking.look() == first
    assert len(looking.side.described_by_name) == IDENTITIES_AT_ONCE
    assert looking.side.asked_configs == []


def test_each_topic_has_its_turn() -> None:
    looking = Looking(1_000)
    looking.look()
    ids, configs = set(), set()
    looking.clock += CONFIGS_S + 1
    for _ in range(1_000 // CONFIGS_AT_ONCE):
        looking.clock += 1
        looking.look("topic-0000")
        ids |= set(looking.side.described_by_name)
        configs |= set(looking.side.asked_configs)
        assert len(looking.side.asked_configs) <= CONFIGS_AT_ONCE + 1
    assert len(ids) == len(configs) == 1_000


def test_configs_are_asked_for_once_a_minute_of_a_topic_at_work_and_of_a_new_one() -> None:
    looking = Looking(1)
    (name,) = looking.names
    assert looking.look()[name] == ("one", 2, "1000")
    looking.side.limit = "2000"
    assert looking.look()[name] == ("one", 2, "1000")
    assert looking.look(name)[name] == ("one", 2, "2000")
    looking.side.limit = "3000"
    looking.clock += CONFIGS_S + 1
    assert looking.look()[name] == ("one", 2, "3000")
    looking.side.topics[name] = ("two", 2)
    looking.side.limit = "4000"
    assert looking.look()[name] == ("two", 2, "4000")


def test_new_partitions_and_topics_are_found_at_once() -> None:
    looking = Looking(1_000)
    looking.look()
    looking.names.append("young")
    looking.side.topics |= {"young": ("new", 1), "topic-0999": ("one", 5)}
    found = looking.look()
    assert (found["young"], found["topic-0999"]) == (("new", 1, "1000"), ("one", 5, "1000"))


def test_only_kafka_s_word_about_a_topic_says_that_it_is_gone() -> None:
    looking = Looking(1_000)
    first = looking.look()
    looking.side.unlisted = set(looking.names)
    assert looking.look() == first
    del looking.side.topics["topic-0007"]
    assert first.keys() - looking.look().keys() == {"topic-0007"}
    looking.names = looking.names[:10]
    looking.look()
    assert len(looking.known._known) == len(looking.known._configs) == 9
