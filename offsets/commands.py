"""`keyway offsets status`, `plan` and `apply`, as data; cli.py prints it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from clusters.config import ClustersConfig
from offsets.board import BoardTopic
from offsets.client import ClusterClient
from offsets.commits import TailedCommits
from offsets.committer import Committer, Options
from offsets.core.plan import Row
from offsets.errors import ClusterAway, NotReadable, OffsetsError
from offsets.partitions import Partitions
from offsets.service import wall_ms

READ_S_MAX = 3_600.0  # all partitions of a group's topics, from their starts
BOARD_S_MAX = 120.0


@dataclass(frozen=True, slots=True)
class Status:
    """`rows`: the latest decision of each cluster, with the cluster's name; `away`: clusters that
    did not answer, and why.
    """

    rows: tuple[dict[str, Any], ...]
    away: tuple[str, ...]


def status(config: ClustersConfig) -> Status:
    """From the topic of every cluster that answers."""
    rows: list[dict[str, Any]] = []
    away: list[str] = []
    for cluster in config.clusters:
        client = ClusterClient(cluster)
        board = BoardTopic(client)
        try:
            if not board.read(for_s=BOARD_S_MAX):
                raise ClusterAway(f"{cluster.name}: its topic could not be read to the end")
            for (place, source), row in sorted(board.state.rows.items()):
                entry = board.state.newest(place, besides=cluster.name)
                if entry is not None and entry.source == source:
                    rows.append({"cluster": cluster.name, **row})
        except OffsetsError as error:
            away.append(str(error))
        finally:
            board.close()
            client.close()
    rows.sort(key=lambda it: (it["group"], it["topic"], it["partition"], it["cluster"]))
    return Status(tuple(rows), tuple(away))


@contextmanager
def _committer(
    config: ClustersConfig, group: str, target: str, options: Options
) -> Iterator[Committer]:
    """With everything read that the group's plan on `target` needs. Raises OffsetsError."""
    client = ClusterClient(config.cluster(target))
    board = BoardTopic(client)
    partitions = Partitions(client, secret=config.seal_secret())
    source = TailedCommits(client, lambda name: client.group_of(name) == group)
    committer = Committer(
        client=client, partitions=partitions, board=board, options=options, now_ms=wall_ms
    )
    try:
        if not board.read(for_s=BOARD_S_MAX):
            raise ClusterAway(f"{target}: its topic could not be read to the end")
        entries = committer.entries([group])
        if not entries:
            raise OffsetsError(
                f"{target} knows nothing of group {group}: has it committed anywhere else, and"
                " does `keyway offsets run` work there?"
            )
        committer.facts = client.facts({it.topic for it in entries})
        facts = committer.facts
        there = {(it.topic, it.partition) for it in entries if it.topic in facts}
        partitions.follow(it for it in sorted(there) if it[1] < facts[it[0]].partitions)
        if not partitions.read_to_ends(for_s=READ_S_MAX):
            raise ClusterAway(f"{target}: the group's topics could not be read to their ends")
        if _read_to_the_end(source):
            committer.source = source
        yield committer
    finally:
        source.close()
        partitions.close()
        board.close()
        client.close()


def _read_to_the_end(source: TailedCommits) -> bool:
    """False: nobody can tell when a commit was made. Raises ClusterAway."""
    until = time.monotonic() + BOARD_S_MAX
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
