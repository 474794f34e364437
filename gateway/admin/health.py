"""The health of the node for three callers: an alarm (`/health`: is anything amiss), a load
balancer (`/health/ready`: can it serve at all) and a supervisor (`/health/live`: does it answer).

Every part names its own troubles. One partition that cannot be read is amiss, but no reason to
send clients away. A Redis or a Kafka that does not answer is amiss and not ready, but no reason to
restart the node: a restart would mend neither. Parked records and dead letters that are not taken
belong to their group: they are shown there, and counted.

A warning is about somebody else's doing that an operator should know, as a group that stopped. The
node is up all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.part import Part


@dataclass(frozen=True, slots=True)
class Health:
    """`reasons`: one line for each trouble; none: the node is up. `troubles`: their number by part;
    `warnings`: lines by part.
    """

    ready: bool
    reasons: tuple[str, ...]
    figures: dict[str, Any]
    troubles: Mapping[str, int] = field(default_factory=dict)
    warnings: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def shown(self) -> dict[str, Any]:
        status = "up" if not self.reasons else "degraded" if self.ready else "not ready"
        warnings = [line for lines in self.warnings.values() for line in lines]
        return {
            "status": status,
            "reasons": list(self.reasons),
            "warnings": warnings,
            **self.figures,
        }

    def outlined(self) -> dict[str, Any]:
        """What callers see who may not see all groups: a reason may name one, and their number may
        be that of other callers' groups.
        """
        reasons = [part for part, count in self.troubles.items() if count]
        warnings = [part for part, lines in self.warnings.items() if lines]
        return {"status": self.shown()["status"], "reasons": reasons, "warnings": warnings}


async def look(parts: Sequence[Part[Any]]) -> Health:
    """The health of all parts now; troubles that keep the node from serving come first."""
    by_part = {part.name: await part.troubles() for part in parts if part.troubles is not None}
    troubles = [trouble for found in by_part.values() for trouble in found]
    blocking = [trouble.text for trouble in troubles if not trouble.serving]
    others = [trouble.text for trouble in troubles if trouble.serving]
    figures = {
        name: figure
        for part in parts
        if part.figures is not None
        for name, figure in part.figures().items()
    }
    counts = {name: len(found) for name, found in by_part.items()}
    warnings = {part.name: part.warnings() for part in parts if part.warnings is not None}
    return Health(not blocking, (*blocking, *others), figures, counts, warnings)


@dataclass(slots=True, eq=False)
class HealthCollector(Collector):
    """The health of the last look: each scrape looks first."""

    seen: Health | None = None

    def collect(self) -> Iterator[Metric]:
        if self.seen is None:
            return
        ready = GaugeMetricFamily("keyway_health_ready", "1: the node can serve clients")
        ready.add_metric([], self.seen.ready)
        troubles = GaugeMetricFamily(
            "keyway_health_troubles", "Reasons in /health, by part of the node", labels=["part"]
        )
        for name, count in self.seen.troubles.items():
            troubles.add_metric([name], count)
        warnings = GaugeMetricFamily(
            "keyway_health_warnings", "Warnings in /health, by part of the node", labels=["part"]
        )
        for name, lines in self.seen.warnings.items():
            warnings.add_metric([name], len(lines))
        yield from (ready, troubles, warnings)
