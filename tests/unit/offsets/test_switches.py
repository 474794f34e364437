"""What a cluster tells of switches, by the status of its links. B's link of level 2 has gone to A,
and goes to C now.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException

from keyway.clusters.config import ClustersConfig
from offsets.client import Partition
from offsets.core.switches import SwitchReport
from offsets.errors import ClusterAway
from offsets.state_topic import StateTopic
from offsets.switches import Switches
from tests.rig.offsets_in_memory import MemoryClient

CONFIG = ClustersConfig.model_validate(
    {
        "clusters": [{"name": name, "bootstrap_servers": "127.0.0.1:1"} for name in "ABC"],
        "tree": {"level": 2, "children": ["B", {"level": 1, "children": ["A", "C"]}]},
    }
)
ORDER = {"target": "C", "generation": 1, "rewind": False}
TOLD = SwitchReport("B", 2, "B", 1, "C", rewind=False, done=True)


class Ends(MemoryClient):
    log_end = 40
    topics: ClassVar[dict[str, int]] = {}

    def partitions_here(self) -> dict[str, int]:
        return self.topics

    def ends(
        self, partitions: Iterable[Partition], *, partly: bool = False
    ) -> dict[Partition, int]:
        assert not partly, "a log whose end is not known is not through"
        if self.leaderless:
            raise ClusterAway("A: offsets of orders: no leaders")
        return dict.fromkeys(partitions, self.log_end)


def switches_of(name: str, **status: dict[str, Any]) -> tuple[Switches, StateTopic]:
    client = Ends(name, now_ms=1)
    state_topic = StateTopic(client)
    found = Switches(CONFIG, client, state_topic)
    for key, value in status.items():
        tell(found, key, value)
    return found, state_topic


def tell(switches: Switches, key: str, value: dict[str, Any]) -> None:
    switches._take(key.encode(), json.dumps(value).encode())


def copied(position: int) -> dict[str, Any]:
    return {"state": "running", "partitions": {"0": row(position, 90)}}


def row(position: int, log_end: int) -> dict[str, int]:
    lag = log_end - max(0, position)
    return {"position": position, "log_end": log_end, "lag_records": lag}


def test_all_topics_are_listed_until_the_status_topic_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The list of 1,000 topics was two fifths of a refresh's work, twice in each."""
    switches, _ = switches_of("B")
    there, listed, deleted = False, 0, False

    def exists() -> bool:
        nonlocal listed
        listed += 1
        return there

    def read(_take: Any, **_: float) -> bool:
        if deleted:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return True

    monkeypatch.setattr(switches._topic, "exists", exists)
    monkeypatch.setattr(switches._topic, "read", read)
    switches.look()
    assert (listed, switches.links_seen) == (1, False)
    there = True
    for _ in range(3):
        switches.look()
    assert (listed, switches.links_seen) == (2, True)
    deleted = True
    with pytest.raises(ClusterAway):
        switches.look()
    there = deleted = False
    switches.look()
    assert (listed, switches.links_seen) == (3, True)


def test_the_cluster_of_the_link_tells_of_the_switch() -> None:
    switches, state_topic = switches_of("B", **{"switch/B-level-2": ORDER})
    switches.look()
    assert [switch.done for switch in state_topic.state.switches.values()] == [False], (
        "it is only ordered"
    )
    tell(switches, "link/B-level-2", {"generation": 1, "target": "C"})
    switches.look()
    assert list(state_topic.state.switches.values()) == [TOLD]
    state_topic.state.news()
    switches.look()
    assert state_topic.state.news() == []


def test_the_old_target_is_through_when_its_links_have_passed_all_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    status = {"link/A-level-1": {"generation": 0}, "topic/A-level-1/orders": copied(20)}
    switches, state_topic = switches_of("A", **status)
    state_topic.write_told([TOLD])
    switches.look()
    assert list(state_topic.state.switches.values()) == [TOLD]
    monkeypatch.setattr(state_topic.client, "log_end", 90)  # newer records do not count
    tell(switches, "topic/A-level-1/orders", copied(40))
    switches.look()
    assert state_topic.state.switches[TOLD.place, "A"].generation == 1


