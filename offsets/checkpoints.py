"""A Spark checkpoint moves to another cluster: Spark's Kafka source keeps its offsets there, not in
a group.

The offsets of the last batch that was committed are where the query goes on. They are translated
exactly like a group's commit: the position on the source as a vector of origins, then the first
record on the target that it does not cover. Both clusters must answer.

A fresh checkpoint has that batch as its batch 0, already committed, so Spark goes on with batch 1
from there. A query with state (aggregations, joins, deduplication) is refused: its state counts
records that would come again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

from keyway.clusters.config import ClustersConfig
from offsets.client import ClusterClient, Partition, TopicFacts
from offsets.core.checkpoint import (
    Checkpoint,
    MalformedCheckpoint,
    offsets_file,
    read_offsets_file,
    starting_offsets,
)
from offsets.core.switches import unfinished_subtrees
from offsets.core.topic_state import TopicState
from offsets.core.translate import locate, source_facts
from offsets.errors import CheckpointError, ClusterAway
from offsets.partitions import Partitions
from offsets.state_topic import StateTopic

READ_S_MAX = 3_600.0
STATE_S_MAX = 120.0
_COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


def read_checkpoint(directory: Path, *, with_state: bool = False) -> Checkpoint:
    """The offsets of its last committed batch. Raises CheckpointError."""
    batches = _batches(directory / "commits")
    if not batches:
        raise CheckpointError(f"{directory}: no batch was committed, so there is nothing to move")
    if (directory / "state").is_dir() and not with_state:
        raise CheckpointError(
            f"{directory}: the query has state, which cannot move; --without-state leaves it behind"
        )
    path = directory / "offsets" / str(batches[-1])
    try:
        return read_offsets_file(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: {error}") from error
    except MalformedCheckpoint as error:
        raise CheckpointError(f"{path}: {error}") from error


def _batches(folder: Path) -> list[int]:
    if not folder.is_dir():
        raise CheckpointError(f"{folder.parent}: no Spark checkpoint: it has no {folder.name}/")
    return sorted(int(file.name) for file in folder.iterdir() if file.name.isdecimal())


def translated(
    config: ClustersConfig,
    checkpoint: Checkpoint,
    source: str,
    target: str,
    *,
    force: bool = False,
) -> Checkpoint:
    """The same position on another cluster. `force`: also while records reach the source out of
    their order, which the query then misses. Raises CheckpointError, ClusterAway, NotReadable.
    """
    here, there = ClusterClient(config.cluster(source)), ClusterClient(config.cluster(target))
    seals = config.seals()
    told = _told(there)
    read = Partitions(here, seals=seals)
    found = Partitions(there, seals=seals, cuts=told.cuts)
    try:
        places = {
            (_logical(here, topic), partition): offset
            for (topic, partition), offset in checkpoint.offsets.items()
        }
        topics = {topic for topic, _ in places}
        if not force:
            _require_order(config, here.name, told, topics)
        facts = here.facts(topics), there.facts(topics)
        for client, known in zip((here, there), facts, strict=True):
            for topic in sorted(topics - known.keys()):
                raise CheckpointError(f"{client.name} has no topic {topic}")
        _same_partitions(here.name, there.name, *facts)
        for partitions, known in ((read, facts[0]), (found, facts[1])):
            partitions.follow(places, known)
            if not partitions.read_to_ends(for_s=READ_S_MAX):
                raise ClusterAway("a topic could not be read to its end")
        moved: dict[tuple[str, int], int] = {}
        for place, offset in places.items():
            moved[there.topic_here(place[0]) or place[0], place[1]] = _moved(
                read, found, place, offset, config.offsets.lag_window_ms
            )
    finally:
        for partitions in (read, found):
            partitions.close()
    return checkpoint.at(moved)


def _told(there: ClusterClient) -> TopicState:
    """What the services tell on the target. Without offsets' service nobody tells anything."""
    with closing(StateTopic(there)) as topic:
        if not topic.read(for_s=STATE_S_MAX):
            raise ClusterAway(f"{there.name}: its topic could not be read to the end")
        return topic.state


def _require_order(
    config: ClustersConfig, source: str, told: TopicState, topics: Iterable[str]
) -> None:
    """As the committer refuses a group's position."""
    unfinished = unfinished_subtrees(told.switches, config.checked_tree())
    for topic in sorted(topics):
        if unfinished.has(source, topic):
            raise CheckpointError(
                f"topic {topic}: a link was switched without --rewind, and a cluster has not passed"
                f" on yet what it had, so {source} may still get records from before the query's"
                " position: wait until it is back, or miss them with --force"
            )


def _logical(client: ClusterClient, topic: str) -> str:
    logical = client.topic_of(topic)
    if logical is None:
        raise CheckpointError(f"topic {topic} has no logical name on {client.name}")
    return logical


def _same_partitions(
    here: str, there: str, on_source: Mapping[str, TopicFacts], on_target: Mapping[str, TopicFacts]
) -> None:
    for topic in sorted(on_source):
        counts = on_source[topic].partitions, on_target[topic].partitions
        if counts[0] != counts[1]:
            raise CheckpointError(
                f"topic {topic} has {counts[0]} partitions on {here} and {counts[1]} on {there}"
            )


def _moved(
    read: Partitions, found: Partitions, place: Partition, offset: int, window_ms: int
) -> int:
    here, there = read.index(place), found.index(place)
    assert here is not None, "read to its end"
    assert there is not None, "read to its end"
    facts = read.answered(place, source_facts(here, offset, window_ms=window_ms))
    if not here.copies and not there.copies and len(there):
        raise CheckpointError(
            f"{place[0]}-{place[1]}: no record on either cluster has its origin in a header, so"
            " only a timestamp could be translated, and a query cannot be told of repeats"
        )
    return found.answered(place, locate(there, facts.progress)).offset


def write_checkpoint(directory: Path, checkpoint: Checkpoint) -> None:
    """A fresh checkpoint for a query of the same source. Raises CheckpointError if there is
    anything already.
    """
    if directory.exists() and any(directory.iterdir()):
        raise CheckpointError(f"{directory}: is not empty")
    for name in ("offsets", "commits"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    (directory / "metadata").write_text(f'{{"id":"{uuid.uuid4()}"}}', encoding="utf-8")
    (directory / "offsets" / "0").write_text(offsets_file(checkpoint), encoding="utf-8")
    (directory / "commits" / "0").write_text(_COMMIT, encoding="utf-8")


__all__ = ["read_checkpoint", "starting_offsets", "translated", "write_checkpoint"]
