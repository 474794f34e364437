"""Every figure the node exports, in one place: what became of records, where windows stand, what is
read from upstream, what connections carry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field

import structlog
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dispatcher.core.model import Notice, Noticed
from gateway.core.cluster.topology import TopicPartition
from gateway.core.share.membership import ShareGroup
from gateway.core.wire.apis import ApiKey
from gateway.listen.connection import Counters
from gateway.operations.lag import Lag
from gateway.reading.reader import ReaderCounts
from gateway.windows.window import Window

log = structlog.get_logger("keyway.dispatch")

# What an operator must hear of, beside its counter.
_LOGGED = {
    Notice.PARKED,
    Notice.DEAD_LETTERED,
    Notice.DROPPED,
    Notice.GAP_ACK,
    Notice.SPAN_FULL,
    Notice.TIMED_OUT,
    Notice.SATURATED,
    Notice.TRUNCATED,
}

_READER = {  # by field of ReaderCounts: the counter and what it says
    "fetches": ("fetches", "Fetch requests for records that windows wait for"),
    "fetched_bytes": ("fetched_bytes", "Bytes of records read, as upstream has them"),
    "refetches": ("rereads", "Fetch requests for records that had left the cache"),
    "evicted": ("evicted_batches", "Batches that left the cache to make room for others"),
}

_SERVER = {  # by field of Counters
    "connections_opened": "Client connections that were accepted",
    "connections_failed": "Client connections that ended for a fault, or without an upstream",
    "bytes_from_clients": "Bytes of requests read from clients",
    "bytes_to_clients": "Bytes of responses sent to clients",
}


@dataclass(slots=True)
class Metrics:
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    _records: Counter = field(init=False)

    def __post_init__(self) -> None:
        self._records = Counter(
            "keyway_group_records",
            "Records of key-shared groups by what became of them",
            ["group", "outcome"],
            registry=self.registry,
        )

    def noticed(self, group: str, partition: TopicPartition, noticed: Noticed) -> None:
        self._records.labels(group, noticed.notice.value).inc(noticed.count)
        if noticed.notice in _LOGGED:
            log.warning(
                noticed.notice.value,
                group=group,
                topic=partition.topic,
                partition=partition.partition,
                count=noticed.count,
                detail=noticed.detail,
            )

    def forget(self, group: str) -> None:
        """A group that is gone leaves no series behind."""
        for notice in Notice:
            with suppress(KeyError):
                self._records.remove(group, notice.value)

    def watch_windows(self, windows: Callable[[], Iterable[Window]]) -> None:
        self.registry.register(_WindowCollector(windows))

    def watch_lag(
        self, lags: Callable[[], Iterable[Lag]], groups: Callable[[], Iterable[ShareGroup]]
    ) -> None:
        self.registry.register(_LagCollector(lags, groups))

    def watch_reader(self, counts: ReaderCounts, failing_partitions: Callable[[], int]) -> None:
        self.registry.register(_ReaderCollector(counts, failing_partitions))

    def watch_server(self, counters: Counters, connections: Callable[[], int]) -> None:
        self.registry.register(_ServerCollector(counters, connections))


@dataclass(slots=True, eq=False)
class _WindowCollector(Collector):
    """Read at scrape time; a window that is being loaded has no figures."""

    windows: Callable[[], Iterable[Window]]

    def collect(self) -> Iterator[Metric]:
        labels = ["group", "topic", "partition"]
        cursor = GaugeMetricFamily("keyway_window_cursor", "Next offset not settled", labels=labels)
        span = GaugeMetricFamily(
            "keyway_window_span", "Offsets between the cursor and the last one read", labels=labels
        )
        draining = GaugeMetricFamily(
            "keyway_window_draining_keys", "Keys one member holds and another owns", labels=labels
        )
        drained = CounterMetricFamily(
            "keyway_window_drained_keys",
            "Keys that have changed hands, or went home, since the window was loaded",
            labels=labels,
        )
        for window in self.windows():
            core = window.dispatcher
            if core is None:
                continue
            values = [window.key.group, window.partition.topic, str(window.key.partition)]
            cursor.add_metric(values, core.cursor)
            span.add_metric(values, core.read_position - core.cursor)
            now, ended = core.draining
            draining.add_metric(values, now)
            drained.add_metric(values, ended)
        yield from (cursor, span, draining, drained)


@dataclass(slots=True, eq=False)
class _LagCollector(Collector):
    """Under the names that kafka_exporter has given them, which boards and alerts know. They are as
    of the last look (gateway/operations/lag.py): a scrape asks nobody.
    """

    lags: Callable[[], Iterable[Lag]]
    groups: Callable[[], Iterable[ShareGroup]]

    def collect(self) -> Iterator[Metric]:
        labels = ["consumergroup", "topic", "partition"]
        offset = GaugeMetricFamily(
            "kafka_consumergroup_current_offset", "Next offset not settled", labels=labels
        )
        lag = GaugeMetricFamily(
            "kafka_consumergroup_lag",
            "Records of the log that the group has not settled",
            labels=labels,
        )
        members = GaugeMetricFamily(
            "kafka_consumergroup_members", "Members of the group", labels=labels[:1]
        )
        for one in self.lags():
            values = [one.group, one.tp.topic, str(one.tp.partition)]
            offset.add_metric(values, one.cursor)
            if one.records is not None:
                lag.add_metric(values, one.records)
        for group in self.groups():
            members.add_metric([group.name], len(group.members))
        yield from (offset, lag, members)


@dataclass(slots=True, eq=False)
class _ReaderCollector(Collector):
    counts: ReaderCounts
    failing_partitions: Callable[[], int]

    def collect(self) -> Iterator[Metric]:
        for count, value in asdict(self.counts).items():
            name, said = _READER[count]
            counter = CounterMetricFamily(f"keyway_reader_{name}", said)
            counter.add_metric([], value)
            yield counter
        failing = GaugeMetricFamily(
            "keyway_reader_failing_partitions", "Partitions of which nothing more can be read now"
        )
        failing.add_metric([], self.failing_partitions())
        yield failing


@dataclass(slots=True, eq=False)
class _ServerCollector(Collector):
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
