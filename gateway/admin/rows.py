"""Rows of the REST interface: one model each, for the server, the command line and openapi.json.
Here: groups, their parked and unreadable records, health. window_rows.py has windows, keys and
positions, node_rows.py the node itself.

A field that a state of a window does not have is left out of the answer. A reader ignores fields
that it does not know, so that a command line and a node may differ by a version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, model_validator

from dispatcher.core.model import OperatorVerb, PoisonPolicy, Reason
from gateway.admin.limits import KEY_BYTES_MAX
from gateway.config.groups import FilterRule
from gateway.handlers.limits import GROUP_ID_CHARS_MAX

if TYPE_CHECKING:
    from gateway.operations.lag import Held

ALL: Literal["all"] = "all"
Offset = Annotated[StrictInt, Field(ge=0, lt=2**63)]
Name = Annotated[str, Field(min_length=1, max_length=GROUP_ID_CHARS_MAX)]


class Row(BaseModel):
    model_config = ConfigDict(frozen=True)


class Body(BaseModel):
    """The body of a request. Unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Problem(Row):
    """RFC 9457."""

    type: str = "about:blank"
    title: str
    status: int


class Unanswered(Row):
    """A node whose part of an answer is missing."""

    node: str
    reason: str


class OfNodes(Row):
    """`unanswered`: of several nodes those that did not answer; what they own is not shown."""

    unanswered: list[Unanswered] = Field(default_factory=list)


class GroupSummary(Row):
    group: str
    state: str
    members: int
    topics: list[str]
    windows: int  # in memory
    lag: int | None  # records; null: not known
    lag_seconds: float | None = None  # age of the oldest unsettled record; null: not known
    parked: int | None = None  # records that wait for an operator; null: not known


class GroupList(OfNodes):
    """One page, in the order of the names."""

    groups: list[GroupSummary]
    next: str | None = None  # `after` of the next page; null: this is the last one


class MembershipRow(Row):
    member_id: str
    client_id: str
    host: str
    epoch: int
    topics: list[str]


class KeyNames(Row):
    """A key: its hash for everybody, itself for those who may see keys."""

    key_hash: str | None  # of 8 hex digits; null: no key, or not known
    key: str | None = None  # text, if it is UTF-8
    key_base64: str | None = None


class ParkedOffset(KeyNames):
    offset: int
    deliveries: int
    reason: str
    member_id: str  # of the last delivery
    since_ms: int  # Unix time: when it was parked
    behind: int  # records of its key that were read and wait for it


class MemberFigures(Row):
    """The figures of one member in one partition."""

    member_id: str
    ready_keys: int
    in_flight: int
    draining_keys: int
    draining_in_flight: int
    draining_blocked: int
    draining_attempts: int
    draining_cleared: int
    last_sent_position_when_joining: int | None
    dropped: int
    # It asks for nothing, and owns no key that another member accepts.
    silent: bool = False


class DrainingKeyRow(Row):
    key_hash: str | None
    member_id: str
    in_flight: int
    blocked: int
    attempts: int


class LateConsumer(Row):
    """A member that joined when records were out that are not settled yet (PIP-282's names)."""

    name: str
    id: str
    address: str
    last_sent_position_when_joining: int


SpanLimit = Literal["span_max", "held_max", "window_records"]


class FullSpanRow(Row):
    limit: SpanLimit
    offset: int
    key_hash: str | None
    records: int
    member_id: str | None


class HeldRow(Row):
    """An open transaction: no member that reads committed records gets beyond `offset`."""

    offset: int
    seconds: float  # for at least so long

    @classmethod
    def fields(cls, held: Held | None) -> dict[str, HeldRow]:
        """The field of a row; none if nothing holds it up."""
        if held is None:
            return {}
        return {"open_transaction": cls(offset=held.offset, seconds=round(held.seconds, 3))}


class PartitionRow(Row):
    """`idle`: not in memory; `loading`: no figures yet; `up`: all figures."""

    topic: str
    partition: int
    state: Literal["idle", "loading", "up"]
    trouble: str | None = None
    cursor: int | None = None
    read_position: int | None = None
    log_end: int | None = None
    lag: int | None = None
    lag_seconds: float | None = None  # age of the oldest unsettled record
    unsettled: int | None = None
    keys: int | None = None
    in_flight: int | None = None
    backing_off: int | None = None
    dead_lettering: int | None = None
    dropped: int | None = None
    parked: list[ParkedOffset] = []  # of a window that is up
    parked_records: int | None = None  # of any window, as it was known last; null: not known
    members: list[MemberFigures] = []
    draining: list[DrainingKeyRow] = []
    draining_cleared: int | None = None
    last_sent_position: int | None = None
    individually_sent_positions: list[tuple[int, int]] = []
    span_max: int | None = None
    aside: int | None = None  # unsettled records that the others have passed
    held_max: int | None = None
    full_span: FullSpanRow | None = None
    consumers_after_mark_delete_position: list[LateConsumer] = []
    dead_letter_trouble: str | None = None
    read_trouble: str | None = None
    open_transaction: HeldRow | None = None  # once it has held up the group for a minute


class PoisonPolicies(Row):
    """The ends of records that are not delivered again by themselves."""

    rejected: PoisonPolicy  # a member rejected them
    exhausted: PoisonPolicy  # their deliveries are used up


