"""Rows of REST about windows: their pictures, their keys, the positions of a group."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictInt, model_validator

from gateway.admin.rows import Body, HeldRow, KeyNames, Name, Offset, OfNodes, Row

# As in ARCHITECTURE, States; `settled` also for an offset without a record.
StateName = Literal["settled", "ready", "in_flight", "backing_off", "dead_lettering", "parked"]
KeyStateName = Literal["idle", "ready", "in_flight", "backing_off", "dead_lettering", "parked"]


class RunRow(Row):
    """Neighbouring offsets of one state. `last` is inclusive."""

    state: StateName
    first: int
    last: int


class WindowRow(Row):
    """The window of one partition. `idle`: not in memory; `loading`: no figures yet; `up`: all.

    `runs` cover the offsets from `cursor` up to, not including, `read_position`, ascending and
    without gaps. If a window has too many runs to show, a step stands for `resolution` offsets. It
    has the state of the offset that needs an operator most (parked, then dead_lettering,
    backing_off, in_flight, ready, settled). The counts are exact in any case.
    """

    topic: str
    partition: int
    state: Literal["idle", "loading", "up"]
    leader: int | None = None  # the virtual broker; null: none now
    cursor: int | None = None
    read_position: int | None = None
    log_end: int | None = None
    lag: int | None = None  # records
    lag_seconds: float | None = None  # age of the oldest unsettled record
    span_max: int | None = None
    resolution: int | None = None  # offsets
    runs: tuple[RunRow, ...] = ()
    settled: int | None = None  # offsets of the span by state
    ready: int | None = None
    in_flight: int | None = None
    backing_off: int | None = None
    dead_lettering: int | None = None
    parked: int | None = None  # also of a window that is not up, as it was known last
    trouble: str | None = None
    read_trouble: str | None = None
    open_transaction: HeldRow | None = None  # once it has held up the group for a minute


class WindowList(OfNodes):
    """One page, by topic and partition. `next`: `after` of the next page, like `orders-3`."""

    group: str
    windows: list[WindowRow]
    next: str | None = None


class KeyRow(KeyNames):
    """One key in one partition. `idle`: it has no unsettled records there, and would go to `owner`.

    `state` is that of its first unsettled record; `attempts` counts its deliveries that have ended.
    """

    topic: str
    partition: int
    state: KeyStateName
    owner: str | None  # the member its next record goes to; null: no member takes it
    holder: str | None = None  # the member that holds records of this key
    records: int  # unsettled ones that are read
    in_flight: int = 0
    first_offset: int | None = None
    attempts: int = 0
    reason: str | None = None  # why the first record came back the last time
    due_ms: int | None = None  # Unix time of its next delivery, while it backs off


class KeyList(OfNodes):
    """One page of the key that was asked for, by topic and partition; or the hot keys, those with
    the most unsettled records, without `next`. `next`: `after` of the next page.
    """

    group: str
    keys: list[KeyRow]
    next: str | None = None


class HistoryRow(Row):
    """The last 15 minutes of a group (`topic` null) or one of its topics, a point every ten seconds
    or so, as columns of the same length. Rates are records per second since the point before; null:
    not known.
    """

    topic: str | None
    at_ms: list[int]  # the node's clock
    lag: list[int | None]
    produced: list[float | None]
    delivered: list[float | None]
    settled: list[float | None]


class HistoryList(OfNodes):
    group: str
    whole: HistoryRow
    topics: list[HistoryRow]
    topics_hidden: int  # beyond the first of them, by name


class PositionRow(Row):
    topic: str
    partition: int
    cursor: int  # the next offset that is not settled
    settled: int  # offsets behind it that are
    log_end: int | None
    lag: int | None  # records
    lag_seconds: float | None  # age of the oldest unsettled record
    state: Literal["idle", "loading", "up"]


class PositionList(OfNodes):
    """One page, by topic and partition. `next`: `after` of the next page, like `orders-3`."""

    group: str
    positions: list[PositionRow]
    next: str | None = None


class SeekBody(Body):
    """`to` names the place; `offset`, `timestamp_ms` (Unix time) and `shift` (records, backwards if
    negative) belong to the one of their name. Without `topic`: all topics the group has positions
    in; without `partitions`: all of them. `shown`: of the answer without `execute`; the positions
    must still be those. A `shift` is not executed without it.
    """

    to: Literal["earliest", "latest", "offset", "timestamp", "shift"]
    topic: Name | None = None
    partitions: Annotated[list[Offset], Field(min_length=1, max_length=10_000)] | None = None
    offset: Offset | None = None
    timestamp_ms: Offset | None = None
    shift: Annotated[StrictInt, Field(gt=-(2**63), lt=2**63)] | None = None
    execute: StrictBool = False
    shown: Annotated[str, Field(max_length=64)] | None = None

    @model_validator(mode="after")
    def _one_place(self) -> SeekBody:
        given = {"offset": self.offset, "timestamp": self.timestamp_ms, "shift": self.shift}
        fields = {"timestamp": "timestamp_ms"}
        for place, value in given.items():
            name = fields.get(place, place)
            if (value is None) == (self.to == place):
                raise ValueError(
                    f"to: {place} needs {name}" if value is None else f"{name} needs to: {place}"
                )
        if self.partitions is not None and self.topic is None:
            raise ValueError("partitions needs topic")
        if self.execute and self.to == "shift" and self.shown is None:
            raise ValueError("execute of a shift needs shown: of the answer without execute")
        return self


class SeekRow(Row):
    """`new` and `delta` are null where `error` says why the position stays."""

    topic: str
    partition: int
    old: int | None  # null: the group has none there
    new: int | None
    delta: int | None
    error: str | None = None


class SeekResult(Row):
    """`executed` false: nothing was changed; `refused` then says why it could not be now. `shown`
    stands for the old positions: a SeekBody that has it is refused when they are other ones.
    """

    group: str
    executed: bool
    refused: str | None = None
    shown: str
    positions: list[SeekRow]
