"""Rows of the overview that the dashboard shows: the node, its traffic, a line for each group."""

from __future__ import annotations

from pydantic import Field

from gateway.admin.rows import HealthRow, OfNodes, Row


class TrafficRow(Row):
    """Client connections; counters run since the start of the node."""

    connections: int = 0
    connections_opened: int = 0
    connections_failed: int = 0
    refused: int = 0  # at a bound of the node
    bytes_from_clients: int = 0
    bytes_to_clients: int = 0
    requests: dict[str, int] = Field(default_factory=dict)  # by Kafka API
    # By API and time (`bounds_ms`): of the work, and of waits for records or other members.
    answered: dict[str, list[int]] = Field(default_factory=dict)
    waited: dict[str, list[int]] = Field(default_factory=dict)
    bounds_ms: list[float] = Field(default_factory=list)  # the last count is of all beyond
    throttled_ms: int = 0  # waits that upstream's quotas imposed


class FlowRow(Row):
    """Records per second over the last minute; null: not known."""

    produced: float | None = None
    delivered: float | None = None
    settled: float | None = None


class GroupLine(Row):
    """One group. Records of windows that are not in memory are counted in `lag` and `parked`
    only.
    """

    group: str
    state: str
    members: int
    topics: list[str]
    windows: int
    waiting: int  # windows that are being loaded, or wait for Redis or Kafka
    lag: int | None  # records; null: not known
    lag_seconds: float | None  # age of the oldest unsettled record; null: not known
    in_flight: int
    backing_off: int
    dead_lettering: int
    parked: int | None  # as it was known last; null: not known
    draining_keys: int
    stuck: (
        int  # windows that cannot read on, are held up by one record, or cannot write dead letters
    )
    held: int = 0  # partitions that wait for an open transaction
    outcomes: dict[str, int]  # records by outcome since the start of the node
    flow: FlowRow = FlowRow()
    growing: bool = False  # the lag of the last minute is above that of the minute before
    stopped: bool = False  # no member, and the lag has grown since the last record was settled
    catches_up_s: float | None = None  # with the rates of now; null: it does not fall, or is small
    lately: list[int | None] = Field(default_factory=list)  # the lag of 15 minutes, 30 s apart


class OverviewHead(OfNodes):
    """The overview without its groups, which are written one by one."""

    at_ms: int  # the node's clock
    health: HealthRow
    traffic: TrafficRow | None  # null: the token is for some groups, and this is of all clients
    groups_hidden: int  # beyond the first of them, by name
    nodes: list[str] = Field(default_factory=list)  # whose figures these are; empty: of this alone


class Overview(OverviewHead):
    """A snapshot of the node, or of several nodes as one, at most OVERVIEW_S old."""

    groups: list[GroupLine]
