"""Metrics of client connections: bytes, requests, and bytes of records by topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from gateway.core.client_limits.account import Account
from gateway.core.client_limits.accounts import Accounts
from gateway.core.cluster.busiest_topics import BusiestTopics
from gateway.core.forwarding.topic_bytes import TopicBytes
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.listen.counters import Counters, Refused
from gateway.metric_rows import bytes_by_topic, histogram_of

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
            "Time from a client's whole request to its answer without its wait, by Kafka API",
            labels=["api"],
        )
        for key, took in sorted(apis.times.items()):
            times.add_metric([_name(key)], *histogram_of(took))
        yield times
        waits = HistogramMetricFamily(
            "keyway_server_request_wait_seconds",
            "Time that requests of clients wait for records or other members, by Kafka API",
            labels=["api"],
        )
        for key, waited in sorted(apis.waits.items()):
            waits.add_metric([_name(key)], *histogram_of(waited))
        yield waits
        throttled = CounterMetricFamily(
            "keyway_server_throttled_seconds",
            "Waits that upstream's quotas impose on clients (ThrottleTimeMs), by Kafka API",
            labels=["api"],
        )
        for key, throttled_ms in sorted(apis.throttled_ms.items()):
            throttled.add_metric([_name(key)], throttled_ms / 1e3)
        yield throttled


@dataclass(slots=True, eq=False)
class LimitsCollector(Collector):
    """The use of limits by rule of `limits`: an account of its own for each principal would be a
    series for each.
    """

    accounts: Accounts

    def collect(self) -> Iterator[Metric]:
        by_rule: dict[str, list[Account]] = {rule: [] for rule in self.accounts.rules}
        for account in self.accounts.all():
            by_rule[account.rule].append(account)
        connections = GaugeMetricFamily(
            "keyway_limits_connections", "Client connections that a rule limits", labels=["rule"]
        )
        for rule, accounts in by_rule.items():
            connections.add_metric(
                [rule], sum(len(open_account.connections) for open_account in accounts)
            )
        yield connections
        totals = self.accounts.totals
        for name, said, of in _LIMITS:
            counter = CounterMetricFamily(f"keyway_limits_{name}", said, labels=["rule"])
            for rule, accounts in by_rule.items():
                gone = getattr(totals.get(rule), of, 0)
                value = gone + sum(getattr(open_account, of) for open_account in accounts)
                counter.add_metric([rule], value / 1e3 if of.endswith("_ms") else value)
            yield counter


_LIMITS = (  # name, what it says, field of Account
    ("requests", "Requests of clients that a rule limits", "requests"),
    ("bytes_in", "Bytes of requests of clients that a rule limits", "bytes_in"),
    ("bytes_out", "Bytes of responses to clients that a rule limits", "bytes_out"),
    ("throttled_seconds", "Waits that clients were told in throttle_time_ms", "throttled_ms"),
    ("muted", "Requests that had to wait, as their client did not", "muted"),
    ("refused", "Connections and share sessions beyond a limit", "refused"),
)


@dataclass(slots=True, eq=False)
class TopicTrafficCollector(Collector):
    """Bytes of records that pass between plain clients and upstream, by topic."""

    counts: TopicBytes
    _produced: BusiestTopics = field(default_factory=BusiestTopics)
    _fetched: BusiestTopics = field(default_factory=BusiestTopics)

    def collect(self) -> Iterator[Metric]:
        produced, fetched = self.counts.take()
        for counted, topics in ((produced, self._produced), (fetched, self._fetched)):
            for topic, size in counted:
                topics.count(topic, size)
        yield bytes_by_topic(
            self._produced,
            "produced",
            "Bytes of records in Produce requests by topic, refused requests included",
        )
        yield bytes_by_topic(
            self._fetched, "fetched", "Bytes of records in Fetch responses to clients, by topic"
        )


def _name(api_key: int) -> str:
    return ApiKey(api_key).name.lower()
