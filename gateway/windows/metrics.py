"""Metrics of windows: outcomes of records, positions of windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.core.times import Times
from gateway.metric_rows import Labels, Rows, families, histogram_of
from gateway.windows.limits import WINDOWS_READ_AT_ONCE
from gateway.windows.record_flow import RecordFlow
from gateway.windows.record_outcomes import RecordOutcomes
from gateway.windows.table import WindowTable
from gateway.windows.window_keys import topic_id_bytes


@dataclass(slots=True, eq=False)
class OutcomeCollector(Collector):
    """`left_out`: groups without rows (gateway/members/shown_groups.py)."""

    outcomes: RecordOutcomes
    left_out: Callable[[], frozenset[str]]

    def collect(self) -> Iterator[Metric]:
        return families(self)

    def gather(self) -> Iterator[tuple[Rows, ...]]:
        said = "Records of Key-Shared groups by outcome"
        rows = Rows("keyway_group_records", said, ("group", "outcome"), "counter")
        left_out = self.left_out()
        for at, (group, counts) in enumerate(self.outcomes.all(), 1):
            for outcome, count in () if group in left_out else counts.items():
                rows.add(Labels(group, outcome), count)
            if at % WINDOWS_READ_AT_ONCE == 0:
                yield (rows,)
        yield (rows,)


@dataclass(slots=True, eq=False)
class FlowCollector(Collector):
    flow: RecordFlow
    left_out: Callable[[], frozenset[str]]

    def collect(self) -> Iterator[Metric]:
        return families(self)

    def gather(self) -> Iterator[tuple[Rows, ...]]:
        names = ("group", "topic")
        delivered = Rows(
            "keyway_group_delivered_records",
            "Records sent to members, again or for the first time",
            names,
            "counter",
        )
        settled = Rows(
            "keyway_group_settled_records",
            "Records accepted, dropped, dead-lettered, skipped or taken by retention",
            names,
            "counter",
        )
        found, left_out = (delivered, settled), self.left_out()
        for rows, counted in ((delivered, self.flow.delivered), (settled, self.flow.settled)):
            for at, (group, topics) in enumerate(list(counted.items()), 1):
                for topic, count in () if group in left_out else topics.items():
                    rows.add(Labels(group, topic), count)
                if at % WINDOWS_READ_AT_ONCE == 0:
                    yield found
        yield found


@dataclass(slots=True, eq=False)
class WindowCollector(Collector):
    """Read at scrape time. A window that is not up has its parked records only: an alert about them
    must not end because the group stopped.
    """

    windows: WindowTable

    def collect(self) -> Iterator[Metric]:
        return families(self)

    def gather(self) -> Iterator[tuple[Rows, ...]]:
        names = ("group", "partition", "topic")
        cursor = Rows("keyway_window_cursor", "Next offset not settled", names)
        said = "Offsets from the oldest record that is not aside to the last one read"
        span = Rows("keyway_window_span", said, names)
        said = (
            "Unsettled records that the others have passed: parked, waiting, or behind such records"
        )
        aside = Rows("keyway_window_aside_records", said, names)
        said = "Records aside, as a part of held_max; at 1 the others go no further than the span"
        aside_ratio = Rows("keyway_window_aside_ratio", said, names)
        held_up = Rows("keyway_window_held_up", "1: one record holds up all keys", names)
        draining = Rows(
            "keyway_window_draining_keys", "Keys one member holds and another owns", names
        )
        drained = Rows(
            "keyway_window_drained_keys",
            "Keys that have changed hands, or went home, since the window was loaded",
            names,
            "counter",
        )
        fill = Rows("keyway_window_fill_ratio", "The span, as a part of span_max", names)
        records = Rows(
            "keyway_window_records",
            "Records in flight, backing off, on their way to the dead letters, or parked",
            ("group", "partition", "state", "topic"),
        )
        loading = Rows(
            "keyway_windows_waiting", "Windows that are being loaded, or wait for Redis or Kafka"
        )
        windows = self.windows.all()
        loading.add(Labels(), sum(window.dispatcher is None for window in windows))
        found = (
            *(cursor, span, fill, aside, aside_ratio, held_up),
            *(records, draining, drained, loading),
        )
        for at, window in enumerate(windows, 1):
            core = window.dispatcher
            if core is not None:
                group, partition = window.key.group, str(window.key.partition)
                topic = window.partition.topic
                labels = Labels(group, partition, topic)
                read = max(core.read_position - core.front, 0)
                cursor.add(labels, core.cursor)
                span.add(labels, read)
                fill.add(labels, read / window.section.span_max)
                held = core.held()
                aside.add(labels, held.aside)
                aside_ratio.add(labels, held.aside_part)
                held_up.add(labels, core.holder >= 0)
                for state, count in (
                    ("in_flight", held.in_flight),
                    ("backing_off", held.backing_off),
                    ("dead_lettering", held.dead_lettering),
                    ("parked", held.parked),
                ):
                    records.add(Labels(group, partition, state, topic), count)
                now, ended = core.draining
                draining.add(labels, now)
                drained.add(labels, ended)
            if at % WINDOWS_READ_AT_ONCE == 0:
                yield found
        self._parked_elsewhere(records)
        yield found

    def _parked_elsewhere(self, records: Rows) -> None:
        names = self.windows.dependencies.upstream.topology.names
        for group in self.windows.parked.groups():
            for key, count in self.windows.parked.last(group).items():
                window, topic = self.windows.find(key), names.get(topic_id_bytes(key.topic_id))
                if topic is not None and (window is None or window.dispatcher is None):
                    records.add(Labels(group, str(key.partition), "parked", topic), count)


@dataclass(slots=True, eq=False)
class RoundTripCollector(Collector):
    times: Times

    def collect(self) -> Iterator[Metric]:
        said = "Time of one round trip to Redis, for the changes of all windows"
        family = HistogramMetricFamily("keyway_store_round_trip_seconds", said)
        family.add_metric([], *histogram_of(self.times))
        yield family
