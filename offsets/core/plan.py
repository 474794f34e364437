"""The commits for a group on a target, with the reason for each refusal.

One row per partition, from the entry of the source and the facts of the target. The refusals stand
in the order in which an operator would mend them: missing parts, safety, members at work. `--force`
overrides a refusal for safety, `--rewind` lets a position go back; nothing overrides the rest.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from offsets.core.entries import Applied, Entry
from offsets.core.translate import Located, Unsafe


class Refusal(StrEnum):
    """Why nothing is committed. The list is complete."""

    TOPIC_MISSING = "topic-missing"
    NAME_NOT_TRANSLATED = "name-not-translated"
    PARTITIONS_DIFFER = "partitions-differ"
    LOG_APPEND_TIME = "log-append-time"
    NOT_INDEXED = "not-indexed-yet"
    UNSAFE_LAG = "unsafe-link-lag-above-margin"
    UNSAFE_ORIGINS = "unsafe-several-origins"
    BEFORE_LOG_START = "committed-before-log-start"
    UNFINISHED_SWITCH = "unfinished-switch"
    GROUP_ACTIVE = "group-active"
    RECENTLY_ACTIVE = "recently-active"
    AT_WORK_ON_BOTH = "at-work-on-both"
    OVERTAKEN = "overtaken"
    TARGET_AHEAD = "target-ahead"
    METADATA_TOO_LARGE = "metadata-too-large"
    NOT_AUTHORISED = "not-authorised"
    CLUSTER_AWAY = "cluster-away"
    KAFKA_ERROR = "kafka-error"


UNSAFE: Final = {
    Unsafe.LAG: Refusal.UNSAFE_LAG,
    Unsafe.ORIGINS: Refusal.UNSAFE_ORIGINS,
    Unsafe.BEFORE_START: Refusal.BEFORE_LOG_START,
}
FORCED: Final = frozenset(UNSAFE.values()) | {
    Refusal.OVERTAKEN,
    Refusal.AT_WORK_ON_BOTH,
    Refusal.UNFINISHED_SWITCH,
}
REWOUND: Final = frozenset({Refusal.TARGET_AHEAD})


class Mode(StrEnum):
    AUTO = "auto"
    EXACT = "exact"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class Committed:
    """The group's position on the target now. `committed_ms` None: the time is not known."""

    offset: int
    metadata: str = ""
    committed_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TargetPartition:
    """The facts of one partition on the target. `log_end`: up to where a committed reader reads.

    `located`: the search by origin; `first`: the answer for the timestamp, its offset None for
    Kafka's -1. One of them is there, as the mode has it, unless there is nothing to search in.
    `origins`: clusters that records there come from. `switching`: the source gets records out of
    their order, as a link was switched. `rested`: the group has had no members, and has committed
    nothing itself, for long enough. `both`: it works here and elsewhere at the same time. `indexed`
    False: its log has not been read to the end yet, so neither that nor the mode is known.
    """

    partitions: int | None  # None: no such topic
    log_start: int = 0
    log_end: int = 0
    create_time: bool = True
    active: bool = False
    rested: bool = True
    both: bool = False
    switching: bool = False
    committed: Committed | None = None
    applied: Applied | None = None
    located: Located | None = None
    first: int | None = None
    origins: int = 1
    indexed: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """`new` None: not known. `replay`: records that come again, at most; `replay_ms`: how far back
    in time, None if that is not known. `error`: Kafka's own words for KAFKA_ERROR. `stood`: the
    commit that `new` replaces.
    """

    group: str
    topic: str
    partition: int
    source: str
    source_offset: int
    source_ms: int
    mode: Mode
    old: int | None
    new: int | None
    metadata: str
    replay: int
    replay_ms: int | None
    refusals: tuple[Refusal, ...] = ()
    error: str = ""
    stood: Committed | None = field(default=None, compare=False)

    @property
    def delta(self) -> int | None:
        return None if self.new is None else self.new - (self.old or 0)

    @property
    def changes(self) -> bool:
        """Whether there is something to commit."""
        return not self.refusals and self.new is not None

    def shown(self) -> dict[str, Any]:
        """As JSON."""
        names = ("group", "topic", "partition", "source", "source_offset", "source_ms", "mode")
        more = ("old", "new", "delta", "replay", "replay_ms", "error")
        return {name: getattr(self, name) for name in names + more} | {
            "refusals": list(self.refusals)
        }


def mode_of(entry: Entry, wanted: Mode) -> Mode:
    """AUTO takes exact where records have origins."""
    if wanted is Mode.AUTO:
        return Mode.EXACT if entry.exact and entry.progress is not None else Mode.TIMESTAMP
    return wanted


