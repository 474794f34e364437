"""The upstream cluster at one moment: brokers, topics, partition leaders.

`gateway/upstream/cluster.py` builds one from Metadata responses and hands it to the server, the
handlers and the reader. It is replaced whole and never changed; nobody keeps a second copy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.core.cluster.slots import SLOT_IDS


class TopicPartition(NamedTuple):
    """With the topic's id: a topic recreated under the same name is another one."""

    topic: str
    topic_id: bytes  # 16 bytes
    partition: int


@dataclass(frozen=True, slots=True)
class Broker:
    """One upstream broker, at its upstream address: never to be shown to a client."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    leader: int  # broker id; -1 = no leader now
    leader_epoch: int  # -1 = not known
    slot: int = 0  # of the leader

    @property
    def virtual_leader(self) -> int:
        """The virtual broker that leads it for clients; -1 = none now."""
        return self.leader if self.leader < 0 else self.leader + self.slot * SLOT_IDS


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: bytes  # 16 bytes; all zero = the upstream has no topic ids
    partitions: dict[int, PartitionInfo]
    error: int = 0  # Kafka error code; partitions is empty when the topic could not be described


@dataclass(frozen=True, slots=True)
class Topology:
    cluster_id: str | None = None
    brokers: dict[int, Broker] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)  # the watched ones, by name
    names: dict[bytes, str] = field(default_factory=dict)  # topic id -> name
