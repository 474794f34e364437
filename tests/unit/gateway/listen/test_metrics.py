"""The metrics of client connections."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from gateway.core.forwarding.served_apis import rules
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.listen.counters import Counters, Refused
from gateway.listen.metrics import ServerCollector


def exported(*collectors: Collector) -> str:
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return generate_latest(registry).decode()


def test_the_server_is_read_when_asked() -> None:
    counters = Counters()
    metrics = ServerCollector(counters, lambda: 4)
    assert "keyway_server_requests_total{" not in exported(metrics)
    counters.connections_opened, counters.connections_failed = 9, 2
    counters.bytes_from_clients, counters.bytes_to_clients = 100, 10
    apis = counters.apis
    apis.requests.update({int(ApiKey.SHARE_FETCH): 7, int(ApiKey.PRODUCE): 3})
    for took_ms in (1, 2, 40, 60_000):
        apis.answered(ApiKey.PRODUCE, took_ms * 1_000_000)
    apis.throttled(ApiKey.PRODUCE, 1_500)
    counters.count_refused(Refused.TOO_MANY_CLIENTS)
    for _ in range(2):
        counters.count_request_refused(ApiKey.SHARE_FETCH, ErrorCode.UNKNOWN_MEMBER_ID)
    denied = 'api="share_fetch",error="unknown_member_id"'
    text = exported(metrics)
    for line in (
        'keyway_server_refused_total{reason="too_many_clients"} 1.0',
        f"keyway_server_requests_refused_total{{{denied}}} 2.0",
        "# TYPE keyway_server_connections gauge",
        "keyway_server_connections 4.0",
        "# TYPE keyway_server_connections_opened_total counter",
        "keyway_server_connections_opened_total 9.0",
        "keyway_server_connections_failed_total 2.0",
        "keyway_server_bytes_from_clients_total 100.0",
        "keyway_server_bytes_to_clients_total 10.0",
        'keyway_server_requests_total{api="produce"} 3.0',
        'keyway_server_requests_total{api="share_fetch"} 7.0',
        'keyway_server_request_seconds_bucket{api="produce",le="0.001"} 1.0',
        'keyway_server_request_seconds_bucket{api="produce",le="0.025"} 2.0',
        'keyway_server_request_seconds_bucket{api="produce",le="30.0"} 3.0',
        'keyway_server_request_seconds_bucket{api="produce",le="+Inf"} 4.0',
        'keyway_server_request_seconds_count{api="produce"} 4.0',
        'keyway_server_request_seconds_sum{api="produce"} 60.043',
        'keyway_server_throttled_seconds_total{api="produce"} 1.5',
    ):
        assert f"{line}\n" in text


def test_every_api_that_can_be_counted_has_a_name() -> None:
    served = rules([])
    counters = Counters()
    metrics = ServerCollector(counters, lambda: 0)
    keys = [*served.passed, *served.rewritten]
    for key in keys:
        counters.apis.asked(key)
    assert exported(metrics).count("keyway_server_requests_total{") == len(keys)
