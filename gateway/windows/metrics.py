"""Metrics of windows: outcomes of records, positions of windows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from dispatcher.core.model import Notice, Noticed
from gateway.core.cluster.topology import TopicPartition
from gateway.core.times import Times
from gateway.group_log import GroupLog
from gateway.metric_rows import Labels, Rows, families, histogram_of
from gateway.windows.limits import WINDOWS_READ_AT_ONCE
from gateway.windows.table import WindowTable
from gateway.windows.window_keys import topic_id_bytes

# Logged for the operator, beside the counter: one line per group in 10 s.
_LOGGED = {
    Notice.PARKED,
    Notice.DEAD_LETTERED,
    Notice.DROPPED,
    Notice.GAP_ACK,
    Notice.SPAN_FULL,
    Notice.TIMED_OUT,
    Notice.SATURATED,
    Notice.SILENT,
    Notice.HEARD_AGAIN,
    Notice.TRUNCATED,
}


@dataclass(slots=True, eq=False)
class RecordOutcomes(Collector):
    """Counts records by group and outcome; logs the outcomes that an operator must see."""

    log: GroupLog
    _counts: dict[str, dict[Notice, int]] = field(default_factory=dict)  # by group

    def noticed(self, group: str, partition: TopicPartition, noticed: Noticed) -> None:
        counts = self._counts.get(group)
        if counts is None:  # from 0: an alert on an increase must see the first record, too
            counts = self._counts[group] = dict.fromkeys(Notice, 0)
        counts[noticed.notice] += noticed.count
        if noticed.notice in _LOGGED:
            example: dict[str, object] = {
                "topic": partition.topic,
                "partition": partition.partition,
            }
            if noticed.offset >= 0:
                example["offset"] = noticed.offset
            if noticed.detail:
                example["detail"] = noticed.detail
            self.log.note(group, noticed.notice.value, noticed.count, **example)

    def of(self, group: str) -> dict[str, int]:
        """Records of a group by outcome, without those that never occurred."""
        counts = self._counts.get(group, {})
        return {notice.value: count for notice, count in counts.items() if count}

    def forget(self, group: str) -> None:
        """Removes the series of a group that is gone."""
        self._counts.pop(group, None)

    def collect(self) -> Iterator[Metric]:
        return families(self)

    def gather(self) -> Iterator[tuple[Rows, ...]]:
        said = "Records of Key-Shared groups by outcome"
        rows = Rows("keyway_group_records", said, ("group", "outcome"), "counter")
        for at, (group, counts) in enumerate(list(self._counts.items()), 1):
            for notice, count in counts.items():
                rows.add(Labels(group, notice.value), count)
            if at % WINDOWS_READ_AT_ONCE == 0:
                yield (rows,)
        yield (rows,)


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
