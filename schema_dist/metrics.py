"""The metrics of schema distribution."""

from __future__ import annotations

from collections import Counter as Counts

from prometheus_client import CollectorRegistry, Counter, Gauge

from schema_dist.core.model import COLLISIONS, Reason
from schema_dist.target_sync import Round


class Metrics:
    def __init__(self) -> None:
        self.bad_records = 0
        self.registry = CollectorRegistry()
        self._behind = Gauge(
            "keyway_schemas_behind",
            "Writes that a target still lacks",
            ["target"],
            registry=self.registry,
        )
        self._in_sync = Gauge(
            "keyway_schemas_in_sync",
            "Versions that a target has as the source has them",
            ["target"],
            registry=self.registry,
        )
        self._writes = Counter(
            "keyway_schemas_writes",
            "Writes that were made and read back",
            ["target", "kind"],
            registry=self.registry,
        )
        self._refused = Gauge(
            "keyway_schemas_refused",
            "Versions that are not distributed, by reason",
            ["target", "reason"],
            registry=self.registry,
        )
        self._collisions = Gauge(
            "keyway_schemas_collisions",
            "Versions whose id or number another schema has on the target",
            ["target"],
            registry=self.registry,
        )
        self._failures = Counter(
            "keyway_schemas_failed_rounds",
            "Rounds that ended early because a registry or Kafka was away",
            ["target"],
            registry=self.registry,
        )
        self._bad_records = Gauge(
            "keyway_schemas_bad_records",
            "Records of the source's log that could not be understood",
            registry=self.registry,
        )

    def progress(self, target: str, behind: int) -> None:
        self._behind.labels(target).set(behind)

    def round(self, target: str, done: Round) -> None:
        self._behind.labels(target).set(done.behind)
        self._in_sync.labels(target).set(done.in_sync)
        for kind, count in done.writes.items():
            self._writes.labels(target, kind).inc(count)
        by_reason = Counts(refusal.reason for refusal in done.refusals)
        for reason in Reason:
            self._refused.labels(target, reason.value).set(by_reason[reason])
        self._collisions.labels(target).set(sum(by_reason[reason] for reason in COLLISIONS))

    def failed(self, target: str) -> None:
        self._failures.labels(target).inc()

    def source(self, bad_records: int) -> None:
        self.bad_records = bad_records
        self._bad_records.set(bad_records)