@pytest.mark.parametrize(
    ("unbegun", "through"),
    [
        ({"position": -1, "log_end": 40, "lag_records": 0}, True),
        ({"position": -1, "log_end": 40, "lag_records": 1}, False),
        ({"position": -1, "log_end": 39, "lag_records": 0}, False),
    ],
    ids=["all records are deleted", "one waits", "the row is older"],
)
def test_a_partition_of_which_nothing_was_copied(unbegun: dict[str, int], *, through: bool) -> None:
    orders = {"state": "running", "partitions": {"0": row(40, 40), "1": unbegun}}
    status: dict[str, dict[str, Any]] = {
        "link/A-level-1": {"generation": 0},
        "topic/A-level-1/orders": orders,
    }
    switches, state_topic = switches_of("A", **status)
    state_topic.write_told([TOLD])
    switches.look()
    assert ((TOLD.place, "A") in state_topic.state.switches) is through


def test_topics_that_have_stopped_hold_up_themselves_alone() -> None:
    status: dict[str, dict[str, Any]] = {
        "link/A-level-1": {"generation": 0},
        "topic/A-level-1/orders": copied(20),
        "topic/A-level-1/bad": {"state": "stopped", "partitions": {"0": row(5, 40)}},
        "topic/A-level-1/worse": {"state": "stopped", "partitions": {"0": row(5, 40)}},
    }
    switches, state_topic = switches_of("A", **status)
    state_topic.write_told([TOLD])
    told = state_topic.state.switches
    switches.look()
    assert (TOLD.place, "A") not in told, "orders are on their way"
    tell(switches, "topic/A-level-1/orders", copied(40))
    switches.look()
    assert told[TOLD.place, "A"].stopped == {"bad", "worse"}
    tell(switches, "topic/A-level-1/bad", copied(20))
    switches.look()
    assert told[TOLD.place, "A"].stopped == {"bad", "worse"}, "it goes on, and is not through yet"
    tell(switches, "topic/A-level-1/bad", copied(40))
    again, _ = switches_of("A", **{**status, "topic/A-level-1/bad": copied(40)})
    again._state_topic = state_topic
    again.look()  # after a restart it knows later ends, which orders have not reached
    assert told[TOLD.place, "A"].stopped == {"bad", "worse"}
    switches.look()
    assert told[TOLD.place, "A"].stopped == {"worse"}
    tell(switches, "topic/A-level-1/worse", copied(40))
    switches.look()
    assert told[TOLD.place, "A"].stopped == set()


def test_a_link_that_has_told_nothing_is_not_through() -> None:
    switches, state_topic = switches_of("A")
    state_topic.write_told([TOLD])
    switches.look()
    assert list(state_topic.state.switches.values()) == [TOLD]


@pytest.mark.parametrize("state", [None, "stopped"])
def test_a_topic_that_a_link_has_not_begun(
    monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    """It came right before the outage, or had stopped from the first. The link tells no position of
    it, and the cluster said that all of it was passed on.
    """
    status = {"link/A-level-1": {"generation": 0}, "topic/A-level-1/orders": copied(40)}
    switches, state_topic = switches_of("A", **status)
    monkeypatch.setattr(state_topic.client, "topics", {"orders": 1, "new": 1})
    if state is not None:
        tell(switches, "topic/A-level-1/new", {"state": state, "partitions": {}})
    state_topic.write_told([TOLD])
    switches.look()
    told = state_topic.state.switches.get((TOLD.place, "A"))
    stopped = None if told is None else told.stopped
    assert stopped == (None if state is None else {"new"})
    tell(switches, "topic/A-level-1/new", copied(40))
    switches.look()
    assert state_topic.state.switches[TOLD.place, "A"].stopped == frozenset()


@pytest.mark.parametrize("value", [b"no JSON", b"[" * 9_999, b"[]", b'{"target": "C"}'])
def test_an_order_that_nobody_can_read_changes_nothing(value: bytes) -> None:
    """The service ended, and at each start again. Links leave such a record out."""
    switches, state_topic = switches_of("B", **{"switch/B-level-2": ORDER})
    switches._take(b"switch/B-level-2", value)
    switches.look()
    assert [switch.generation for switch in state_topic.state.switches.values()] == [1]


def test_a_partition_without_a_leader_is_not_through_and_keeps_nothing_else_waiting() -> None:
    """Every round of its cluster failed until the partition had a leader again."""
    status = {"link/A-level-1": {"generation": 0}, "topic/A-level-1/orders": copied(40)}
    switches, state_topic = switches_of("A", **status)
    client = state_topic.client
    assert isinstance(client, Ends)
    state_topic.write_told([TOLD])
    client.leaderless = {("orders", 0)}
    switches.look()
    assert list(state_topic.state.switches.values()) == [TOLD]
    client.leaderless = set()
    switches.look()
    assert state_topic.state.switches[TOLD.place, "A"].generation == 1
