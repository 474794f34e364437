"""The committer of one cluster: it commits here what entries from elsewhere say, or refuses to.

The newest entry of a group and partition counts. A group that is at work here is left alone and
looked at again when it is empty. If its position is its own work, it must have been empty for a
while, because it may only be restarting. A group that goes on committing elsewhere while it works
here does so on purpose. It is not moved at all until an operator says so.

An offset is written down as applied before it is committed. So the distributor of this cluster
never takes the commit for news, even after a crash between the two. The position that the commit
replaces is written down with it: a commit that failed is made in a later round.
"""

# Long: a row is planned, looked at again and committed from one set of facts.
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from keyway.clusters.core.tree import Tree
from keyway.commit_metadata.core import metadata as settled_metadata
from offsets.activity import Activity
from offsets.client import ClusterClient, Partition, Refused, TopicFacts
from offsets.commits import CommitSource
from offsets.core.entries import (
    Applied,
    Entry,
    GroupPartition,
    with_flags,
    without_flags,
    work_told_ms,
)
from offsets.core.index import PartitionIndex
from offsets.core.key_shared import encoded, records_told
from offsets.core.limits import SETTLED_SPAN_OFFSETS
from offsets.core.model import Range, Search
from offsets.core.plan import Committed, Mode, Refusal, Row, TargetPartition, decide, mode_of
from offsets.core.switches import Unfinished, unfinished_subtrees
from offsets.core.translate import Located, first_at_or_after, locate, may_repeat
from offsets.limits import LOGGED_PLACES_MAX
from offsets.options import Options
from offsets.partitions import Partitions
from offsets.standing import StandingCommits
from offsets.state_topic import StateTopic

log = structlog.get_logger("keyway.offsets")


@dataclass(frozen=True, slots=True)
class _Planned:
    """`row` was computed from `state` and from the log up to `end`."""

    state: tuple[object, ...]
    end: int
    row: Row

    def holds(self, entry: Entry, index: PartitionIndex | None) -> bool:
        """Whether the row is still right although the log has grown."""
        if index is None or index.end == self.end:
            return True
        row, progress = self.row, entry.progress
        if row.mode is not Mode.EXACT or row.new is None or progress is None:
            return False
        return row.new < self.end and not may_repeat(index, progress, self.end)


