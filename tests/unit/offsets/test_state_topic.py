"""The topic of a state_topic that is deleted while its service runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from confluent_kafka import KafkaError, KafkaException

from keyway.clusters.core.internal import STATE_TOPIC_CONFIG
from keyway.kafka.compacted import CompactedTopic, Record
from offsets.core.entries import Applied, Entry
from offsets.core.topic_state import TopicState
from offsets.errors import ClusterAway
from offsets.state_topic import StateTopic
from tests.rig.offsets_in_memory import MemoryClient, MemoryTopic

PLACE = ("billing", "topic", 0)


class Topic(MemoryTopic):
    """`records`: None while there is no such topic. `hides`: it is not listed."""

    records: list[Record] | None = None
    hides = False

    def exists(self) -> bool:
        return self.records is not None and not self.hides

    def ensure(self, configs: Mapping[str, str] = STATE_TOPIC_CONFIG) -> bool:  # noqa: ARG002
        created, self.records = self.records is None, self.records or []
        return created

    def end(self) -> int:
        if self.records is None:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return 0

    def write(self, records: Iterable[Record]) -> None:
        assert self.records is not None
        self.records += records


class Client(MemoryClient):
    topic = Topic({}, "any")

    def compacted(self, topic: str) -> CompactedTopic:  # noqa: ARG002
        return self.topic


def read_again(topic: Topic) -> TopicState:
    state_topic = TopicState()
    for key, value in topic.records or ():
        state_topic.read(key, value)
    return state_topic


def test_it_is_made_anew_with_all_that_is_known() -> None:
    """Each round of the service failed from then on, until somebody started it again."""
    client = Client("B", now_ms=9_000)
    client.topic = Topic({}, "any")
    state_topic = StateTopic(client)
    state_topic.ensure()
    state_topic.write_told([Entry(*PLACE, "A", 1_000, offset=3)])
    state_topic.write_applied({PLACE: Applied(3, "", "A", 1_000)})
    assert state_topic.read(for_s=1.0)
    client.topic.records = None
    with pytest.raises(ClusterAway):
        state_topic.read(for_s=1.0)
    state_topic.ensure()
    assert read_again(client.topic) == state_topic.state
    assert state_topic.read(for_s=1.0)
    assert state_topic.state.applied == {PLACE: Applied(3, "", "A", 1_000)}


def test_one_that_is_only_not_listed_is_not_written_again() -> None:
    client = Client("B", now_ms=9_000)
    client.topic = Topic({}, "any")
    state_topic = StateTopic(client)
    state_topic.write_told([Entry(*PLACE, "A", 1_000, offset=3)])
    before = list(client.topic.records or ())
    state_topic._ensured, client.topic.hides = False, True
    state_topic.ensure()
    assert client.topic.records == before
