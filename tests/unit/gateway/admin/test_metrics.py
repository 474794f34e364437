"""The figures the node exports: what dispatchers notice, windows, connections."""

from __future__ import annotations

import pytest
import structlog
from prometheus_client import generate_latest

from dispatcher.core.model import Acknowledge, Acquire, MemberId, Notice, Noticed, SessionId
from gateway.admin.metrics import Metrics
from gateway.core.cluster.topology import TopicPartition
from gateway.core.forwarding.served_apis import rules
from gateway.core.share.membership import ShareGroup
from gateway.core.wire.apis import ApiKey
from gateway.listen.connection import Counters
from gateway.operations.lag import Lag
from gateway.reading.reader import ReaderCounts
from tests.rig.node_parts import GROUP, TOPIC, Node
from tests.rig.virtual_time import now_ms, run, settle

PLACE = TopicPartition("orders", b"t" * 16, 3)


def exported(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


def test_outcomes_are_counted_by_group() -> None:
    metrics = Metrics()
    metrics.noticed("g", PLACE, Noticed(Notice.ACCEPTED, 5))
    metrics.noticed("g", PLACE, Noticed(Notice.ACCEPTED, 2))
    metrics.noticed('odd "name"\n', PLACE, Noticed(Notice.DROPPED, 1))
    text = exported(metrics)
    assert 'keyway_group_records_total{group="g",outcome="accepted"} 7.0' in text
    assert 'group="odd \\"name\\"\\n",outcome="dropped"} 1.0' in text


@pytest.mark.parametrize("notice", Notice)
def test_only_what_an_operator_must_hear_of_is_logged(notice: Notice) -> None:
    with structlog.testing.capture_logs() as logs:
        Metrics().noticed("g", PLACE, Noticed(notice, 3, "detail"))
    loud = {"parked", "dead_lettered", "dropped", "gap_ack", "span_full", "timed_out", "saturated"}
    loud |= {"truncated"}  # lost, if nobody has them elsewhere
    assert [line["event"] for line in logs] == ([notice.value] if notice.value in loud else [])
    for line in logs:
        assert (line["group"], line["topic"], line["partition"]) == ("g", "orders", 3)
        assert (line["count"], line["detail"]) == (3, "detail")


def test_a_group_that_is_gone_leaves_no_series() -> None:
    metrics = Metrics()
    for notice in (Notice.ACCEPTED, Notice.RELEASED):
        metrics.noticed("g", PLACE, Noticed(notice, 1))
    metrics.noticed("other", PLACE, Noticed(Notice.ACCEPTED, 1))
    metrics.forget("g")
    metrics.forget("never known")
    text = exported(metrics)
    assert 'group="g"' not in text
    assert 'group="other"' in text


def test_windows_are_read_when_asked() -> None:
    async def work() -> None:
        async with Node() as node:
            metrics = Metrics()
            metrics.watch_windows(node.windows.all)
            node.log.produce(b"a", b"b")
            assert "keyway_window_cursor{" not in exported(metrics)
            node.beat()
            await settle()
            labels = f'{{group="{GROUP}",partition="0",topic="{TOPIC}"}}'
            assert f"keyway_window_cursor{labels} 0.0" in exported(metrics)
            assert f"keyway_window_span{labels} 2.0" in exported(metrics)
            node.window().fail(RuntimeError("away"))
            assert "keyway_window_span{" not in exported(metrics)

    run(work())


def test_lag_has_the_names_that_boards_know() -> None:
    metrics = Metrics()
    seen = [Lag("g", PLACE, 5, 17, 12), Lag("h", PLACE, 3, None, None)]
    group = ShareGroup("g", session_timeout_ms=1, disconnect_grace_ms=1, members_max=1)
    metrics.watch_lag(lambda: seen, lambda: [group])
    text = exported(metrics)
    place = 'partition="3",topic="orders"}'
    assert f'kafka_consumergroup_lag{{consumergroup="g",{place} 12.0' in text
    assert f'kafka_consumergroup_current_offset{{consumergroup="g",{place} 5.0' in text
    assert f'kafka_consumergroup_current_offset{{consumergroup="h",{place} 3.0' in text
    assert 'kafka_consumergroup_lag{consumergroup="h"' not in text, "not known is not 0"
    assert 'kafka_consumergroup_members{consumergroup="g"} 0.0' in text


def test_keys_that_change_hands() -> None:
    async def work() -> None:
        async with Node() as node:
            metrics = Metrics()
            metrics.watch_windows(node.windows.all)
            node.log.produce(b"a", b"b")
            node.beat()
            await settle()
            holder, session = MemberId("m1"), SessionId("s")
            assert node.window().acquire(Acquire(holder, session, 9, now_ms())) is not None
            for number in range(2, 40):
                node.beat(f"m{number}", connection=number)
            await settle()
            labels = f'{{group="{GROUP}",partition="0",topic="{TOPIC}"}}'
            assert f"keyway_window_draining_keys{labels} 2.0" in exported(metrics)
            assert f"keyway_window_drained_keys_total{labels} 0.0" in exported(metrics)
            await node.window().ask(Acknowledge(holder, session, [(0, 1, b"\1")], now_ms()))
            assert f"keyway_window_draining_keys{labels} 0.0" in exported(metrics)
            assert f"keyway_window_drained_keys_total{labels} 2.0" in exported(metrics)

    run(work())


def test_the_server_is_read_when_asked() -> None:
    metrics, counters = Metrics(), Counters()
    metrics.watch_server(counters, lambda: 4)
    assert "keyway_server_requests_total{" not in exported(metrics)
    counters.connections_opened, counters.connections_failed = 9, 2
    counters.bytes_from_clients, counters.bytes_to_clients = 100, 10
    counters.frames |= {int(ApiKey.SHARE_FETCH): 7, int(ApiKey.PRODUCE): 3}
    text = exported(metrics)
    for line in (
        "# TYPE keyway_server_connections gauge",
        "keyway_server_connections 4.0",
        "# TYPE keyway_server_connections_opened_total counter",
        "keyway_server_connections_opened_total 9.0",
        "keyway_server_connections_failed_total 2.0",
        "keyway_server_bytes_from_clients_total 100.0",
        "keyway_server_bytes_to_clients_total 10.0",
        'keyway_server_requests_total{api="produce"} 3.0',
        'keyway_server_requests_total{api="share_fetch"} 7.0',
    ):
        assert f"{line}\n" in text


def test_every_api_that_can_be_counted_has_a_name() -> None:
    served = rules([])
    metrics, counters = Metrics(), Counters()
    metrics.watch_server(counters, lambda: 0)
    counters.frames |= dict.fromkeys([*served.passed, *served.rewritten], 1)
    assert exported(metrics).count("keyway_server_requests_total{") == len(counters.frames)


def test_the_reader_is_read_when_asked() -> None:
    metrics, counts = Metrics(), ReaderCounts()
    metrics.watch_reader(counts, lambda: 3)
    counts.fetches, counts.fetched_bytes, counts.refetches, counts.evicted = 7, 8_000, 2, 5
    text = exported(metrics)
    for line in (
        "# TYPE keyway_reader_fetches_total counter",
        "keyway_reader_fetches_total 7.0",
        "keyway_reader_fetched_bytes_total 8000.0",
        "keyway_reader_rereads_total 2.0",
        "keyway_reader_evicted_batches_total 5.0",
        "keyway_reader_failing_partitions 3.0",
    ):
        assert f"{line}\n" in text
