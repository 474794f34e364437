"""The next step of a repartition, or what it waits for. Every node comes to the same; the one whose
id sorts first takes the step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gateway.core.repartition.record import Move, Phase, Repartition


@dataclass(frozen=True, slots=True)
class NodeSaid:
    """What a node has told of this repartition. `producers`: connections on it that may still
    produce by the old Metadata.
    """

    version: int  # of the record, as it acts by it
    producers: int = 0


@dataclass(frozen=True, slots=True)
class Left:
    """What a group has to settle below the boundary of one old partition before the topic is as
    any other. `offsets`: at most; `keys` None: not known, the group has no window there.
    """

    group: str
    partition: int
    offsets: int
    keys: int | None = None


@dataclass(frozen=True, slots=True)
class Next:
    """`move` None: it waits, for `reasons`."""

    move: Move | None
    reasons: tuple[str, ...] = ()


def next_step(
    record: Repartition,
    live: Collection[str],
    said: Mapping[str, NodeSaid],
    left: Collection[Left],
    now_ms: int,
) -> Next:
    """`live`: the ids of the live nodes; `left`: of every group with a position in the topic."""
    if not record.runs:
        return Next(None)
    unaware = [
        f"node {node} does not act by it yet"
        for node in sorted(live)
        if node not in said or said[node].version < record.version
    ]
    if record.phase is Phase.MARKED:
        return Next(None, tuple(unaware)) if unaware else Next(Move.CREATE)
    if record.phase is Phase.CREATED:
        return Next(Move.SHOW)
    if record.phase is Phase.SHOWN:
        reasons = unaware or [
            f"node {node}: {it.producers} connections may produce by the old Metadata"
            for node, it in sorted(said.items())
            if node in live and it.producers
        ]
        return Next(None, tuple(reasons)) if reasons else Next(Move.OPEN)
    reasons = [_unsettled(it) for it in left if it.offsets]
    late_ms = record.opened_ms + record.pace.late_ms - now_ms
    if late_ms > 0:
        reasons.append(f"late records may come for {-(-late_ms // 1000)} s")
    return Next(None, tuple(reasons)) if reasons else Next(Move.FINISH)


def _unsettled(left: Left) -> str:
    keys = "" if left.keys is None else f" of {left.keys} keys"
    return f"group {left.group}: up to {left.offsets} records{keys} in partition {left.partition}"


class AbortRefused(Exception):
    """One line that says why."""


def aborted(record: Repartition) -> Repartition:
    """Raises AbortRefused."""
    if record.phase in (Phase.MARKED, Phase.CREATED):
        return record.moved(Move.ABORT)
    if record.runs:
        raise AbortRefused(
            f"topic {record.topic!r} is {record.phase.value}: clients have seen {record.after}"
            " partitions, and may have produced to them; it can only go on"
        )
    raise AbortRefused(f"topic {record.topic!r} has no repartition under way")
