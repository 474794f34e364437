"""The metrics of groups: lag and members."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from gateway.core.cluster.topology import TopicPartition
from gateway.core.share.membership import ShareGroup
from gateway.operations.lag import Held, Lag
from gateway.operations.metrics import LagCollector

PLACE = TopicPartition("orders", b"t" * 16, 3)


def exported(*collectors: Collector) -> str:
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return generate_latest(registry).decode()


def test_lag_has_the_names_that_boards_know() -> None:
    later = TopicPartition("orders", b"t" * 16, 4)
    seen = [
        Lag("g", PLACE, 5, 17, 12, 61.5),
        Lag("g", later, 5, 8, 3, 0.0, held=Held(5, 75.5)),
        Lag("g", PLACE._replace(topic="returns"), 0, 1, 1),
        Lag("h", PLACE, 3, None, None),
        Lag("i", PLACE, 19, 18, 0),  # its window has read on since the last look
    ]
    group = ShareGroup(
        "g", session_timeout_ms=1, disconnect_grace_ms=1, members_max=1, assignment_interval_ms=0
    )
    text = exported(LagCollector(lambda _: seen, lambda: [group], frozenset))
    place = 'partition="3",topic="orders"}'
    assert f'kafka_consumergroup_lag{{consumergroup="g",{place} 12.0' in text
    assert f'kafka_consumergroup_current_offset{{consumergroup="g",{place} 5.0' in text
    assert f'kafka_consumergroup_current_offset{{consumergroup="h",{place} 3.0' in text
    assert 'kafka_consumergroup_lag{consumergroup="h"' not in text, "not known is not 0"
    assert f'kafka_consumergroup_group_lag_seconds{{group="g",{place} 61.5' in text
    assert 'kafka_consumergroup_group_max_lag_seconds{group="g"} 61.5' in text
    assert '_lag_seconds{group="h"' not in text
    assert 'kafka_consumergroup_members{consumergroup="g"} 0.0' in text
    waits = 'keyway_group_transaction_wait_seconds{group="g",partition="4",topic="orders"} 75.5'
    assert waits in text
    assert text.count("keyway_group_transaction_wait_seconds{") == 1
    assert f'kafka_consumergroup_group_lag{{group="g",{place} 12.0' in text
    assert f'kafka_consumergroup_group_offset{{group="h",{place} 3.0' in text
    assert 'kafka_consumergroup_group_max_lag{group="g"} 12.0' in text
    assert 'kafka_consumergroup_group_sum_lag{group="g"} 16.0' in text
    assert 'kafka_consumergroup_group_topic_sum_lag{group="g",topic="orders"} 15.0' in text
    assert '_sum_lag{group="h"' not in text
    assert text.count(f"kafka_partition_latest_offset{{{place} 19.0") == 1


def test_groups_that_are_left_out_are_counted() -> None:
    def lags(left_out: frozenset[str]) -> list[Lag]:
        return [Lag(name, PLACE, 5, 17, 12, 61.5) for name in "gh" if name not in left_out]

    groups = [
        ShareGroup(
            name,
            session_timeout_ms=1,
            disconnect_grace_ms=1,
            members_max=1,
            assignment_interval_ms=0,
        )
        for name in "gh"
    ]
    text = exported(LagCollector(lags, lambda: groups, lambda: frozenset("h")))
    assert 'group="g"' in text
    assert 'group="h"' not in text
    assert 'kafka_consumergroup_members{consumergroup="g"} 0.0' in text
    assert 'consumergroup="h"' not in text
    assert "keyway_groups_left_out 1.0" in text
