"""`keyway offsets status`, `plan` and `apply`, as data; cli.py prints it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from keyway.clusters.config import ClustersConfig
from keyway.kafka.asking import Asking, Away
from keyway.service import wall_ms
from offsets.client import ClusterClient
from offsets.commits import TailedCommits
from offsets.committer import Committer
from offsets.core.plan import Row
from offsets.errors import ClusterAway, NotReadable, OffsetsError
from offsets.limits import SILENT_MS
from offsets.options import Options
from offsets.partitions import Partitions
from offsets.state_topic import StateTopic

READ_S_MAX = 3_600.0  # all partitions of a group's topics, from their starts
STATE_S_MAX = 120.0


@dataclass(frozen=True, slots=True)
class Status:
    """`rows`: the latest decision of each cluster, with the cluster's name; `away`: clusters that
    did not answer, and why; `troubles`: clusters whose service does not work, and why.
    """

    rows: tuple[dict[str, Any], ...]
    away: tuple[str, ...]
    troubles: tuple[str, ...] = ()

    def of(self, group: str | None, topic: str | None) -> Status:
        """The rows of one group or all, of one topic or all."""
        wanted = ((group, "group"), (topic, "topic"))
        kept = [
            row for row in self.rows if all(value in (None, row[name]) for value, name in wanted)
        ]
        return replace(self, rows=tuple(kept))


class Decisions:
    """The decisions of all committers or one, read from their clusters. A second look fetches only
    new records. Raises ConfigError.
    """

    def __init__(self, config: ClustersConfig, cluster: str | None = None) -> None:
        asked = config.clusters if cluster is None else (config.cluster(cluster),)
        self._state_topics = {each.name: StateTopic(ClusterClient(each)) for each in asked}
        self._asking = Asking(
            {name: partial(_read, state_topic) for name, state_topic in self._state_topics.items()}
        )

    def look(self, *, within_s: float | None = None) -> Status:
        """`within_s`: as in Asking.look."""
        rows: list[dict[str, Any]] = []
        away: list[str] = []
        troubles: list[str] = []
        for name, found in self._asking.look(within_s=within_s).items():
            if isinstance(found, Away):
                away.append(f"{name}: {found.reason}")
                continue
            of_cluster, trouble = found
            rows += of_cluster
            if trouble:
                troubles.append(f"{name}: {trouble}")
        rows.sort(key=lambda row: (row["group"], row["topic"], row["partition"], row["cluster"]))
        return Status(tuple(rows), tuple(away), tuple(troubles))


def _read(state_topic: StateTopic) -> tuple[list[dict[str, Any]], str] | Away:
    """The decisions, and why the service does not work; empty: it does."""
    name = state_topic.client.name
    try:
        if not state_topic.read(for_s=STATE_S_MAX):
            return Away("its topic could not be read to the end")
    except OffsetsError as error:
        return Away(str(error).removeprefix(f"{name}: "))
    rows: list[dict[str, Any]] = []
    for (place, source), row in sorted(state_topic.state.rows.items()):
        entry = state_topic.state.newest(place, besides=name)
        if entry is not None and entry.source == source:
            rows.append({"cluster": name, **row})
    return rows, _trouble(state_topic.state.beat)


def _trouble(beat: tuple[int, str] | None) -> str:
    """Services of earlier versions give no sign of life: nothing is known of those."""
    if beat is None:
        return ""
    at_ms, problem = beat
    if wall_ms() - at_ms <= SILENT_MS:
        return f"its service waits: {problem}" if problem else ""
    at = datetime.fromtimestamp(at_ms / 1_000, UTC)
    return f"its service has not been heard of since {at:%F %T}Z"


@contextmanager
def _committer(
    config: ClustersConfig, group: str, target: str, options: Options
) -> Iterator[Committer]:
    """A committer that has read everything it needs to plan the group on `target`. Raises
    OffsetsError.
    """
    client = ClusterClient(config.cluster(target))
    state_topic = StateTopic(client)
    partitions = Partitions(client, seals=config.seals(), cuts=state_topic.state.cuts)
    source = TailedCommits(client, lambda name: client.group_of(name) == group)
    committer = Committer(
        client=client,
        partitions=partitions,
        state_topic=state_topic,
        options=options,
        now_ms=wall_ms,
        tree=config.checked_tree(),
    )
    try:
        if not state_topic.read(for_s=STATE_S_MAX):
            raise ClusterAway(f"{target}: its topic could not be read to the end")
        entries = committer.entries([group])
        if not entries:
            raise OffsetsError(
                f"{target} knows nothing of group {group}: has it committed anywhere else, and"
                " does `keyway offsets run` work there?"
            )
        committer.facts = client.facts({entry.topic for entry in entries})
        facts = committer.facts
        there = {(entry.topic, entry.partition) for entry in entries if entry.topic in facts}
        partitions.follow(
            (
                partition
                for partition in sorted(there)
                if partition[1] < facts[partition[0]].partitions
            ),
            facts,
        )
        if not partitions.read_to_ends(for_s=READ_S_MAX):
            raise ClusterAway(f"{target}: the group's topics could not be read to their ends")
        if _read_to_the_end(source):
            committer.source = source
        yield committer
    finally:
        source.close()
        partitions.close()
        state_topic.close()


def _read_to_the_end(source: TailedCommits) -> bool:
    """False: nobody can tell when a commit was made. Raises ClusterAway."""
    until = time.monotonic() + STATE_S_MAX
    try:
        while True:
            source.poll()
            if source.caught_up or time.monotonic() > until:
                return source.caught_up
    except NotReadable:
        return False


def plan(config: ClustersConfig, group: str, target: str, options: Options) -> list[Row]:
    """A dry run. Raises OffsetsError."""
    with _committer(config, group, target, options) as committer:
        return committer.plan(committer.entries([group]))


def apply(config: ClustersConfig, group: str, target: str, options: Options) -> list[Row]:
    """Commits the offsets that are not refused. Raises OffsetsError."""
    with _committer(config, group, target, options) as committer:
        return committer.apply(committer.entries([group]))
