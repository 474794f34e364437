"""The metrics of the links of one process: their status at the time of the scrape."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from keyway.service import wall_ms
from spark.links.reports import LinkReport
from spark.links.status import LEFT, PartitionStatus, TopicStatus

# Counted since the link exists, also by earlier runs: name, help, field of PartitionStatus.
COUNTS = (
    ("copied_records", "Records written to the target", "copied"),
    ("skipped_records", "Records that were on another way or on the target already", "skipped"),
    ("repeated_records", "Records written twice (delivery: at_least_once)", "repeats"),
    ("copy_headers_doubted", "Copy headers that were not believed", "doubts"),
    ("refused_records", "Records that the target refused: left out, or dead letters", "left_out"),
    ("deleted_records", "Records that were deleted before they were copied", "gap"),
)

# A word with a digit.
_PARTICULAR = re.compile(r"\S*\d\S*")
CAUSE_CHARACTERS_MAX = 80  # lists of partitions are cut off

Reports = Callable[[], Sequence[LinkReport]]  # of the links as they run now


class LinkCollector(Collector):
    """A link that has not read its status yet has no topics."""

    def __init__(self, reports: Reports) -> None:
        self._reports = reports

    def collect(self) -> Iterable[Metric]:
        links = [(report.link, report.running, _followed(report)) for report in self._reports()]
        running = GaugeMetricFamily(
            "keyway_distribution_link_running",
            "1: the link copies; 0: it waits for a cluster, or has ended",
            labels=["link"],
        )
        stopped = GaugeMetricFamily(
            "keyway_distribution_topics_stopped",
            "Topics that the link does not copy; `keyway distribute status` has the reason",
            labels=["link"],
        )
        faults = GaugeMetricFamily(
            "keyway_distribution_fault",
            "1 while something is amiss, with its cause in general terms (all of it:"
            " `keyway distribute status`); topic is empty where it is the whole link",
            labels=["link", "topic", "cause"],
        )
        for report in self._reports():
            if report.fault:
                faults.add_metric([report.link, "", in_general(report.fault)], 1)
        for link, is_running, topics in links:
            for name, topic in topics.items():
                if topic.state == "stopped":
                    faults.add_metric([link, name, in_general(topic.reason)], 1)
            running.add_metric([link], is_running)
            stopped.add_metric([link], sum(topic.state == "stopped" for topic in topics.values()))
        rows = [
            ([link, name], topic) for link, _, topics in links for name, topic in topics.items()
        ]
        return [running, stopped, faults, *_lags(rows), *_counts(rows)]


def in_general(fault: str) -> str:
    """The fault without offsets, ids and addresses: each would be a new series."""
    return _PARTICULAR.sub("…", fault)[:CAUSE_CHARACTERS_MAX]


def _followed(report: LinkReport) -> dict[str, TopicStatus]:
    return {name: topic for name, topic in report.topics().items() if topic.state != LEFT}


Rows = Sequence[tuple[list[str], TopicStatus]]  # labels link and topic


def _lags(rows: Rows) -> Iterable[Metric]:
    lag = GaugeMetricFamily(
        "keyway_distribution_lag_records",
        "Records on the source that were not copied yet",
        labels=["link", "topic"],
    )
    age = GaugeMetricFamily(
        "keyway_distribution_lag_seconds",
        "Age of the last copied record while there are others behind it, of the latest partition",
        labels=["link", "topic"],
    )
    stands = GaugeMetricFamily(
        "keyway_distribution_commit_age_seconds",
        "Time since the last commit while records wait, of the partition that waits longest",
        labels=["link", "topic"],
    )
    now = wall_ms()
    for labels, topic in rows:
        partitions = topic.partitions.values()
        waits = min(
            (partition.waits_since_ms for partition in partitions if partition.waits_since_ms),
            default=now,
        )
        stands.add_metric(labels, max(0, now - waits) / 1_000)
        lag.add_metric(labels, sum(partition.lag_records for partition in partitions))
        age.add_metric(labels, max((partition.lag_s for partition in partitions), default=0.0))
    return lag, age, stands


def _counts(rows: Rows) -> Iterable[Metric]:
    for name, told, field in COUNTS:
        family = CounterMetricFamily(f"keyway_distribution_{name}", told, labels=["link", "topic"])
        for labels, topic in rows:
            family.add_metric(labels, _sum(topic.partitions.values(), field))
        yield family


def _sum(partitions: Iterable[PartitionStatus], field: str) -> int:
    return sum(getattr(partition, field) for partition in partitions)
