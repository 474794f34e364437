"""The overviews of several nodes as one, and their histories of one group. Rows are JSON.

Every node knows the members, the logs and, as of its last look, the lag of every group: those are
the asked node's. What a node does is its own: windows, records in flight, outcomes, traffic are
sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from gateway.core.history import SAMPLE_MS_MIN, time_to_catch_up_s

Row = dict[str, Any]

_SUMS: Final = ("windows", "waiting", "in_flight", "backing_off", "dead_lettering")
_MORE_SUMS: Final = ("draining_keys", "stuck")
_TRAFFIC_SUMS: Final = (
    *("connections", "connections_opened", "connections_failed", "refused"),
    *("bytes_from_clients", "bytes_to_clients", "throttled_ms"),
)
_APART_MS: Final = 2 * SAMPLE_MS_MIN  # samples of two nodes that are of one time


def overview(
    answers: Mapping[str, Row], unanswered: Sequence[Mapping[str, str]], groups_max: int
) -> Row:
    """`answers`: by node, that of the asked one first. Raises KeyError, TypeError, ValueError for
    what is no overview.
    """
    own = next(iter(answers.values()))
    found: dict[str, list[Row]] = {}
    for answer in answers.values():
        for line in answer["groups"]:
            found.setdefault(line["group"], []).append(line)
    names = sorted(found)
    hidden = max(answer["groups_hidden"] for answer in answers.values())
    return {
        **own,
        "health": _health({name: said["health"] for name, said in answers.items()}, unanswered),
        "traffic": _traffic([said["traffic"] for said in answers.values()]),
        "groups_hidden": hidden + max(0, len(names) - groups_max),
        "nodes": sorted(answers),
        "unanswered": list(unanswered),
        "groups": [_group(found[name]) for name in names[:groups_max]],
    }


def _group(lines: Sequence[Row]) -> Row:
    own = lines[0]
    if len(lines) == 1:
        return own
    lag = _first(line["lag"] for line in lines)
    flow = {
        "produced": _first(line["flow"]["produced"] for line in lines),
        "delivered": _sum(line["flow"]["delivered"] for line in lines),
        "settled": _sum(line["flow"]["settled"] for line in lines),
    }
    return {
        **own,
        **{name: sum(line[name] for line in lines) for name in (*_SUMS, *_MORE_SUMS)},
        "lag": lag,
        "lag_seconds": _first(line["lag_seconds"] for line in lines),
        "parked": _first(line["parked"] for line in lines),
        "outcomes": _counts(line["outcomes"] for line in lines),
        "flow": flow,
        "stopped": all(line["stopped"] for line in lines),
        "catches_up_s": time_to_catch_up_s(lag, flow["produced"], flow["settled"]),
        "lately": next((line["lately"] for line in lines if line["lately"]), []),
    }


def _traffic(answers: Sequence[Row | None]) -> Row | None:
    """Times are added where nodes have the same bounds; they do, unless they differ in version.
    None: the caller may not see it.
    """
    rows = [row for row in answers if row is not None]
    if not rows:
        return None
    own = rows[0]
    alike = [row for row in rows if row["bounds_ms"] == own["bounds_ms"]]
    return {
        **own,
        **{name: sum(row[name] for row in rows) for name in _TRAFFIC_SUMS},
        "requests": _counts(row["requests"] for row in rows),
        "answered": _columns(row["answered"] for row in alike),
        "waited": _columns(row["waited"] for row in alike),
    }


def _health(rows: Mapping[str, Row], unanswered: Sequence[Mapping[str, str]]) -> Row:
    """Clients are sent away if no node serves; what one node lacks is amiss. A line that several
    say is of what they share.
    """
    statuses = {row["status"] for row in rows.values()}
    reasons = _lines({name: row["reasons"] for name, row in rows.items()})
    reasons += [
        f"node {silent['node']} does not answer: {silent['reason']}" for silent in unanswered
    ]
    if statuses == {"not ready"}:
        status = "not ready"
    else:
        status = "up" if statuses == {"up"} and not unanswered else "degraded"
    return {
        **next(iter(rows.values())),
        "status": status,
        "reasons": reasons,
        "warnings": _lines({name: row["warnings"] for name, row in rows.items()}),
    }


def _lines(said: Mapping[str, Sequence[str]]) -> list[str]:
    by_line: dict[str, list[str]] = {}
    for node, lines in said.items():
        for line in lines:
            by_line.setdefault(line, []).append(node)
    return [line if len(by) > 1 else f"node {by[0]}: {line}" for line, by in by_line.items()]


# --------------------------------------------------------------------------------------- histories


def history(answers: Sequence[Row]) -> Row:
    """The history of one group; the topics of the asked node come first."""
    topics: dict[str, list[Row]] = {}
    for answer in answers:
        for row in answer["topics"]:
            topics.setdefault(row["topic"], []).append(row)
    return {
        **answers[0],
        "whole": _columns_of_time([answer["whole"] for answer in answers]),
        "topics": [_columns_of_time(topics[topic]) for topic in topics],
        "topics_hidden": max(answer["topics_hidden"] for answer in answers),
    }


def _columns_of_time(rows: Sequence[Row]) -> Row:
    """The columns at the times of the first node that has any. Of each other node the nearest
    sample is taken.
    """
    rows = [row for row in rows if row["at_ms"]] or list(rows[:1])
    own, *others = rows
    merged = {name: list(column) for name, column in own.items() if isinstance(column, list)}
    for other in others:
        at = 0
        times = other["at_ms"]
        for place, time in enumerate(own["at_ms"]):
            while at + 1 < len(times) and abs(times[at + 1] - time) <= abs(times[at] - time):
                at += 1
            if abs(times[at] - time) > _APART_MS:
                continue
            for name in ("delivered", "settled"):
                merged[name][place] = _sum((merged[name][place], other[name][at]))
            for name in ("lag", "produced"):
                merged[name][place] = _first((merged[name][place], other[name][at]))
    return {**own, **merged}


def _counts(rows: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in rows:
        for name, count in row.items():
            found[name] = found.get(name, 0) + count
    return found


def _columns(rows: Iterable[Mapping[str, Sequence[int]]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in rows:
        for name, counts in row.items():
            before = found.get(name, [0] * len(counts))
            found[name] = [one + other for one, other in zip(before, counts, strict=True)]
    return found


def _first(values: Iterable[Any]) -> Any:  # noqa: ANN401 - any figure
    """The first that is known."""
    return next((value for value in values if value is not None), None)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known), 3) if known else None
