"""Rows of the overview that the dashboard shows: the node, its traffic, a line for each group."""

from __future__ import annotations

from pydantic import Field

from gateway.admin.rows import HealthRow, Row


class TrafficRow(Row):
    """Client connections; counters run since the start of the node."""

    connections: int = 0
    connections_opened: int = 0
    connections_failed: int = 0
    refused: int = 0  # at a bound of the node
    bytes_from_clients: int = 0
    bytes_to_clients: int = 0
    requests: dict[str, int] = Field(default_factory=dict)  # by Kafka API
    answered: dict[str, list[int]] = Field(default_factory=dict)  # by API and time (`bounds_ms`)
    bounds_ms: list[float] = Field(default_factory=list)  # the last count is of all beyond
    throttled_ms: int = 0  # waits that upstream's quotas imposed


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
    stuck: int  # windows that cannot read on, or cannot write dead letters
    outcomes: dict[str, int]  # records by outcome since the start of the node


class OverviewHead(Row):
    """All but the groups, which are written one by one."""

    at_ms: int  # the node's clock
    health: HealthRow
    traffic: TrafficRow
    groups_hidden: int  # beyond the first of them, by name


class Overview(OverviewHead):
    """A snapshot of the node, at most OVERVIEW_S old."""

    groups: list[GroupLine]