class GroupDescription(GroupSummary, OfNodes):
    epoch: int
    policies: PoisonPolicies | None = None  # null: the group is unreliable and has no redelivery
    memberships: list[MembershipRow]
    partitions: list[PartitionRow]


class HeaderRow(Row):
    """A header of a record. The value is text if it is UTF-8, or else base64: its beginning, if
    `value_bytes` says that there are more. Null for all three: its value is null.
    """

    name: str  # its beginning
    value: str | None = None
    value_base64: str | None = None
    value_bytes: int | None


class ParkedRecordRow(ParkedOffset):
    """`headers`: the first of them, with the record's own time, for those who may see keys; null:
    nobody asked for them, or the record is gone from the log.
    """

    topic: str
    partition: int
    headers: list[HeaderRow] | None = None
    headers_count: int | None = None  # all of the record
    timestamp_ms: int | None = None  # Unix time


class ParkedList(OfNodes):
    """One page, by topic, partition and offset. `next`: `after` of the next page, like
    `orders-3-17`.
    """

    group: str
    parked: list[ParkedRecordRow]
    next: str | None = None


ValueFormat = Literal["null", "json", "avro", "protobuf", "text", "bytes", "masked"]


class ValueRow(Row):
    """The value of a parked record. `value`: JSON, or a text; `value_base64`: bytes that are none.
    `masked`: paths of the fields that a rule hides, `*` for all; `cut`: only the beginning is
    shown; `problem`: why a schema has not taken it apart.
    """

    format: ValueFormat
    value: Any = None
    value_base64: str | None = None
    value_bytes: int
    timestamp_ms: int | None  # the record's own, Unix time
    schema_id: int | None = None
    masked: list[str] = []
    cut: bool = False
    problem: str | None = None


class ReleaseBody(Body):
    """A decision about parked records of a group: all of them, or those that the other fields name.
    `offsets` as a list needs `topic` and `partition`; `key` is a glob (`*`, `?`), for those who may
    see keys.
    """

    group: Name
    topic: Name | None = None
    partition: Offset | None = None
    offsets: Annotated[list[Offset], Field(min_length=1)] | Literal["all"]
    reason: Reason | None = None
    key: Annotated[str, Field(min_length=1, max_length=KEY_BYTES_MAX)] | None = None
    action: OperatorVerb

    @model_validator(mode="after")
    def _offsets_are_of_a_partition(self) -> ReleaseBody:
        if self.partition is not None and self.topic is None:
            raise ValueError("partition needs a topic")
        if self.offsets != ALL:
            if self.partition is None:
                raise ValueError("offsets need a topic and a partition")
            if self.reason is not None or self.key is not None:
                raise ValueError('reason and key choose among all: offsets must be "all"')
        return self


class ReleasedPartition(Row):
    """`failed`: why nothing was decided about this partition; the others are done."""

    topic: str
    partition: int
    offsets: list[int]
    failed: str | None = None


class Released(OfNodes):
    """`records`: how many were decided about."""

    group: str
    action: OperatorVerb
    records: int
    partitions: list[ReleasedPartition]


class UnreadableRow(Row):
    topic: str
    partition: int
    offset: int  # where the group cannot read on
    last_offset: int | None  # of a batch that can be skipped; null: it can only be mended
    reason: str


class UnreadableList(OfNodes):
    """One page, by topic and partition. `next`: `after` of the next page, like `orders-3`."""

    group: str
    unreadable: list[UnreadableRow]
    next: str | None = None


class SkipBody(Body):
    group: Name
    topic: Name
    partition: Offset
    offset: Offset


class Skipped(Row):
    group: str
    skipped: UnreadableRow


class SettingRow(Row):
    """A setting of a group as it counts, and where it comes from. `kafka_name`: the group config in
    Kafka that sets it; null: only keyway.yaml does.
    """

    name: str
    value: Any
    origin: Literal["kafka", "keyway.yaml", "default"]
    kafka_name: str | None


class SettingsRow(Row):
    group: str
    settings: list[SettingRow]


class SettingsBody(Body):
    """New values by the names of keyway.yaml, as text. null takes a setting back to keyway.yaml.
    All or none are taken.
    """

    values: Annotated[dict[str, str | None], Field(min_length=1)]


class DeletedGroup(Row):
    group: str
    deleted: Literal[True]


class KeyFilterRules(Row):
    group: str
    source: Literal["config", "rest"]
    rules: list[FilterRule]


class FilterChange(Body):
    rules: list[dict[str, Any]] | None  # FilterRule; null: those of keyway.yaml


class MemberGlobs(Row):
    """Globs of a member before and after a change of rules; none: every key."""

    member_id: str
    client_id: str
    before: list[str]
    after: list[str]


class MovedKeys(Row):
    """Keys with unsettled records in memory: `dropped` have no owner after the change, so that
    their records count as settled; they are among those that `moved`, or had none before.
    """

    known: int
    moved: int
    dropped: int


class FilterPreview(OfNodes):
    """The effect of other rules, on the keys with unsettled records in memory, of all nodes."""

    group: str
    members: list[MemberGlobs]
    keys: MovedKeys


class HealthRow(Row):
    """The health of the node, and figures beside these fields."""

    model_config = ConfigDict(frozen=True, extra="allow")

    status: Literal["up", "degraded", "not ready"]
    reasons: list[str]
    warnings: list[str] = []  # for an operator to know; the node is up


class Alive(Row):
    status: Literal["alive"] = "alive"