def is_due(entry: Entry, target: TargetPartition) -> bool:
    """Whether the entry is news for the target: only the committer has moved the group there since,
    or was about to, or another move there was earlier than the commit on the source.
    """
    now, ours = target.committed, target.applied
    if now is None:
        return True
    if ours is not None and not own_work(now, ours):
        return entry.committed_ms >= ours.committed_ms
    if ours is not None and entry.committed_ms <= ours.committed_ms:
        return False
    return now.committed_ms is None or entry.committed_ms > now.committed_ms


def own_work(now: Committed | None, ours: Applied | None) -> bool:
    """Whether the group itself has committed its present position there."""
    if now is None:
        return False
    return ours is None or not (
        ours.made(now.offset, now.metadata) or ours.outstanding(now.offset, now.committed_ms)
    )


def decide(
    entry: Entry,
    target: TargetPartition,
    mode: Mode,
    *,
    metadata: str,
    told: int = 0,
    force: bool = False,
    rewind: bool = False,
    earliest: bool = False,
) -> Row:
    """`metadata`: committed beside the offset; `told`: how many records it tells a
    Key-Shared group of as settled, which then do not come again. `earliest`: a group behind the
    source's log start goes on at the target's log start, instead of being refused.
    """
    refusals = list(_refusals(entry, target, mode))
    if earliest and Refusal.BEFORE_LOG_START in refusals:
        refusals.remove(Refusal.BEFORE_LOG_START)
        target = replace(target, first=target.log_start)
    new, replay, replay_ms = None, 0, None
    if target.partitions is not None and Refusal.NOT_INDEXED not in refusals:
        new, replay, replay_ms = _position(entry, target, mode)
        replay = max(0, replay - told)
        replay_ms = replay_ms if replay else 0
    if target.active:
        refusals.append(Refusal.GROUP_ACTIVE)
    elif not target.rested and own_work(target.committed, target.applied):
        refusals.append(Refusal.RECENTLY_ACTIVE)  # it may only be restarted
    if target.both:
        refusals.append(Refusal.AT_WORK_ON_BOTH)
    if not is_due(entry, target):
        refusals.append(Refusal.OVERTAKEN)
    old = target.committed.offset if target.committed is not None else None
    if new is not None and old is not None and new < old:
        refusals.append(Refusal.TARGET_AHEAD)
    passed: Collection[Refusal] = (FORCED if force else frozenset()) | (
        REWOUND if rewind else frozenset()
    )
    return Row(
        group=entry.group,
        topic=entry.topic,
        partition=entry.partition,
        source=entry.source,
        source_offset=entry.offset,
        source_ms=entry.committed_ms,
        mode=mode,
        old=old,
        new=new,
        metadata=metadata,
        replay=replay,
        replay_ms=replay_ms,
        refusals=tuple(refusal for refusal in dict.fromkeys(refusals) if refusal not in passed),
        stood=target.committed,
    )


def _refusals(entry: Entry, target: TargetPartition, mode: Mode) -> list[Refusal]:
    if target.partitions is None:
        return [Refusal.TOPIC_MISSING]
    found: list[Refusal] = []
    if entry.partitions != target.partitions:
        found.append(Refusal.PARTITIONS_DIFFER)
    if not (entry.create_time and target.create_time):
        # The seal of a copied record is about its timestamp, too: no origin is believed there.
        found.append(Refusal.LOG_APPEND_TIME)
    if not target.indexed or (mode is Mode.EXACT and target.located is None):
        return [*found, Refusal.NOT_INDEXED]
    if mode is Mode.EXACT:
        return [*found, Refusal.UNFINISHED_SWITCH] if target.switching else found
    found += [UNSAFE[reason] for reason in entry.unsafe]
    if target.origins > 1 and not entry.unsafe:
        found.append(Refusal.UNSAFE_ORIGINS)
    return found


def _position(entry: Entry, target: TargetPartition, mode: Mode) -> tuple[int, int, int | None]:
    """Offset, replay in records (at most) and in milliseconds; always inside the target's log."""
    if mode is Mode.EXACT:
        assert target.located is not None
        at = target.located.offset
        replay, there_ms = target.located.replay, target.located.timestamp_ms
    elif entry.timestamp_ms is None and target.first is None:
        # Any record here may be later than the entry. If the source never had one, none is a repeat
        at, there_ms = target.log_start, None
        replay = target.log_end - at if entry.log_end else 0
    else:
        at = target.log_end if target.first is None else target.first
        replay, there_ms = target.log_end - at, entry.timestamp_ms
    new = min(max(at, target.log_start), target.log_end)
    base = None if entry.timestamp_ms is None else entry.timestamp_ms + entry.margin_ms
    back = None if there_ms is None or base is None else max(0, base - there_ms)
    # Records come again from behind the position alone: how old they are is not known.
    return new, max(0, replay), (back or None) if replay else 0