@dataclass(slots=True)
class Committer:
    """`source` tells when a commit was made here; None: nothing can tell. `follows`: whether the
    configuration names a place.
    """

    client: ClusterClient
    partitions: Partitions
    state_topic: StateTopic
    options: Options
    now_ms: Callable[[], int]
    tree: Tree
    source: CommitSource | None = None
    follows: Callable[[GroupPartition], bool] = lambda _: True
    facts: dict[str, TopicFacts] = field(default_factory=dict)
    rows: dict[GroupPartition, Row] = field(default_factory=dict)
    _planned: dict[GroupPartition, _Planned] = field(default_factory=dict)
    _switching: Unfinished = field(default_factory=Unfinished)
    _unknown: dict[str, Refused] = field(default_factory=dict)  # groups that are not told of
    activity: Activity = field(init=False)
    standing: StandingCommits = field(init=False)

    def __post_init__(self) -> None:
        self.activity = Activity(self.state_topic, self.now_ms)
        self.standing = StandingCommits(self.now_ms, self._seen)

    def entries(self, groups: Iterable[str]) -> list[Entry]:
        """The newest entry from elsewhere for each place of `groups`."""
        wanted = set(groups)
        return self.entries_of(
            [place for place in self.state_topic.state.places if place[0] in wanted]
        )

    def entries_of(self, places: Iterable[GroupPartition]) -> list[Entry]:
        """The same for `places`. An entry stays on the state topic when its group does not follow
        any more, and must not move that group.
        """
        found = (
            self.state_topic.state.newest(place, besides=self.client.name)
            for place in places
            if self.follows(place)
        )
        return [entry for entry in found if entry is not None]

    def plan(self, entries: Sequence[Entry], *, ask: bool = True) -> list[Row]:
        """A row for each entry. With `ask` False, the positions here are the ones that the source
        has seen, and nothing that is unchanged is searched for again. Raises ClusterAway.
        """
        if not entries:
            return []
        active = self.client.active_groups()
        self._unknown = {}
        now = self._asked(entries) if ask or self.source is None else self._told(entries)
        self.activity.look(
            entries,
            lambda group: self.client.group_here(group) in active,
            now,
            empty_ms=self.options.empty_ms,
            both_ms=self.options.both_ms,
        )
        self._compare(entries)
        self._switching = unfinished_subtrees(self.state_topic.state.switches, self.tree)
        kept = {
            entry.place: self._kept(entry, active, now.get(entry.place), keep=not ask)
            for entry in entries
        }
        again = [entry for entry in entries if kept[entry.place] is None]
        found = self._searched(again)
        for entry in again:
            at = now.get(entry.place)
            row = self._row(entry, active, at, found.get(entry.place))
            if (unknown := self._unknown.get(entry.group)) is not None:
                row = replace(row, refusals=(unknown.refusal,), error=unknown.error, new=None)
                self._planned.pop(entry.place, None)
            else:
                self._planned[entry.place] = _Planned(*self._state(entry, active, at), row)
            kept[entry.place] = row
        return [made for entry in entries if (made := kept[entry.place]) is not None]

    def _kept(
        self, entry: Entry, active: set[str], now: Committed | None, *, keep: bool
    ) -> Row | None:
        """The last row, unless something that it depends on has changed."""
        state, end = self._state(entry, active, now)
        known = self._planned.get(entry.place)
        index = self.partitions.index((entry.topic, entry.partition))
        if known is None and keep and (stood := self._stood(entry, active, now)) is not None:
            if index is not None:
                self._planned[entry.place] = _Planned(state, end, stood)
            return stood
        if keep and known is not None and known.state == state and known.holds(entry, index):
            return known.row
        return None

    def _state(
        self, entry: Entry, active: set[str], now: Committed | None
    ) -> tuple[tuple[object, ...], int]:
        """All that a row depends on, and the log's end."""
        index = self.partitions.index((entry.topic, entry.partition))
        end = -1 if index is None else index.end
        state = (
            entry,
            None if index is None else (index.own, index.start, index.former_end, index.cut_at),
            self.facts.get(entry.topic),
            self.client.group_here(entry.group) in active,
            self.activity.rested(entry.group, self.options.empty_ms),
            entry.group in self.state_topic.state.both,
            self._switching.has(entry.source, entry.topic),
            now,
            self.state_topic.state.applied.get(entry.place),
        )
        return state, end

    def _stood(self, entry: Entry, active: set[str], now: Committed | None) -> Row | None:
        """After a restart: the row on the state topic, if its commit was made and the group still
        stands there.
        """
        applied = self.state_topic.state.applied.get(entry.place)
        shown = self.state_topic.state.rows.get((entry.place, entry.source))
        if (entry.topic, entry.partition) in self.state_topic.state.cuts:
            return None  # it may be from before the log lost its end
        if applied is None or shown is None or now is None:
            return None
        if entry.group in self.state_topic.state.both or self._switching.has(
            entry.source, entry.topic
        ):
            return None
        if self.client.group_here(entry.group) in active:
            return None
        told = (shown["source_ms"], shown["source_offset"], shown["new"], shown["refusals"])
        made = (applied.source, applied.committed_ms) == (entry.source, entry.committed_ms)
        if not made or told != (entry.committed_ms, entry.offset, applied.offset, []):
            return None
        if not applied.made(now.offset, now.metadata):
            return None
        names = ("old", "new", "replay", "replay_ms", "source_offset", "source_ms")
        return Row(
            *entry.place,
            source=entry.source,
            mode=Mode(shown["mode"]),
            metadata=applied.metadata,
            stood=now,
            **{name: shown[name] for name in names},
        )

    def _searched(self, entries: Sequence[Entry]) -> dict[GroupPartition, Located | int | None]:
        """Searches by origin or timestamp, as the mode of each entry says. Raises ClusterAway."""
        searches: dict[GroupPartition, tuple[Partition, Search[Located | int | None]]] = {}
        for entry in entries:
            partition = (entry.topic, entry.partition)
            index = self.partitions.index(partition)
            if index is None:
                continue
            if self._mode(entry) is Mode.TIMESTAMP:
                if entry.timestamp_ms is not None:
                    first = first_at_or_after(index, entry.timestamp_ms)
                    searches[entry.place] = (partition, first)
            elif entry.progress is not None:
                behind = SETTLED_SPAN_OFFSETS if entry.key_shared else 0
                located = locate(index, entry.progress, behind=behind)
                searches[entry.place] = (partition, located)
        return self.partitions.all_answered(searches)

    def _mode(self, entry: Entry) -> Mode:
        index = self.partitions.index((entry.topic, entry.partition))
        if self.options.mode is Mode.AUTO and index is not None and index.copies:
            entry = replace(entry, exact=True)
        return mode_of(entry, self.options.mode)

    def _seen(self, place: GroupPartition) -> Committed | None:
        """The position here as of the source's last poll."""
        group, topic = self.client.group_here(place[0]), self.client.topic_here(place[1])
        if self.source is None or group is None or topic is None:
            return None
        return self.source.latest((group, topic, place[2]))

    def _told(self, entries: Sequence[Entry]) -> dict[GroupPartition, Committed]:
        found = {}
        for entry in entries:
            seen = self._seen(entry.place)
            if seen is not None:
                worked_ms = work_told_ms(seen.offset, seen.metadata)
                found[entry.place] = (
                    seen if worked_ms is None else replace(seen, committed_ms=worked_ms)
                )
        return found

    def _asked(self, entries: Sequence[Entry]) -> dict[GroupPartition, Committed]:
        """The positions here, as Kafka answers now; `_unknown` are the groups of which it does not
        tell. One of them keeps no other waiting. Raises ClusterAway.
        """
        names = {entry.group: self.client.group_here(entry.group) for entry in entries}
        groups = {here: group for group, here in names.items() if here is not None}
        found: dict[GroupPartition, Committed] = {}
        for here, offsets in self.client.committed_each(groups).items():
            if isinstance(offsets, Refused):
                self._unknown[groups[here]] = offsets
                continue
            for (topic, partition), committed in offsets.items():
                logical = self.client.topic_of(topic)
                if logical is not None:
                    seen = self._timed(here, topic, partition, committed)
                    found[groups[here], logical, partition] = seen
        return found

    def _timed(self, group: str, topic: str, partition: int, committed: Committed) -> Committed:
        """The commit with its time. A Key-Shared group may commit late, so its gateway's time
        counts. For other groups it is the time of the record in `__consumer_offsets`, or now if
        that record is too new to have been read.
        """
        worked_ms = work_told_ms(committed.offset, committed.metadata)
        if worked_ms is not None:
            return replace(committed, committed_ms=worked_ms)
        if self.source is None:
            return committed
        seen = self.source.latest((group, topic, partition))
        if seen is not None and seen.offset == committed.offset:
            return replace(committed, committed_ms=seen.committed_ms)
        return replace(committed, committed_ms=self.now_ms())

    def _compare(self, entries: Sequence[Entry]) -> None:
        """Looks for progress from an earlier life of a topic. It looks at all entries before the
        first row is made, because one entry tells for all groups. Raises ClusterAway.
        """
        beyond: dict[Partition, int] = {}
        for entry in entries:
            partition = (entry.topic, entry.partition)
            index = self.partitions.index(partition)
            if index is not None and entry.progress is not None:
                untold = index.own._replace(life="")
                processed = entry.progress.vector.get(untold, 0)
                if processed > max(index.end, beyond.get(partition, 0)):
                    beyond[partition] = processed
        # The index may only be behind.
        for partition, end in (self.client.ends(beyond, partly=True) if beyond else {}).items():
            index = self.partitions.index(partition)
            if index is not None and index.compare(beyond[partition], end):
                log.warning("topic_created_anew", partitions=[f"{partition[0]}-{partition[1]}"])

    def _row(
        self,
        entry: Entry,
        active: set[str],
        now: Committed | None,
        found: Located | int | None,
    ) -> Row:
        """One look at the index answers all questions about the log. If the end were asked for
        after the search, records that arrive in between would be passed.
        """
        partition, mode = (entry.topic, entry.partition), self._mode(entry)
        facts = self.facts.get(entry.topic)
        there = facts is not None and entry.partition < facts.partitions
        index = self.partitions.index(partition)
        located = found if isinstance(found, Located) else None
        here = self.client.group_here(entry.group)
        target = TargetPartition(
            partitions=facts.partitions if facts is not None and there else None,
            log_start=0 if index is None else index.start,
            log_end=0 if index is None else index.end,
            create_time=facts is None or facts.create_time,
            active=here in active,
            rested=self.activity.rested(entry.group, self.options.empty_ms),
            both=entry.group in self.state_topic.state.both,
            switching=self._switching.has(entry.source, entry.topic),
            committed=now,
            applied=self.state_topic.state.applied.get(entry.place),
            located=located,
            first=found if isinstance(found, int) else None,
            indexed=index is not None,
            origins=1 if index is None else len(entry.natives(index.streams)),
        )
        row = decide(
            entry,
            target,
            mode,
            metadata=self._plain_metadata(entry),
            told=records_told(entry, located),
            force=self.options.force,
            rewind=self.options.rewind,
            earliest=self.options.earliest,
        )
        if here is None or self.client.topic_here(entry.topic) is None:
            return replace(row, refusals=(Refusal.NAME_NOT_TRANSLATED,), new=None)
        if entry.key_shared and row.new is not None:
            ranges = [] if located is None else [span for span, _ in located.settled]
            return replace(row, metadata=self._settled_metadata(entry, row.new, ranges, now))
        return row

    def _plain_metadata(self, entry: Entry) -> str:
        if self.options.flags_in_metadata:
            return with_flags(entry.metadata, entry.flags)
        return entry.metadata

    def _settled_metadata(
        self, entry: Entry, offset: int, ranges: list[Range], now: Committed | None
    ) -> str:
        """The metadata of a Key-Shared group, without flags, because the gateway reads it. Its
        origin is later than any life that the window had here, so the gateway believes it, whatever
        its store holds (dispatcher/core/stored/reconcile.py).
        """
        applied = self.state_topic.state.applied.get(entry.place)
        if applied is not None and applied.offset == offset:
            origin = settled_metadata.read_times(offset, applied.metadata).origin
            same = encoded(entry, offset, ranges, origin)
            if same == applied.metadata:
                return same
        before = 0
        if now is not None:
            before = settled_metadata.read_times(now.offset, without_flags(now.metadata)).origin
        return encoded(entry, offset, ranges, max(self.now_ms() * 1_000, before + 1))

    # -------------------------------------------------------------------------------- committing

    def preview(self, entries: Sequence[Entry]) -> list[Row]:
        """Plans, and shows the plan in `status`; commits nothing. Raises ClusterAway."""
        rows = self.plan(entries, ask=False)
        self._report(rows, ())
        return rows

    def apply(self, entries: Sequence[Entry]) -> list[Row]:
        """Plans, and commits the offsets that are not refused. Raises ClusterAway."""
        flags = {entry.place: entry.flags for entry in entries}
        rows = self.plan(entries, ask=False)
        standing = [row for row in rows if row.changes and self._is_there(row)]
        old = self.standing.old(map(place_of, standing))
        rows = self._looked_at(entries, rows, old)
        chosen = [row for row in rows if self._is_due(row)]
        again = [
            replace(row, metadata=row.stood.metadata)
            for row in rows
            if place_of(row) in old and row.changes and row.stood and self._is_there(row)
        ]
        if chosen:
            self.state_topic.write_applied(
                {place_of(row): _applied(row, flags[place_of(row)]) for row in chosen}
            )
        done = self._commit([*chosen, *again])
        refused = {place_of(row): row for row in done if row.refusals}
        self.standing.made(place_of(row) for row in done if not row.refusals)
        if self.options.force:  # an operator has decided
            moved = {row.group for row in chosen} & self.state_topic.state.both
            self.state_topic.write_both(sorted(moved), both=False)
        rows = [refused.get(place_of(row), row) for row in rows]
        self._report(rows, [row for row in chosen if place_of(row) not in refused])
        return rows

    def _looked_at(
        self, entries: Sequence[Entry], rows: list[Row], old: Collection[GroupPartition]
    ) -> list[Row]:
        """The same rows, after a look at the logs of those that are due, or old. An index may
        describe a topic that has been deleted and created again since, or records that are gone.
        """
        again = [at for at, row in enumerate(rows) if self._is_due(row) or place_of(row) in old]
        if again:
            self.partitions.look({(rows[at].topic, rows[at].partition) for at in again})
            for at, row in zip(again, self.plan([entries[at] for at in again]), strict=True):
                rows[at] = row
        return rows

    def forget(self, places: Collection[GroupPartition], groups: Collection[str]) -> None:
        """`groups`: the groups that are left."""
        for place in places:
            self.rows.pop(place, None)
            self._planned.pop(place, None)
        self.standing.forget(places)
        self.activity.forget(places, groups)

    def _is_due(self, row: Row) -> bool:
        return row.changes and not self._is_there(row)

    def _is_there(self, row: Row) -> bool:
        applied = self.state_topic.state.applied.get(place_of(row))
        return (
            row.stood is not None
            and applied is not None
            and (applied.offset, applied.metadata) == (row.new, row.metadata)
            and applied.made(row.stood.offset, row.stood.metadata)
        )

    def _commit(self, rows: Sequence[Row]) -> list[Row]:
        by_name: dict[str, dict[tuple[str, int], Row]] = {}
        for row in rows:
            group, topic = self.client.group_here(row.group), self.client.topic_here(row.topic)
            assert group is not None, "a name that is not translated is refused"
            assert topic is not None, "a name that is not translated is refused"
            by_name.setdefault(group, {})[topic, row.partition] = row
        wanted = {
            group: {place: (row.new or 0, row.metadata) for place, row in of_group.items()}
            for group, of_group in by_name.items()
        }
        if wanted:
            self.state_topic.require_lease()  # it may have taken long to get here
        answers = self.client.commit(wanted) if wanted else {}
        done = []
        for group, of_group in by_name.items():
            for place, row in of_group.items():
                refused = answers[group].get(place)
                if refused is not None:
                    row = replace(row, refusals=(refused.refusal,), error=refused.error)
                done.append(row)
        return done

    def _report(self, rows: Sequence[Row], committed: Sequence[Row]) -> None:
        """Rows that changed become records that `status` shows; they are logged once."""
        changed = [row for row in rows if self.rows.get(place_of(row)) != row]
        self.rows |= {place_of(row): row for row in changed}
        # Without the rows that stand there since before a restart.
        self.state_topic.write_rows(changed)
        if committed:
            shown = [
                f"{row.group} {row.topic}-{row.partition} {row.old} -> {row.new}"
                for row in committed
                if row.old != row.new
            ]
            log.info(
                "offsets_committed", partitions=len(committed), first=shown[:LOGGED_PLACES_MAX]
            )


def place_of(row: Row) -> GroupPartition:
    return row.group, row.topic, row.partition


def _applied(row: Row, flags: int) -> Applied:
    return Applied(
        row.new or 0,
        row.metadata,
        row.source,
        row.source_ms,
        flags,
        before=row.old,
        before_ms=None if row.stood is None else row.stood.committed_ms,
    )
