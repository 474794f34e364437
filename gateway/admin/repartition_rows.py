"""Rows of REST about topics that get other partitions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictInt

from gateway.admin.rows import Body, OfNodes, Row
from gateway.core.repartition.limits import TOPIC_PARTITIONS_MAX
from gateway.core.repartition.partitioners import Partitioner

Name = Annotated[str, Field(min_length=1, max_length=249)]


class RepartitionBody(Body):
    """Without `execute` it is planned, and nothing is changed. `into`: a new topic that is to take
    its place, with so many partitions; without it the topic itself gets them. `unordered`: groups
    whose order of keys across the change is given up. `partitioner`: what its producers use, for a
    topic with too few keys to tell.
    """

    topic: Name
    partitions: Annotated[StrictInt, Field(ge=1, le=TOPIC_PARTITIONS_MAX)]
    into: Name | None = None
    unordered: Annotated[tuple[str, ...], Field(max_length=1_000)] = ()
    partitioner: Partitioner | None = None
    execute: StrictBool = False


class AbortBody(Body):
    """`force`: also if Kafka gives members of KIP-848 groups partitions that stay hidden."""

    topic: Name
    force: StrictBool = False


class RepartitionPlan(Row):
    """`after`: of `into`, if there is one. `partitioner` null: the topic's records do not tell.
    With `refusals` it cannot be started.
    """

    topic: str
    before: int
    after: int
    into: str | None
    partitioner: Partitioner | None
    ordered_groups: list[str]
    unordered_groups: list[str]
    warnings: list[str]
    refusals: list[str]
    executed: bool


class ProducerRow(Row):
    """A connection that may still produce by the Metadata of before."""

    connection: int
    client: str
    client_id: str | None


class BoundaryRow(Row):
    """An old partition. Below `boundary` is the past of the keys that move."""

    partition: int
    boundary: int | None
    log_end: int | None


class LeftRow(Row):
    """What a group has to settle there. `records`: at most, below the boundary. `keys`: that move
    and have unsettled records; null: not known, the group has no window there now.
    """

    group: str
    partition: int
    records: int
    keys: int | None


class RepartitionRow(Row):
    """`into`: the new topic, which has the partitions of `after`; null: the topic itself has. Times
    are Unix time; 0: not yet. `phase`: as docs/repartition.md explains it. `groups`: the
    Key-Shared groups whose order is kept, `consumers` the plain ones; `given_up`: those of them
    that had not committed the earlier records in time. `version` grows with each step. `leads`: it
    is of the node that takes the steps; without its answer `waits_for` says no more than that.
    """

    topic: str
    version: int
    leads: bool
    before: int
    after: int
    into: str | None
    phase: Literal["marked", "created", "shown", "open", "draining", "finished", "aborted"]
    began_ms: int
    shown_ms: int
    opened_ms: int
    raised_ms: int
    finished_ms: int
    waits_for: list[str]
    error: str | None
    groups: list[str]
    consumers: list[str]
    given_up: list[str]
    unordered: list[str]
    producers: list[ProducerRow]
    partitions: list[BoundaryRow]
    left: list[LeftRow]
    late_records: int
    late_partitions: list[int]
    closed_connections: int


class RepartitionList(OfNodes):
    repartitions: list[RepartitionRow]
