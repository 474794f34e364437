"""The distributor of one cluster: it turns its groups' commits into entries, and passes entries on.

An entry is written to the cluster's own `_keyway-offsets` and goes from there along the tree like a
record: to the target of each level above the cluster, with copy flags. Entries that came from
elsewhere go on by the same rule. A commit that the committer made here is no news. It is recognised
by its applied record, which has the same offset, and for a Key-Shared group the same settled
records. So nothing goes round in circles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf
from time import monotonic

import structlog

from keyway.clusters.config import OffsetsSection
from keyway.clusters.core.tree import Distributor as Link
from keyway.clusters.core.tree import Flags
from keyway.commit_metadata.core import metadata as settled_metadata
from offsets.client import ClusterClient, GroupPlace, Partition, Refused, TopicFacts
from offsets.commits import Change, CommitSource
from offsets.core.consumer_offsets import OffsetCommitted
from offsets.core.entries import Applied, Entry, GroupPartition, without_flags, work_told_ms
from offsets.core.index import PartitionIndex
from offsets.core.plan import Refusal
from offsets.core.switches import SwitchReport
from offsets.core.translate import (
    SourceFacts,
    Unsafe,
    by_timestamp,
    margin_and_doubts,
    source_facts,
    still_holds,
)
from offsets.errors import OffsetsError
from offsets.limits import PLACES_AT_ONCE, TARGETS_LOOKED_S
from offsets.partitions import Partitions
from offsets.state_topic import StateTopic

log = structlog.get_logger("keyway.offsets")


@dataclass(slots=True)
class Distributor:
    """`linked`: whether links copy a topic, so that its records have origins."""

    client: ClusterClient
    source: CommitSource
    partitions: Partitions
    state_topic: StateTopic
    settings: OffsetsSection
    linked: Callable[[str], bool]
    wanted_topic: Callable[[str], bool]
    now_ms: Callable[[], int]
    facts: dict[str, TopicFacts] = field(default_factory=dict)  # by logical topic
    waiting: dict[GroupPartition, OffsetCommitted] = field(default_factory=dict)
    # The index's end when the commit was looked at.
    _at_end: dict[GroupPartition, int] = field(default_factory=dict)
    _deleted: set[GroupPartition] = field(default_factory=set)  # as far as the commits are read
    _lost_asked: bool = False  # whether commits that are gone since before the start were asked for
    _again: list[GroupPartition] = field(default_factory=list)  # left of the present look at all
    _again_ms: float = -inf  # when that began

    def poll(self) -> None:
        """Takes in the commits since the last time. Raises ClusterAway, NotReadable."""
        for change in self.source.poll():
            place = self._place(change)
            if place is None:
                continue
            if isinstance(change, OffsetCommitted):
                self._deleted.discard(place)
                if self._is_told(place, change):
                    self.waiting.pop(place, None)
                else:
                    self.waiting[place] = change
            else:
                self.waiting.pop(place, None)
                self._deleted.add(place)
        # Before that, the commit of an entry, or a later one, may not be read yet.
        if self.source.caught_up:
            if not self._lost_asked:
                self._deleted |= self._lost()
            self._delete()
            self._look_again()

    def _place(self, change: Change) -> GroupPartition | None:
        """None if its names have no logical form here, or if the topic is not followed."""
        group, topic = self.client.group_of(change.group), self.client.topic_of(change.topic)
        if group is None or topic is None or not self.wanted_topic(topic):
            return None
        return group, topic, change.partition

    def _lost(self) -> set[GroupPartition]:
        """Places on the state topic whose commits were deleted while no service ran: the source
        tells nothing of them, once their tombstones are compacted away, too. Kafka is asked for
        each of their groups by name. Raises ClusterAway.
        """
        here: dict[GroupPartition, GroupPlace] = {}
        for (place, name), entry in self.state_topic.state.entries.items():
            at = self._here(place)
            if name != self.client.name or entry.deleted or at is None or place in self.waiting:
                continue
            if self.source.latest(at) is None:
                here[place] = at
        answers = self.client.committed_each({at[0] for at in here.values()}) if here else {}
        # A group without a coordinator is asked for again.
        self._lost_asked = not any(
            isinstance(answer, Refused) and answer.refusal is Refusal.CLUSTER_AWAY
            for answer in answers.values()
        )
        absent = {
            at: place
            for place, at in here.items()
            if not isinstance(answer := answers[at[0]], Refused) and at[1:] not in answer
        }
        # By their names: the list of a group's commits lacks topics that this user may not see.
        return {absent[at] for at in self.client.without_commit(absent)}

    def _delete(self) -> None:
        gone, name = [], self.client.name
        for place in self._deleted:
            known = self.state_topic.state.entries.get((place, name))
            if known is not None and not known.deleted:
                gone.append(Entry(*place, name, self.now_ms(), deleted=True))
        self.state_topic.write_told(gone)
        self._deleted.clear()

    def _is_told(self, place: GroupPartition, commit: OffsetCommitted) -> bool:
        """Its entry is on the state topic, as after a restart. `_look_again` sees whether it still
        holds, from where the log ended then.
        """
        entry = self.state_topic.state.entries.get((place, self.client.name))
        if entry is None or entry.deleted or entry.key_shared:
            return False
        if (entry.offset, entry.metadata) != (commit.offset, without_flags(commit.metadata)):
            return False
        # A commit that is only looked at would be news after each restart, and look like the latest
        # work of its group.
        return not self.source.timed or entry.committed_ms == commit.committed_ms

    def _look_again(self) -> None:
        """Looks again at groups that are behind: records that came since may have earlier
        timestamps. Each group is looked at once in `refresh_ms`, and not too many in one round.
        """
        now, name = self.now_ms(), self.client.name
        if not self._again and now - self._again_ms >= self.settings.refresh_ms:
            self._again_ms = now
            self._again = [
                place for place, source in self.state_topic.state.entries if source == name
            ]
        for place in self._again[-PLACES_AT_ONCE:]:
            entry = self.state_topic.state.entries.get((place, name))
            if entry is not None and not entry.deleted and place not in self.waiting:
                self._look_at(place, entry)
        del self._again[-PLACES_AT_ONCE:]

    def _look_at(self, place: GroupPartition, entry: Entry) -> None:
        index, facts = self.partitions.index(place[1:]), self.facts.get(place[1])
        if index is None or facts is None:
            return
        end = self._at_end.get(place, entry.log_end)
        same = (entry.partitions, entry.create_time) == (facts.partitions, facts.create_time)
        # An entry of before a restart may be one of other settings.
        same = same and (place in self._at_end or self._as_configured(entry, index))
        self._at_end[place] = index.end
        if not (same and (index.end == end or self._holds(entry, index, end))):
            self._wait_again(place, entry)

    def _as_configured(self, entry: Entry, index: PartitionIndex) -> bool:
        """Whether the entry's margin and its doubts about timestamps are those of the present
        settings.
        """
        settings = self.settings
        margin_ms, doubts = margin_and_doubts(
            index.late_ms(settings.lag_window_ms),
            several=settings.several_origins or len(index.streams | {index.own}) > 1,
            margin_ms=settings.margin_ms,
            margin_ms_max=settings.margin_max_ms,
        )
        told = tuple(reason for reason in entry.unsafe if reason is not Unsafe.BEFORE_START)
        return (entry.margin_ms, told) == (margin_ms, doubts)

    def _holds(self, entry: Entry, index: PartitionIndex, end: int) -> bool:
        """By timestamp, the margin may be another: then everything is looked at."""
        exact = entry.exact and entry.progress is not None and self.settings.mode != "timestamp"
        if not exact or entry.timestamp_ms is None:
            return False
        assert entry.progress is not None
        return still_holds(index, entry.progress, entry.timestamp_ms + entry.margin_ms, end)

    def _wait_again(self, place: GroupPartition, entry: Entry) -> None:
        here = self._here(place)
        committed = self.source.latest(here) if here is not None else None
        if here is not None and committed is not None:
            self.waiting[place] = OffsetCommitted(
                *here, committed.offset, -1, committed.metadata, entry.committed_ms
            )

    def forget(self, places: Iterable[GroupPartition]) -> None:
        for place in places:
            self._at_end.pop(place, None)

    def _here(self, place: GroupPartition) -> GroupPlace | None:
        group, topic = self.client.group_here(place[0]), self.client.topic_here(place[1])
        return None if group is None or topic is None else (group, topic, place[2])

    def wanted(self) -> set[Partition]:
        """The partitions that commits wait for."""
        return {place[1:] for place in self.waiting}

    def distribute(self) -> int:
        """Writes the entries of new commits. Returns how many it wrote. Raises ClusterAway,
        NotReadable.
        """
        if not self.source.caught_up:
            return 0  # a later commit may follow; an older one is no news
        copies = [place for place, commit in self.waiting.items() if self._is_copy(place, commit)]
        for place in copies:
            del self.waiting[place]
        fresh: list[Entry] = []
        for entry in self._entries():
            if _is_news(entry, self.state_topic.state.entries.get((entry.place, self.client.name))):
                fresh.append(entry)
            else:
                self._done(entry)
        if fresh:
            # A topic may have been deleted and created again since its index was read.
            self.partitions.look({entry.place[1:] for entry in fresh})
            fresh = [entry for entry in fresh if self.partitions.index(entry.place[1:]) is not None]
        self.state_topic.write_told(fresh)
        for entry in fresh:
            self._done(entry)
        return len(fresh)

    def _done(self, entry: Entry) -> None:
        self.waiting.pop(entry.place, None)
        self._at_end[entry.place] = entry.log_end

    def _is_copy(self, place: GroupPartition, commit: OffsetCommitted) -> bool:
        applied: Applied | None = self.state_topic.state.applied.get(place)
        return applied is not None and applied.made(commit.offset, commit.metadata)

    def _entries(self) -> list[Entry]:
        """The entries of commits whose partition is read to its end. Raises ClusterAway."""
        searches = {}
        read = (
            (place, commit)
            for place, commit in self.waiting.items()
            if place[1] in self.facts and self.partitions.index(place[1:]) is not None
        )
        for place, commit in islice(read, PLACES_AT_ONCE):
            index = self.partitions.index(place[1:])
            if index is not None:
                settled = settled_metadata.decode(commit.offset, without_flags(commit.metadata))
                search = source_facts(
                    index,
                    commit.offset,
                    settled=settled or (),
                    window_ms=self.settings.lag_window_ms,
                )
                searches[place] = (place[1:], search)
        return [
            self._filled(place, self.waiting[place], found)
            for place, found in self.partitions.all_answered(searches).items()
        ]

    def _filled(self, place: GroupPartition, commit: OffsetCommitted, found: SourceFacts) -> Entry:
        facts, text = self.facts[place[1]], without_flags(commit.metadata)
        key_shared = settled_metadata.decode(commit.offset, text) is not None
        settings = self.settings
        by = by_timestamp(
            found,
            margin_ms=settings.margin_ms,
            margin_ms_max=settings.margin_max_ms,
            several_origins=settings.several_origins,
        )
        return Entry(
            *place,
            source=self.client.name,
            committed_ms=work_told_ms(commit.offset, text) or commit.committed_ms,
            offset=commit.offset,
            log_start=found.log_start,
            log_end=found.log_end,
            partitions=facts.partitions,
            timestamp_ms=by.timestamp_ms,
            margin_ms=by.margin_ms,
            unsafe=by.unsafe,
            create_time=facts.create_time,
            exact=found.copies or self.linked(place[1]),
            progress=found.progress,
            metadata="" if key_shared else text,  # a Key-Shared group's is translated, not copied
            key_shared=key_shared,
        )

    def close(self) -> None:
        self.source.close()


def _is_news(entry: Entry, known: Entry | None) -> bool:
    """Whether more has changed than the end of the log."""
    return known is None or _bare(entry) != _bare(known)


def _bare(entry: Entry) -> Entry:
    progress = entry.progress
    if progress is not None:
        progress = replace(progress, new={})
    return replace(entry, log_start=0, log_end=0, flags=0, progress=progress)


@dataclass(slots=True)
class Forwarder:
    """Takes entries from one cluster to the next, at one level of the tree. `state_topics`: those
    of the link's targets, in their order; the first that answers is written to. Each forwarder has
    a thread of its own, so a target that is away holds up nothing else.
    """

    link: Link
    state_topics: Sequence[StateTopic]
    identified: Callable[[str], None]  # of a target, before it is written to
    doubt: Callable[[list[str]], None]  # of targets that failed
    due: dict[tuple[GroupPartition, str], Entry | SwitchReport] = field(default_factory=dict)
    error: str = ""
    clock: Callable[[], float] = monotonic
    lost: bool = False  # what went on before: a target's topic is another one now
    _topic_ids: dict[str, str | None] = field(default_factory=dict)  # by cluster that has entries
    _looked_s: float = -inf

    def _look(self) -> None:
        """Looks whether the topics that have entries are still the same. A cluster that lost its
        topic, or was replaced by an empty one, would get those of groups that rest only when this
        service starts again.
        """
        if self.clock() - self._looked_s < TARGETS_LOOKED_S:
            return
        self._looked_s = self.clock()
        for state_topic in self.state_topics:
            name = state_topic.client.name
            if name in self._topic_ids:
                with suppress(OffsetsError):  # the next write finds out by itself
                    topic_id = state_topic.topic_id()
                    self.lost |= topic_id not in (None, self._topic_ids[name])
                    self._topic_ids[name] = topic_id or self._topic_ids[name]

    def forward(self, news: Sequence[Entry | SwitchReport]) -> int:
        """Returns how many entries went on. Those that could not are due again the next time,
        unless there are newer ones by then.
        """
        self.due |= {
            (record.place, record.source): record.with_flags(flags)
            for record in news
            if (flags := self.link.flags_of_copy_from(record.source, Flags(record.flags)))
            is not None
        }
        self._look()
        if not self.due:
            return 0
        for state_topic in self.state_topics:
            name = state_topic.client.name
            try:
                self.identified(name)
                state_topic.write_told(self.due.values())
                if name not in self._topic_ids:
                    self._topic_ids[name] = state_topic.topic_id()
            except OffsetsError as error:
                if str(error) != self.error:
                    log.warning("entries_wait", level=self.link.level, reason=str(error))
                self.error = str(error)
                self.doubt([name])
                continue
            count = len(self.due)
            self.due.clear()
            self.error = ""
            return count
        return 0
