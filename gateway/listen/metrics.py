"""Metrics of client connections: bytes and requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from gateway.core.forwarding.api_counts import BOUNDS_MS
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.listen.counters import Counters, Refused

_SERVER = {  # by field of Counters
    "connections_opened": "Client connections that were accepted",
    "connections_failed": "Client connections that ended for a fault, or without an upstream",
    "bytes_from_clients": "Bytes of requests read from clients",
    "bytes_to_clients": "Bytes of responses sent to clients",
}

_BOUNDS = [*(str(bound / 1_000) for bound in BOUNDS_MS), "+Inf"]


@dataclass(slots=True, eq=False)
class ServerCollector(Collector):
    counters: Counters
    connections: Callable[[], int]

    def collect(self) -> Iterator[Metric]:
        now_open = GaugeMetricFamily(
            "keyway_server_connections", "Client connections that are open"
        )
        now_open.add_metric([], self.connections())
        yield now_open
        for name, said in _SERVER.items():
            counter = CounterMetricFamily(f"keyway_server_{name}", said)
            counter.add_metric([], getattr(self.counters, name))
            yield counter
        requests = CounterMetricFamily(
            "keyway_server_requests", "Requests of clients by Kafka API", labels=["api"]
        )
        for key, count in sorted(self.counters.apis.requests.items()):
            requests.add_metric([_name(key)], count)
        yield requests
        yield from self._times()
        refused = CounterMetricFamily(
            "keyway_server_refused",
            "Connections refused or closed at a bound of the node",
            labels=["reason"],
        )
        for reason in Refused:
            refused.add_metric([reason.value], self.counters.refused.get(reason, 0))
        yield refused
        answered = CounterMetricFamily(
            "keyway_server_requests_refused",
            "Requests that the gateway answered with an error, by Kafka API and error",
            labels=["api", "error"],
        )
        for (key, code), count in sorted(self.counters.requests_refused.items()):
            answered.add_metric([_name(key), ErrorCode(code).name.lower()], count)
        yield answered

    def _times(self) -> Iterator[Metric]:
        apis = self.counters.apis
        times = HistogramMetricFamily(
            "keyway_server_request_seconds",
            "Time from a client's whole request to its answer, by Kafka API",
            labels=["api"],
        )
        for key, took in sorted(apis.times.items()):
            counts = zip(_BOUNDS, accumulate(took.buckets), strict=True)
            times.add_metric([_name(key)], list(counts), took.sum_ns / 1e9)
        yield times
        throttled = CounterMetricFamily(
            "keyway_server_throttled_seconds",
            "Waits that upstream's quotas impose on clients (ThrottleTimeMs), by Kafka API",
            labels=["api"],
        )
        for key, throttled_ms in sorted(apis.throttled_ms.items()):
            throttled.add_metric([_name(key)], throttled_ms / 1e3)
        yield throttled


def _name(api_key: int) -> str:
    return ApiKey(api_key).name.lower()
