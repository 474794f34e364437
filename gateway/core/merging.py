"""The answers of several nodes to one question of REST, put together.

Rows are JSON, as they came. A page ends where the first of the nodes that have more rows ends:
behind that, rows of this node might be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Row = dict[str, Any]
RowKey = tuple[Any, ...]
Together = Callable[[Sequence[Row]], Row]  # rows of one place, that of the asked node first

_RANKS: Final = {"up": 2, "loading": 1}  # of a window; else it is nobody's, or another node's
_FIGURES: Final = ("ready_keys", "in_flight", "draining_keys", "silent_partitions", "connections")


@dataclass(frozen=True, slots=True)
class Pages:
    """The form of a list: the `field` with its rows, the names that order them, and their merge."""

    field: str
    order: tuple[str, ...]
    together: Together

    def place(self, row: Row) -> RowKey:
        return tuple(row[name] for name in self.order)

    def place_of(self, text: str) -> RowKey:
        """Reads the `next` of a page: `orders-3-17` for a topic, a partition and an offset."""
        head, *numbers = text.rsplit("-", len(self.order) - 1) if len(self.order) > 1 else [text]
        return (head, *map(int, numbers))

    def text_of(self, place: RowKey) -> str:
        return "-".join(map(str, place))


def page(pages: Pages, answers: Sequence[Mapping[str, Any]], limit: int) -> Row:
    """One page of at most `limit` rows; `answers`: that of the asked node first. Raises ValueError,
    KeyError, TypeError for rows that are none.
    """
    ends = [pages.place_of(part["next"]) for part in answers if part.get("next") is not None]
    horizon = min(ends, default=None)
    found: dict[RowKey, list[Row]] = {}
    for answer in answers:
        for row in answer[pages.field]:
            place = pages.place(row)
            if horizon is None or place <= horizon:
                found.setdefault(place, []).append(row)
    places = sorted(found)
    shown = places[:limit]
    end = shown[-1] if len(places) > limit else horizon
    rows = [pages.together(found[place]) for place in shown]
    following = None if end is None else pages.text_of(end)
    return {**answers[0], pages.field: rows, "next": following}


def first(rows: Sequence[Row]) -> Row:
    return rows[0]


def window(rows: Sequence[Row]) -> Row:
    """The row of one partition, from the node that has the window."""
    return max(rows, key=lambda row: _RANKS.get(row.get("state", ""), 0))


def group(rows: Sequence[Row]) -> Row:
    """All nodes know members and lag; each has windows of its own."""
    known = {name: _known(row.get(name) for row in rows) for name in ("lag", "parked")}
    return {**rows[0], **known, "windows": sum(row["windows"] for row in rows)}


def member(rows: Sequence[Row]) -> Row:
    figures = {name: sum(row.get(name, 0) for row in rows) for name in _FIGURES}
    heard = max(row["last_heartbeat_ms"] for row in rows)
    return {**rows[0], **figures, "last_heartbeat_ms": heard}


def description(answers: Sequence[Mapping[str, Any]]) -> Row:
    """The description of one group. Its sums are taken over the partitions, each as its owner has
    it.
    """
    found: dict[RowKey, list[Row]] = {}
    for answer in answers:
        for row in answer["partitions"]:
            found.setdefault((row["topic"], row["partition"]), []).append(row)
    partitions = [window(found[place]) for place in sorted(found)]
    return {
        **answers[0],
        "windows": sum(answer["windows"] for answer in answers),
        "lag": _sum(row.get("lag") for row in partitions),
        "lag_seconds": _most(row.get("lag_seconds") for row in partitions),
        "parked": _sum(row.get("parked_records") for row in partitions),
        "partitions": partitions,
    }


def hot_keys(answers: Sequence[Mapping[str, Any]], limit: int) -> Row:
    """A ranking; of equally hot keys the first partition's."""
    rows = [row for answer in answers for row in answer["keys"]]
    rows.sort(key=lambda row: (-row["records"], row["topic"], row["partition"]))
    return {**answers[0], "keys": rows[:limit]}


def named_keys(answers: Sequence[Mapping[str, Any]], limit: int) -> Row:
    """Where one key has records, or else, per topic, where its records would go."""
    rows = [row for answer in answers for row in answer["keys"]]
    busy = {row["topic"] for row in rows if row["state"] != "idle"}
    kept: list[Row] = []
    for row in rows:
        if row["state"] != "idle":
            kept.append(row)
        elif row["topic"] not in busy:
            busy.add(row["topic"])
            kept.append(row)

    def place(row: Row) -> RowKey:
        return row["topic"], row["partition"], row.get("first_offset") or 0

    ends = [_KEYS.place_of(answer["next"]) for answer in answers if answer.get("next") is not None]
    horizon = min(ends, default=None)
    kept = sorted((row for row in kept if horizon is None or place(row) <= horizon), key=place)
    end = place(kept[limit - 1]) if len(kept) > limit else horizon
    following = None if end is None else _KEYS.text_of(end)
    return {**answers[0], "keys": kept[:limit], "next": following}


def released(answers: Sequence[Mapping[str, Any]]) -> Row:
    """Several nodes may tell that a partition is nowhere, and one that it had it by then."""
    found = [row for answer in answers for row in answer["partitions"]]
    found.sort(key=lambda row: row.get("failed") is None)
    by_place = {(row["topic"], row["partition"]): row for row in found}
    partitions = [by_place[place] for place in sorted(by_place)]
    return {
        **answers[0],
        "records": sum(answer["records"] for answer in answers),
        "partitions": partitions,
    }


def filter_effects(answers: Sequence[Mapping[str, Any]]) -> Row:
    """Each node knows all members, and the keys of its own windows."""
    counts = [answer["keys"] for answer in answers]
    return {**answers[0], "keys": {name: sum(row[name] for row in counts) for name in counts[0]}}


_KEYS: Final = Pages("keys", ("topic", "partition", "first_offset"), first)


def _known(values: Iterable[int | None]) -> int | None:
    """The first that is known."""
    return next((value for value in values if value is not None), None)


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def repartitions(answers: Sequence[Mapping[str, Any]]) -> Row:
    """Steps are taken by one node, and what it says counts, unless another one has heard of a later
    step, as of an order. Connections are each node's own, and so
    are late records: those of its windows. The log ends of a topic that moves all nodes look at.
    """
    found: dict[str, list[Row]] = {}
    for answer in answers:
        for row in answer["repartitions"]:
            found.setdefault(row["topic"], []).append(row)
    return {**answers[0], "repartitions": [_repartition(found[topic]) for topic in sorted(found)]}


def _repartition(rows: Sequence[Row]) -> Row:
    base = max(rows, key=lambda row: (row["version"], row["leads"]))
    late = [row["late_records"] for row in rows]
    return {
        **base,
        "error": next((row["error"] for row in [base, *rows] if row["error"]), None),
        "producers": [producer for row in rows for producer in row["producers"]],
        "late_records": max(late) if base["into"] else sum(late),
        "late_partitions": sorted({at for row in rows for at in row["late_partitions"]}),
        "closed_connections": sum(row["closed_connections"] for row in rows),
    }
