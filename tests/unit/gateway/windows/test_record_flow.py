"""Records delivered and settled, by group and topic."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from dispatcher.core.steps import Notice, Noticed
from gateway.core.cluster.topology import TopicPartition
from gateway.windows.metrics import FlowCollector
from gateway.windows.record_flow import RecordFlow

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
    text = exported(FlowCollector(flow))
    labels = f'{{group="g",topic="{TOPIC}"}}'
    assert f"keyway_group_delivered_records_total{labels} 10.0" in text
    assert f"keyway_group_settled_records_total{labels} 7.0" in text
    flow.forget("g")
    assert flow.of("g", TOPIC) == (0, 0)
    assert "{" not in exported(FlowCollector(flow))
