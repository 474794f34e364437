"""What operators are shown of a repartition."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.core.repartition.progress import Left
from gateway.core.repartition.record import Phase, Repartition
from gateway.operations.errors import StateUnavailable
from gateway.repartition.limits import LEFT_MS, SHOWN_MAX
from gateway.repartition.repartitions import Repartitions
from gateway.repartition.running import RunningTopic


@dataclass(frozen=True, slots=True)
class ProducerShown:
    """A connection that may still produce by the Metadata of before."""

    connection: int
    client: str  # its address
    client_id: str | None


@dataclass(frozen=True, slots=True)
class Status:
    record: Repartition
    leads: bool  # by the node that takes the steps
    waits_for: tuple[str, ...] = ()
    error: str = ""
    producers: tuple[ProducerShown, ...] = ()
    left: tuple[Left, ...] = ()
    log_ends: tuple[int | None, ...] = ()  # of the old partitions, as last seen
    late_records: int = 0
    late_partitions: tuple[int, ...] = ()
    closed_connections: int = 0
    given_up: tuple[str, ...] = ()  # plain groups that had not passed when their time was over


async def status_of(repartitions: Repartitions, record: Repartition) -> Status:
    run = repartitions.running.get(record.topic)
    if run is None:
        return Status(record, repartitions.leads, given_up=record.given_up)
    error = run.error
    left: list[Left] = []
    if record.phase in (Phase.OPEN, Phase.DRAINING):
        try:
            left = await repartitions.left(run, LEFT_MS)
        except StateUnavailable as away:
            error = error or str(away)
    return Status(
        record,
        repartitions.leads,
        waits_for=run.reasons,
        error=error,
        producers=_producers(run),
        left=tuple(left[:SHOWN_MAX]),
        log_ends=tuple(run.ends.get(partition) for partition in range(record.before)),
        late_records=run.late.records,
        late_partitions=tuple(sorted(run.late.by_partition)),
        closed_connections=run.closed,
        given_up=run.given_up,
    )


def _producers(run: RunningTopic) -> tuple[ProducerShown, ...]:
    if run.record.phase is not Phase.SHOWN:
        return ()
    return tuple(
        ProducerShown(
            connection.id,
            f"{connection.facts.host}:{connection.facts.port}",
            connection.facts.client_id,
        )
        for connection in run.outstanding()[:SHOWN_MAX]
    )


def warnings_of(repartitions: Repartitions) -> list[str]:
    """Lines of /health."""
    found = []
    for topic, run in sorted(repartitions.running.items()):
        if run.error:
            found.append(f"the repartition of topic {topic!r} waits: {run.error}")
        elif run.late.records:
            where = ", ".join(map(str, sorted(run.late.by_partition)[:10]))
            why = "by Metadata of before: by producers that were late, or bypass the gateway"
            if run.record.into:
                why = f"too late: their producers have not moved to topic {run.record.into!r}"
            found.append(
                f"topic {topic!r}: {run.late.records} records came to old partitions {where} {why}"
            )
        found += [
            f"topic {topic!r}: group {group!r} had not committed the earlier records in time"
            " (repartition.consumer_hold_timeout_ms): its keys may be out of order"
            for group in run.given_up
        ]
    return found
