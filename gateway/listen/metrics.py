"""Metrics of client connections: bytes and requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.listen.counters import Counters, Refused

_SERVER = {  # by field of Counters
    "connections_opened": "Client connections that were accepted",
    "connections_failed": "Client connections that ended for a fault, or without an upstream",
    "bytes_from_clients": "Bytes of requests read from clients",
    "bytes_to_clients": "Bytes of responses sent to clients",
}


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
        for key, count in sorted(self.counters.frames.items()):
            requests.add_metric([ApiKey(key).name.lower()], count)
        yield requests
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
            answered.add_metric([ApiKey(key).name.lower(), ErrorCode(code).name.lower()], count)
        yield answered
