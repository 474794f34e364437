"""What is left out of a switch, without Kafka: one topic never holds it up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from structlog.testing import capture_logs

from keyway.clusters.config import ClustersConfig, MessagesSection
from keyway.clusters.core.tree import ClusterName, Distributor, Level
from spark.links.link import Link
from spark.links.reports import LinkReport
from spark.links.status import SWITCH, Json, StatusTopic
from spark.links.switch import choose_target, create_missing, standing
from spark.links.switching import ask_for_switch, switch_text
from spark.links.unforwarded import Subtree, Windows, compare_into, subtree_now
from spark.streaming.core.survey import Position, Topic
from spark.streaming.kafka import KafkaSide
from spark.streaming.orders import Partition
from tests.rig.link_status import Kept

A, B, C, D = ClusterName("a"), ClusterName("b"), ClusterName("c"), ClusterName("d")
CONFIG = ClustersConfig.model_validate(
    {
        "clusters": [{"name": name, "bootstrap_servers": "127.0.0.1:1"} for name in (A, B, C, D)],
        "tree": {
            "level": 3,
            "children": [
                "a",
                {"level": 2, "children": ["b", {"level": 1, "children": ["c", "d"]}]},
            ],
        },
    }
)
LINK = Link(Distributor(A, Level(3), (B,), (B, C, D)), C)
DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
MISSING = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)


@dataclass(slots=True)
class Side:
    """A cluster of topics with one partition, as `KafkaSide` tells them."""

    name: str
    told: dict[str, tuple[str, int] | KafkaError] = field(default_factory=dict)
    leaderless: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)  # topics not to be made: Kafka's error
    committed: dict[Partition, Position] = field(default_factory=dict)
    half_dead: bool = False  # metadata is answered, and the groups have no coordinator

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
        self.coordinator()
        assert not {topic for topic, _ in places} & self.leaderless.keys(), "that would fail"
        return dict.fromkeys(places, 0)

    def log_starts(self, places: Iterable[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(places, 0)

    def positions(self, _group: str, places: Iterable[Partition]) -> dict[Partition, Position]:
        self.coordinator()
        return {place: self.committed[place] for place in places if place in self.committed}

    def set_positions(
        self,
        _group: str,
        positions: Mapping[Partition, Position],
        stood: Mapping[Partition, Position],
    ) -> None:
        """No other process has moved them meanwhile."""
        assert all(self.committed.get(place) == stood.get(place) for place in positions)
        self.committed |= positions

    def coordinator(self) -> None:
        if self.half_dead:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no coordinator"))

    def answers(self) -> bool:
        return True


def side(of: Side) -> KafkaSide:
    return cast(KafkaSide, of)


def report(*topics: str) -> LinkReport:
    rows: Json = {"topic_id": "id", "partitions": {"0": {"position": 3}}}
    told = {f"topic/a-level-3/{topic}": rows for topic in topics}
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
    sides = {name: Side(name, dict(topics)) for name in (A, B, C, D)}
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
        compare_into(windows, LINK, side(sides[A]), positions, subtree, CONFIG)
        return set(windows.failed)

    assert failed(subtree) == {"fares"}
    sides[A].leaderless = {"flights": 0}
    assert failed(subtree) == {"fares", "flights"}


COPIED, GENERATION = 50_000, 7
IDS = {"busy": "1", "idle": "2"}


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch) -> dict[str, Side]:
    """The clusters of a link whose target changes. The fence marks what has no position."""
    found: dict[str, Side] = {
        name: Side(name, {topic: (id_, 1) for topic, id_ in IDS.items()}) for name in (A, B, C, D)
    }

    def fenced(old: Side, _link: Link, begun: Mapping[Partition, Position], _ms: int) -> None:
        old.coordinator()
        old.committed = {**begun, **old.committed}

    for module in ("switch", "unforwarded", "switching"):
        monkeypatch.setattr(
            f"spark.links.{module}.KafkaSide", lambda cluster: found[cluster.name], raising=False
        )
    monkeypatch.setattr("spark.links.switch.fence", fenced)
    return found


def told(**target_ids: str) -> dict[str, Json]:
    """The status topic of a link that copied to `b` and is to go to `c`."""
    row = {"0": {"position": COPIED}}
    return {
        "link/a-level-3": {"target": B, "generation": 0},
        "switch/a-level-3": {"target": C, "generation": GENERATION, "rewind": False},
        **{
            f"topic/a-level-3/{name}": {"topic_id": IDS[name], "target_id": id_, "partitions": row}
            for name, id_ in (IDS | target_ids).items()
        },
    }


def switched(sides: Mapping[str, Side], status: dict[str, Json]) -> dict[Partition, Position]:
    """The positions at the new target."""
    found = LinkReport(LINK.distributor, cast(StatusTopic, Kept(status)))
    found.load()
    assert choose_target(CONFIG, LINK.distributor, side(sides[A]), found).target == C
    return sides[C].committed


def test_a_position_that_the_old_target_forgot_is_the_reported_one(sides: dict[str, Side]) -> None:
    """Kafka forgets a position after 7 days without a commit. The fence marked the log's start, and
    all that the source retains was copied again.
    """
    sides[B].committed = {("busy", 0): Position(COPIED + 5, "1")}
    assert switched(sides, told()) == {
        ("busy", 0): Position(COPIED + 5, "1", GENERATION),
        ("idle", 0): Position(COPIED, "2", GENERATION),
    }


def test_what_was_reported_of_another_topic_of_the_old_target_does_not_count(
    sides: dict[str, Side],
) -> None:
    """It was deleted there, and what was copied to it with it."""
    found = switched(sides, told(idle="of a topic that was deleted"))
    assert (found["busy", 0].offset, found["idle", 0].offset) == (COPIED, 0)


def test_a_topic_that_the_link_has_never_copied_gets_no_position(sides: dict[str, Side]) -> None:
    """The target had copies of it from before the level was renamed, so it had stopped. With the
    position that the fence made, the next target got all of them once more.
    """
    status = told()
    status["topic/a-level-3/idle"] = {"state": "stopped", "reason": "copies", "topic_id": ""}
    assert switched(sides, status).keys() == {("busy", 0)}
    status = told()
    sides[C].committed.clear()
    status["topic/a-level-3/idle"]["state"] = "stopped"
    assert switched(sides, status)["idle", 0].offset == COPIED, "it was copied, and stopped later"


def test_a_target_whose_groups_have_no_coordinator_is_left(sides: dict[str, Side]) -> None:
    """Two of its three brokers were away: the link copied to neither target."""
    sides[B].half_dead = True
    sides[B].committed = {("busy", 0): Position(COPIED + 5, "1")}
    with capture_logs() as logs:
        found = switched(sides, told())
    assert {place: position.offset for place, position in found.items()} == {
        ("busy", 0): COPIED,
        ("idle", 0): COPIED,
    }
    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == [
        "target_left_without_fence",
        "target_left_as_reported",
    ]


@pytest.mark.parametrize("half_dead", [(B,), (B, D)])
def test_the_order_is_given_whatever_else_is_half_dead(
    sides: dict[str, Side], monkeypatch: pytest.MonkeyPatch, half_dead: tuple[ClusterName, ...]
) -> None:
    """The command failed before it had given the order."""
    status = {key: row for key, row in told().items() if not key.startswith(SWITCH)}
    for name in half_dead:
        sides[name].half_dead = True
    monkeypatch.setattr("spark.links.switching.StatusTopic", lambda *_: Kept(status))
    compared: list[set[str]] = []

    def compare(
        _w: object, _l: object, _s: object, _p: object, subtree: Subtree, *_: object
    ) -> None:
        assert f"{SWITCH}/a-level-3" in status
        compared.append(set(subtree.sides))

    monkeypatch.setattr("spark.links.switching.compare_into", compare)
    shown = ask_for_switch(CONFIG, A, 3, C, rewind=False, execute=True)
    assert (compared, shown["problem"]) == ([{C, D} - set(half_dead)], "")
    assert "up to a second old: " in switch_text(shown)
