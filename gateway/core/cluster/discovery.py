"""From a Metadata response to the topology (gateway/core/cluster/topology.py)."""

from __future__ import annotations

from collections.abc import Container, Iterable

from gateway.core.cluster.slots import ONE_SLOT, Slots
from gateway.core.cluster.topology import Broker, PartitionInfo, Topic, Topology
from gateway.core.wire.schema import Message

NO_TOPIC_ID = bytes(16)


def metadata_request(watched: Iterable[str]) -> Message:
    """Asks for these topics only. None of them is created by being asked for."""
    return {
        "Topics": [{"TopicId": NO_TOPIC_ID, "Name": name} for name in watched],
        "AllowAutoTopicCreation": False,
    }


def topology_from(
    known: Topology, response: Message, slots: Slots = ONE_SLOT, *, same: Container[str] = ()
) -> Topology:
    """The new view. Leaders of `known` that have a later epoch are kept: the answering broker lags
    behind. `same`: the topics that the answer tells the same about as the last one.
    """
    topics = [
        known.topics[entry["Name"]] if entry["Name"] in same else _topic(entry, known, slots)
        for entry in response["Topics"]
        if entry["Name"] is not None
    ]
    brokers = {
        entry["NodeId"]: Broker(entry["NodeId"], entry["Host"], entry["Port"])
        for entry in sorted(response["Brokers"], key=_node_id)
    }
    return Topology(
        cluster_id=response["ClusterId"],
        brokers=brokers,
        topics={topic.name: topic for topic in topics},
        names={topic.topic_id: topic.name for topic in topics if topic.topic_id != NO_TOPIC_ID},
    )


def _node_id(entry: Message) -> int:
    node_id: int = entry["NodeId"]
    return node_id


def _topic(entry: Message, known: Topology, slots: Slots) -> Topic:
    # Another topic of the same name starts its epochs anew.
    same = known.topics.get(entry["Name"])
    # Members may watch thousands of names that no topic has: nothing is made anew for them.
    if (
        same is not None
        and not same.partitions
        and not entry["Partitions"]
        and (same.topic_id, same.error) == (entry["TopicId"], entry["ErrorCode"])
    ):
        return same
    before = same.partitions if same is not None and same.topic_id == entry["TopicId"] else {}
    return Topic(
        name=entry["Name"],
        topic_id=entry["TopicId"],
        partitions={
            part["PartitionIndex"]: _later(
                PartitionInfo(
                    part["LeaderId"],
                    part["LeaderEpoch"],
                    slots.slot(entry["TopicId"], part["PartitionIndex"]),
                ),
                before.get(part["PartitionIndex"]),
            )
            for part in sorted(entry["Partitions"], key=lambda part: int(part["PartitionIndex"]))
        },
        error=entry["ErrorCode"],
    )


def _later(answer: PartitionInfo, before: PartitionInfo | None) -> PartitionInfo:
    if before is not None and 0 <= answer.leader_epoch < before.leader_epoch:
        return before
    return answer
