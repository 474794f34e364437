"""The section `groups` of keyway.yaml: policies of Key-Shared groups."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from dispatcher.core.model import EvictPolicy, JoinPolicy, PoisonPolicy, Policy
from gateway.config.section import Section
from gateway.core.limits import (
    FILTER_GLOB_BYTES_MAX,
    FILTER_GLOBS_MAX,
    FILTER_RULES_MAX,
    FILTER_SET_BYTES_MAX,
)
from gateway.core.share.dead_letter_queue import DeadLetterQueue
from gateway.core.share.declared_filters import InvalidKeyFilters, check_cost, checked
from keyway.commit_metadata.core.limits import SPAN_OFFSETS_MAX


class FilterRule(Section):
    """Members whose client id matches `client_id` (glob) take only keys that match one of `keys`
    (globs). In keyway.yaml or set over REST: the bounds are the same.
    """

    client_id: str = Field(min_length=1)
    """A glob (`*`, `?`, `[seq]`) for the client ids of members."""
    keys: tuple[str, ...] = Field(
        min_length=1,
        description=f"Globs (`*`, `?`) over the bytes of a key: at most {FILTER_GLOBS_MAX}, each of"
        f" at most {FILTER_GLOB_BYTES_MAX} bytes.",
    )

    @field_validator("keys")
    @classmethod
    def _within_bounds(cls, keys: tuple[str, ...]) -> tuple[str, ...]:
        try:
            checked(tuple(key.encode() for key in keys))
        except InvalidKeyFilters as invalid:
            raise ValueError(str(invalid)) from invalid
        return keys

    @property
    def text_bytes(self) -> int:
        """The length of all its text in UTF-8."""
        return len(self.client_id.encode()) + sum(len(key.encode()) for key in self.keys)


STORED = "stored"  # as context: rules that were set before their cost had a bound still count


def _bounded(rules: tuple[FilterRule, ...], info: ValidationInfo) -> tuple[FilterRule, ...]:
    size = sum(rule.text_bytes for rule in rules)
    if size > FILTER_SET_BYTES_MAX:
        raise ValueError(f"{size} bytes of client ids and keys: at most {FILTER_SET_BYTES_MAX}")
    if info.context == STORED:
        return rules
    try:
        check_cost(tuple([key.encode() for key in rule.keys]) for rule in rules)
    except InvalidKeyFilters as invalid:
        raise ValueError(str(invalid)) from invalid
    return rules


RuleSet = Annotated[
    tuple[FilterRule, ...], Field(max_length=FILTER_RULES_MAX), AfterValidator(_bounded)
]


class FilterRules(Section):
    """The rules of one group; the first whose `client_id` matches a member decides."""

    rules: RuleSet
    """The rules in their order."""


QUEUE_DECIDES = ("rejected", "exhausted", "dead_letter_topic")


class GroupSection(Section):
    """Key-Shared policy of the groups whose name matches; the first entry that matches wins. An
    admin's settings for the group in Kafka (`share.auto.offset.reset`, ...) win over this file.
    """

    match: str = "*"
    """A glob (`*`, `?`, `[seq]`) for names of groups."""
    reliable: bool = True
    """False: at most once. A record is settled when it is sent, and nothing is in Redis."""
    auto_offset_reset: Annotated[
        str,
        Field(
            pattern=r"^(earliest|latest|by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+S)?)?)$",
            json_schema_extra={"limits": "`earliest`, `latest`, or like `by_duration:P1DT12H`"},
        ),
    ] = "latest"
    """Start of a new group: the first record, the next one, or the first one that is younger than a
    duration.
    """
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    """`read_uncommitted` adds the records of aborted transactions."""
    span_max: Annotated[
        int, Field(ge=1, le=SPAN_OFFSETS_MAX, json_schema_extra={"unit": "offsets"})
    ] = Policy().span_max
    """Offsets from the oldest record that is not aside to the last one read, of one partition."""
    held_max: Annotated[int, Field(ge=0, le=4_194_304, json_schema_extra={"unit": "records"})] = (
        Policy().held_max
    )
    """Records of one partition that wait aside while other keys go on: parked and others."""
    window_records: Annotated[int, Field(ge=1, le=1_048_576)] | None = None
    """Limit of unsettled records of the span, of one partition. Without it: the span alone."""
    in_flight_per_member_max: Annotated[
        int, Field(ge=1, le=100_000, json_schema_extra={"unit": "records"})
    ] = 1_000
    """Records of one partition that a member may hold."""
    prefetch_per_key: Annotated[
        int, Field(ge=1, le=1_000, json_schema_extra={"unit": "records"})
    ] = 1
    """Records of one key in flight. Above 1, a failed record brings back the records behind it."""
    lock_duration_ms: Annotated[int, Field(ge=100, le=3_600_000)] = 30_000
    """A record that is not acknowledged by then is delivered again."""
    renew_acknowledge: bool = True
    """False: members may not extend their locks (RENEW of KIP-1222)."""
    deliveries_max: Annotated[
        int, Field(ge=1, le=1_000, json_schema_extra={"unit": "deliveries"})
    ] = 5
    """Deliveries of a record before it is exhausted."""
    backoff_base_ms: Annotated[int, Field(ge=0, le=3_600_000)] = 1_000
    """Pause before the first redelivery. It doubles with each one; other keys go on."""
    backoff_max_ms: Annotated[int, Field(ge=0, le=3_600_000)] = 60_000
    """Limit of that pause."""
    rejected: PoisonPolicy = Policy().rejected
    """For a record that a member rejects: dropped, parked, or written to the dead letters."""
    exhausted: PoisonPolicy = Policy().exhausted
    """The same for a record without success and without a REJECT in `deliveries_max`."""
    dead_letter_topic: str | None = None
    """The topic of dead letters. It must exist; `dead_letter` needs it."""
    on_evict: EvictPolicy = EvictPolicy.REDELIVER
    """`ack`: the records of an evicted member count as done (at most once)."""
    join_policy: JoinPolicy = JoinPolicy.PER_KEY
    """When a new member takes over: each key as soon as none of its records is in flight, or
    nothing before all records sent at its join are settled (PIP-282).
    """
    bounded_load: (
        Annotated[float, Field(ge=1, le=100, json_schema_extra={"unit": "times the mean"})] | None
    ) = None
    """Limit of a member's keys with unsettled records. Without it the ring alone decides."""
    disconnect_grace_ms: Annotated[int, Field(ge=0, le=600_000)] = 3_000
    """A member without a connection for this long is evicted. Records that it had in work when its
    node restarted, their partition moved or its connection broke go out again so long after it is
    back.
    """
    assignment_interval_ms: Annotated[int, Field(ge=0, le=15_000)] = 1_000
    """A member that joins others so soon after another join has no partitions before its next
    heartbeat, as from Kafka. 0: every join has them.
    """
    heartbeat_interval_ms: Annotated[int, Field(ge=100, le=60_000)] = 5_000
    """The interval of heartbeats that members are told."""
    session_timeout_ms: Annotated[int, Field(ge=500, le=600_000)] = 45_000
    """A member without a heartbeat for this long is evicted."""
    unmatched_wait_ms: Annotated[int, Field(ge=0, le=86_400_000)] = 120_000
    """Records of a key that no member accepts wait this long for one that accepted it and left, and
    up to 20 s for anybody when the group begins with the topic. Then they are skipped. 0: at once.
    """
    skips_expected: bool = False
    """The key filters leave out keys on purpose: skipped records count as `filtered`, and there is
    neither a warning nor an alert.
    """
    filters: RuleSet = Field(
        default=(),
        description="Rules for the keys of members; the first that matches decides. In all at most"
        f" {FILTER_SET_BYTES_MAX:,} bytes of client ids and keys.",
    )
    _queue: DeadLetterQueue | None = PrivateAttr(default=None)

    @property
    def dead_letter_queue(self) -> DeadLetterQueue | None:
        """Kafka's own of the group; None: what happens to poison is as this file says."""
        return self._queue

    def with_queue(self, queue: DeadLetterQueue) -> GroupSection:
        """While Kafka's configs name a queue, all poison of the group goes there, as in Kafka."""
        there = PoisonPolicy.DEAD_LETTER
        decided = dict(zip(QUEUE_DECIDES, (there, there, queue.topic), strict=True))
        section = self.model_copy(update=decided)
        section._queue = queue
        return section

    @model_validator(mode="before")
    @classmethod
    def _poison_has_two_policies(cls, section: object) -> object:
        if isinstance(section, dict) and "poison" in section:
            policies = [policy.value for policy in PoisonPolicy]
            value = section["poison"] if section["poison"] in policies else "block"
            raise ValueError(
                f"poison is not an option any more: write `rejected: {value}` (a member rejects"
                f" the record) and `exhausted: {value}` (its deliveries are used up) instead"
            )
        return section

    @model_validator(mode="after")
    def _consistent(self) -> GroupSection:
        if not (self.dead_letter_topic or "").strip():
            for name in ("rejected", "exhausted"):
                if getattr(self, name) is PoisonPolicy.DEAD_LETTER:
                    raise ValueError(f"{name}: dead_letter needs a dead_letter_topic")
        if self.session_timeout_ms <= self.heartbeat_interval_ms:
            raise ValueError("session_timeout_ms must exceed heartbeat_interval_ms")
        return self

    def policy(self) -> Policy:
        """The dispatcher's share of the section: fields of the same names."""
        return Policy(**{field.name: getattr(self, field.name) for field in fields(Policy)})
