"""The health of the node for three callers: an alarm (`/health`: is anything amiss), a load
balancer (`/health/ready`: can it serve at all) and a supervisor (`/health/live`: does it answer).

Every part names its own troubles. One partition that cannot be read is amiss, but no reason to
send clients away. A Redis or a Kafka that does not answer is amiss and not ready, but no reason to
restart the node: a restart would mend neither. Parked records and dead letters that are not taken
belong to their group: they are shown there, and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gateway.part import Part


@dataclass(frozen=True, slots=True)
class Health:
    """`reasons`: one line for each trouble; none: all is well."""

    ready: bool
    reasons: tuple[str, ...]
    figures: dict[str, Any]

    def shown(self) -> dict[str, Any]:
        status = "up" if not self.reasons else "degraded" if self.ready else "not ready"
        return {"status": status, "reasons": list(self.reasons), **self.figures}


async def look(parts: Sequence[Part[Any]]) -> Health:
    """The health of all parts now; troubles that keep the node from serving come first."""
    troubles = [
        trouble for part in parts if part.troubles is not None for trouble in await part.troubles()
    ]
    blocking = [trouble.text for trouble in troubles if not trouble.serving]
    others = [trouble.text for trouble in troubles if trouble.serving]
    figures = {
        name: figure
        for part in parts
        if part.figures is not None
        for name, figure in part.figures().items()
    }
    return Health(not blocking, (*blocking, *others), figures)
