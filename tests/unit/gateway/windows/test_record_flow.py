"""Records delivered and settled, by group and topic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from dispatcher.core.steps import Notice, Noticed
from gateway.core.cluster.topology import TopicPartition
from gateway.windows.metrics import FlowCollector
from gateway.windows.record_flow import RecordFlow
from gateway.windows.watched_topics import WatchedTopics

TOPIC = "orders"
TP = TopicPartition(TOPIC, b"t" * 16, 3)


def exported(collector: Collector) -> str:
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry).decode()


def test_what_is_settled_and_what_is_not() -> None:
    flow = RecordFlow()
    flow.sent("g", TOPIC, 10)
    for notice in Notice:
        flow.noticed("g", TP, Noticed(notice, 1))
    assert flow.of("g", TOPIC) == (10, 7)
    assert flow.of("g", "other") == (0, 0)
    assert flow.of("h", TOPIC) == (0, 0)
    text = exported(FlowCollector(flow, frozenset))
    labels = f'{{group="g",topic="{TOPIC}"}}'
    assert f"keyway_group_delivered_records_total{labels} 10.0" in text
    assert f"keyway_group_settled_records_total{labels} 7.0" in text
    flow.forget("g")
    assert flow.of("g", TOPIC) == (0, 0)
    assert "{" not in exported(FlowCollector(flow, frozenset))


@dataclass
class Watching:
    """The topics that upstream is asked about."""

    watched: list[str] = field(default_factory=list)

    def watch(self, topics: Iterable[str]) -> None:
        self.watched.extend(topics)

    def unwatch(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self.watched.remove(topic)


def test_topics_that_no_group_uses_leave_the_metrics() -> None:
    """An application that makes topics, reads and deletes them would add to a scrape for ever."""
    flow, topics = RecordFlow(), WatchedTopics(Watching())
    topics.on_unused(flow.forget_topics)
    topics.upstream.watch([TOPIC, "other"])
    for topic in (TOPIC, "other"):
        flow.sent("g", topic, 10)
        flow.noticed("h", TopicPartition(topic, b"t" * 16, 0), Noticed(Notice.ACCEPTED, 1))
    topics.sweep([TOPIC, "other"])
    topics.sweep(["other"])
    assert flow.of("g", TOPIC) == (10, 0), "a member that joins may be late"
    topics.sweep(["other"])
    assert f'topic="{TOPIC}"' not in exported(FlowCollector(flow, frozenset))
    assert (flow.of("g", "other"), flow.of("h", "other")) == ((10, 0), (0, 1))
