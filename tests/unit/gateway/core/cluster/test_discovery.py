"""From Metadata responses to the topology."""

from __future__ import annotations

from typing import Any

from gateway.core.cluster.discovery import NO_TOPIC_ID, metadata_request, topology_from
from gateway.core.cluster.topology import Broker, PartitionInfo, Topic, Topology

ID = b"\1" * 16


def response(*topics: dict[str, Any]) -> dict[str, Any]:
    return {
        "ClusterId": "c",
        "Brokers": [
            {"NodeId": 2, "Host": "b", "Port": 9093},
            {"NodeId": 1, "Host": "a", "Port": 9092},
        ],
        "Topics": list(topics),
    }


def topic(name: str, topic_id: bytes, leader: int, epoch: int, error: int = 0) -> dict[str, Any]:
    parts = [{"PartitionIndex": 0, "LeaderId": leader, "LeaderEpoch": epoch}]
    return {
        "ErrorCode": error,
        "Name": name,
        "TopicId": topic_id,
        "Partitions": [] if error else parts,
    }


def test_everything_in_its_place() -> None:
    seen = topology_from(
        Topology(), response(topic("t", ID, 1, 4), topic("u", NO_TOPIC_ID, 1, 0, 3))
    )
    assert seen == Topology(
        cluster_id="c",
        brokers={1: Broker(1, "a", 9092), 2: Broker(2, "b", 9093)},
        topics={
            "t": Topic("t", ID, {0: PartitionInfo(1, 4)}),
            "u": Topic("u", NO_TOPIC_ID, {}, error=3),
        },
        names={ID: "t"},
    )
    assert list(seen.brokers) == [1, 2]


def test_names_that_no_topic_has_cost_nothing_again() -> None:
    """10,000 of them held the node up for 50 ms with every new one."""
    nobody = topic("u", NO_TOPIC_ID, 1, 0, 3)
    before = topology_from(Topology(), response(nobody))
    assert topology_from(before, response(nobody)).topics["u"] is before.topics["u"]
    denied = topology_from(before, response({**nobody, "ErrorCode": 29})).topics["u"]
    assert denied == Topic("u", NO_TOPIC_ID, {}, error=29)
    created = topology_from(before, response(topic("u", ID, 1, 0))).topics["u"]
    assert created == Topic("u", ID, {0: PartitionInfo(1, 0)})


def test_a_lagging_broker_does_not_take_a_leader_back() -> None:
    now = topology_from(Topology(), response(topic("t", ID, 2, 7)))
    late = topology_from(now, response(topic("t", ID, 1, 6)))
    assert late == now
    newer = topology_from(now, response(topic("t", ID, 1, 8)))
    assert newer.topics["t"].partitions[0] == PartitionInfo(1, 8)


def test_a_topic_of_the_same_name_starts_its_epochs_anew() -> None:
    now = topology_from(Topology(), response(topic("t", ID, 2, 7)))
    other = topology_from(now, response(topic("t", b"\2" * 16, 1, 0)))
    assert other.topics["t"].partitions[0] == PartitionInfo(1, 0)
    assert other.names == {b"\2" * 16: "t"}


def test_an_unknown_epoch_is_taken_as_it_is() -> None:
    now = topology_from(Topology(), response(topic("t", ID, 2, 7)))
    old_broker = topology_from(now, response(topic("t", ID, 1, -1)))
    assert old_broker.topics["t"].partitions[0] == PartitionInfo(1, -1)


def test_the_order_of_brokers_in_an_answer_is_no_change() -> None:
    answer = response(topic("t", ID, 1, 4))
    turned = answer | {"Brokers": answer["Brokers"][::-1]}
    assert topology_from(Topology(), answer) == topology_from(Topology(), turned)


def test_nothing_is_created_by_asking() -> None:
    assert metadata_request(["t"]) == {
        "Topics": [{"TopicId": NO_TOPIC_ID, "Name": "t"}],
        "AllowAutoTopicCreation": False,
    }
    assert metadata_request([])["Topics"] == []
