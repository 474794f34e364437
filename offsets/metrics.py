"""The metrics of offsets that follow."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Collection

from prometheus_client import CollectorRegistry, Counter, Gauge

from offsets.core.plan import UNSAFE, Row


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.works = Gauge(
            "keyway_offsets_works",
            "1: this process works for its cluster; 0: it stands by, another one has the lease",
            registry=self.registry,
        )
        self.delay = Gauge(
            "keyway_offsets_distribution_delay_seconds",
            "Age of a commit elsewhere when it was first decided on here, the oldest of a round",
            registry=self.registry,
        )
        self.unsafe = Gauge(
            "keyway_offsets_groups_unsafe",
            "Groups with a partition that a timestamp cannot promise anything for",
            registry=self.registry,
        )
        self.refused = Gauge(
            "keyway_offsets_refused",
            "Partitions of groups that are not committed here, by reason",
            ["reason"],
            registry=self.registry,
        )
        self.replay = Gauge(
            "keyway_offsets_replay_expected_records",
            "Records that a group would get again here, at most",
            ["group"],
            registry=self.registry,
        )
        self.behind = Gauge(
            "keyway_offsets_partitions_behind",
            "Partitions whose index has not reached the log's end yet",
            registry=self.registry,
        )
        self.distributed = Counter(
            "keyway_offsets_entries_distributed",
            "Commits of groups here that went out to the other clusters",
            registry=self.registry,
        )
        self.doubted = Gauge(
            "keyway_offsets_copy_headers_doubted",
            "Copy headers that were not believed",
            registry=self.registry,
        )
        self.failures = Counter(
            "keyway_offsets_failed_rounds",
            "Rounds that ended early because a cluster was away",
            registry=self.registry,
        )

    def decided(self, rows: Collection[Row], delays_ms: Collection[int]) -> None:
        """`rows`: the latest of every partition of a group; `delays_ms`: of each new entry."""
        if delays_ms:
            self.delay.set(max(delays_ms) / 1_000)
        unsafe = set(UNSAFE.values())
        self.unsafe.set(len({row.group for row in rows if unsafe & set(row.refusals)}))
        self.refused.clear()
        for reason, count in Counts(why for row in rows for why in row.refusals).items():
            self.refused.labels(reason.value).set(count)
        self.replay.clear()
        replay: Counts[str] = Counts()
        for row in rows:
            replay[row.group] += row.replay
        for group, records in replay.items():
            self.replay.labels(group).set(records)
