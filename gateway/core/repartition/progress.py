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
    late_ms: int = 0  # when it saw the last record of the old Metadata above a boundary; 0: none


@dataclass(frozen=True, slots=True)
class Left:
    """What a group has to settle in one old partition before the repartition can end. `offsets`: at
    most this many unsettled records below the boundary. `keys`: how many keys have some, or move
    for certain and have unsettled records above it; None: not known, the group has no window there.
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
        if not record.prepared:
            return Next(Move.PREPARE)
        return Next(None, tuple(unaware)) if unaware else Next(Move.SHOW)
    if record.phase is Phase.SHOWN:
        reasons = unaware or [
            f"node {node}: {report.producers} connections may produce by the old Metadata"
            for node, report in sorted(said.items())
            if node in live and report.producers
        ]
        return Next(None, tuple(reasons)) if reasons else Next(Move.OPEN)
    if record.phase is Phase.OPEN:
        return _raised(
            record, unaware, [report for node, report in said.items() if node in live], now_ms
        )
    unsettled = [_unsettled(group) for group in left if group.offsets or group.keys]
    return Next(None, tuple(unsettled)) if unsettled else Next(Move.FINISH)


def _raised(
    record: Repartition, unaware: list[str], said: Collection[NodeSaid], now_ms: int
) -> Next:
    last_late_ms = max((report.late_ms for report in said), default=0)
    left_ms = max(record.opened_ms, last_late_ms) + record.pace.late_ms - now_ms
    reasons = list(unaware)
    if left_ms > 0:
        why = "may come" if last_late_ms <= record.opened_ms else "came, and may come again"
        what = f"records of topic {record.topic}" if record.into else "late records"
        reasons.append(f"{what} {why} for {-(-left_ms // 1000)} s")
    return Next(None, tuple(reasons)) if reasons else Next(Move.RAISE)


def _unsettled(left: Left) -> str:
    what = f"up to {left.offsets} records" if left.offsets else "late records"
    keys = "" if left.keys is None else f" of {left.keys} keys"
    return f"group {left.group}: {what}{keys} in partition {left.partition}"


class AbortRefused(Exception):
    """The repartition cannot be aborted; one line says why."""


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
