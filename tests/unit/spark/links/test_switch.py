"""What is left out of a switch, without Kafka: one topic never holds it up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from keyway.clusters.config import ClustersConfig, MessagesSection
from keyway.clusters.core.tree import ClusterName, Distributor, Level
from spark.links.link import Link
from spark.links.reports import LinkReport
from spark.links.status import Json, StatusTopic
from spark.links.switch import create_missing, standing
from spark.links.unforwarded import Subtree, Windows, compare_into, subtree_now
from spark.streaming.core.survey import Position, Topic
from spark.streaming.kafka import KafkaSide
from spark.streaming.orders import Partition
from tests.rig.link_status import Kept

A, B, C = ClusterName("a"), ClusterName("b"), ClusterName("c")
CONFIG = ClustersConfig.model_validate(
    {
        "clusters": [{"name": name, "bootstrap_servers": "127.0.0.1:1"} for name in (A, B, C)],
        "tree": {"level": 2, "children": ["a", {"level": 1, "children": ["b", "c"]}]},
    }
)
LINK = Link(Distributor(A, Level(2), (B,), (B, C)), C)
DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
MISSING = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)


@dataclass(slots=True)
class Side:
    """A cluster of topics with one partition, as `KafkaSide` tells them."""

    name: str
    told: dict[str, tuple[str, int] | KafkaError] = field(default_factory=dict)
    leaderless: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)  # topics not to be made: Kafka's error

    @property
    def cluster(self) -> object:
        return CONFIG.cluster(self.name)

    def listed(self) -> dict[str, int]:
        return dict.fromkeys(self.told, 1)

    def described(self, names: Sequence[str]) -> dict[str, tuple[str, int] | KafkaError]:
        return {name: self.told.get(name, MISSING) for name in names}

    def visible(self, names: Sequence[str]) -> dict[str, tuple[str, int]]:
        found = self.described(names).items()
        return {name: answer for name, answer in found if not isinstance(answer, KafkaError)}

    def topics(self, names: Sequence[str], _configs: object) -> dict[str, Topic]:
        return {name: Topic(name, "id", 1, {}) for name in names}

    def create_like(self, _topic: Topic, name: str, _messages: MessagesSection) -> None:
        if (code := self.refused.get(name)) is not None:
            raise KafkaException(KafkaError(code))
        self.told[name] = ("made", 1)

    def log_ends(self, places: Sequence[Partition]) -> dict[Partition, int]:
        assert not {topic for topic, _ in places} & self.leaderless.keys(), "that would fail"
        return dict.fromkeys(places, 0)

    def answers(self) -> bool:
        return True


def side(of: Side) -> KafkaSide:
    return cast(KafkaSide, of)


def report(*topics: str) -> LinkReport:
    rows: Json = {"topic_id": "id", "partitions": {"0": {"position": 3}}}
    told = {f"topic/a-level-2/{topic}": rows for topic in topics}
    found = LinkReport(LINK.distributor, cast(StatusTopic, Kept(dict(told))))
    found.load()
    return found


def test_a_topic_that_the_source_does_not_show_any_more() -> None:
    """The link's user lost a right on one topic, and no switch could be made."""
    source = Side(A, {"flights": ("id", 1), "fares": DENIED})
    stand = standing(CONFIG, LINK, side(source), report("flights", "fares", "gone"))
    assert stand.positions.keys() == {("flights", 0)}
    assert stand.left_out["gone"] == "a has no such topic any more"
    assert stand.left_out["fares"].startswith("a does not show it: ")


def test_a_topic_that_the_new_target_refuses_is_left_out() -> None:
    target = Side(C, refused={"fares": KafkaError.POLICY_VIOLATION})
    create_missing(CONFIG, LINK, side(Side(A)), side(target), ["fares", "flights"])
    assert target.told.keys() == {"flights"}
    target = Side(C, refused={"fares": KafkaError._TRANSPORT})
    with pytest.raises(KafkaException):
        create_missing(CONFIG, LINK, side(Side(A)), side(target), ["fares"])


def test_a_partition_without_a_leader_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ends of all logs are asked for before the order is given: one failed the command."""
    topics: Mapping[str, tuple[str, int] | KafkaError] = {
        "flights": ("id", 1),
        "fares": ("id", 1),
    }
    sides = {name: Side(name, dict(topics)) for name in (A, B, C)}
    sides[C].leaderless = {"fares": 0}
    monkeypatch.setattr("spark.links.unforwarded.KafkaSide", lambda cluster: sides[cluster.name])
    subtree = subtree_now(CONFIG, LINK, B, set(topics))
    assert set(subtree.ends[C]) == {("flights", 0), ("fares", 0)}
    monkeypatch.setattr(
        "spark.links.unforwarded.copied_records", lambda *_: [(0, (A, "", 0, 0), 1)]
    )
    positions = {(topic, 0): Position(3, "id") for topic in topics}

    def failed(subtree: Subtree) -> set[str]:
        windows = Windows()
        compare_into(windows, LINK, side(sides[A]), positions, subtree, CONFIG.seals())
        return set(windows.failed)

    assert failed(subtree) == {"fares"}
    sides[A].leaderless = {"flights": 0}
    assert failed(subtree) == {"fares", "flights"}
