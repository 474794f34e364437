"""The sources of a loaded window: the store, Kafka's commit, or the group's start position."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import structlog

from dispatcher.core.epochs import NOT_KNOWN, Epochs, last_epoch
from dispatcher.core.steps import Snapshot
from dispatcher.core.stored.cut import Cut, cut_at
from dispatcher.core.stored.reconcile import reconciled
from dispatcher.store.base import Fence, StoreError, WindowKey
from gateway.core.cluster.topology import TopicPartition
from gateway.members.redis_table import TableUnavailable
from gateway.upstream.commits import Committed
from gateway.upstream.errors import UpstreamError
from gateway.windows.dependencies import Dependencies
from gateway.windows.limits import COMMIT_WAIT_S_MAX
from gateway.windows.start_position import start_position
from keyway.commit_metadata.core.metadata import Told, read_times
from keyway.commit_metadata.core.metadata import read as read_commit

log = structlog.get_logger("keyway.window")


@dataclass(frozen=True, slots=True)
class Loaded:
    fence: Fence
    origin: int  # of its commits (dispatcher/core/stored/reconcile.py)
    settled_ms: int  # when the last record was settled, or earlier; 0 = not known
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class _Found:
    """The state of a window. `origin` and `settled_ms` are those of the commit it comes from; 0:
    it comes from none.
    """

    snapshot: Snapshot
    origin: int = 0
    settled_ms: int = 0


async def load(
    dependencies: Dependencies,
    key: WindowKey,
    partition: TopicPartition,
    *,
    reliable: bool,
    partitions: int,
    cut: Cut | None,
) -> Loaded:
    """`partitions`: of the topic, when the window was opened. `cut`: what the log has lost. Raises
    StoreError, UpstreamError.
    """

    async def fresh() -> _Found:
        return await _fresh(dependencies, key, partition, partitions=partitions, reliable=reliable)

    if not reliable:
        found = _cut(await fresh(), cut)
        await dependencies.forget_stored(key)
        origin = max(unstored_fence(dependencies.now_ms()), found.origin)
        return Loaded(Fence(0), origin, found.settled_ms or _began_ms(origin), found.snapshot)
    claimed = await dependencies.store.claim(
        key, dependencies.owner, dependencies.owners.generation
    )
    stored = claimed.snapshot
    if stored is None:
        found = _cut(await fresh(), cut)
    else:
        if not dependencies.begun_topics.seen(key.group, key.topic_id):
            await _begun_with(dependencies, key, partitions, reliable=True)
        found = await _with_commit(dependencies, key.group, partition, stored, claimed.origin)
        found = _cut(found, cut, claimed.origin)
        if found.snapshot is stored:
            settled_ms = max(found.settled_ms, _began_ms(claimed.origin))
            return Loaded(claimed.fence, claimed.origin, settled_ms, stored)
    origin = max(claimed.next_origin, found.origin)
    await dependencies.store.create(key, claimed.fence, found.snapshot, origin=origin)
    return Loaded(claimed.fence, origin, found.settled_ms or _began_ms(origin), found.snapshot)


def _cut(found: _Found, cut: Cut | None, origin: int = 0) -> _Found:
    """`origin`: of the store's state. A window that is cut begins another incarnation, as one that
    was set to another position: an older commit knows of records that the log has no more.
    """
    if cut is None or not cut.concerns(max(origin, found.origin)):
        return found
    return replace(found, snapshot=cut_at(found.snapshot, cut))


def _epochs(committed: Committed, told: Told) -> Epochs:
    """The metadata of an earlier version names none, and that of others is not of this commit."""
    epoch = committed.leader_epoch
    if last_epoch(told.epochs) == epoch:
        return told.epochs
    return ((epoch, NOT_KNOWN),) if epoch >= 0 else ()


def unstored_fence(now_ms: int) -> Fence:
    """The origin of a window whose state is in Kafka alone, as that of an unreliable group is. It
    is later than that of a state which the store still has because it was away.
    """
    return Fence(now_ms * 1_000)


def _began_ms(origin: int) -> int:
    """Fences are microseconds of a clock: nothing was settled before the incarnation began."""
    return origin // 1_000


async def _with_commit(
    dependencies: Dependencies, group: str, partition: TopicPartition, stored: Snapshot, origin: int
) -> _Found:
    """The stored state with the additions of the commit. `stored` itself if there are none, or the
    commit cannot be had: then records come again, and none is lost.
    """
    try:
        async with asyncio.timeout(COMMIT_WAIT_S_MAX):
            committed = await dependencies.commits.fetch(group, partition)
    except (UpstreamError, TimeoutError) as error:
        log.info("commit_not_read", group=group, partition=repr(partition), reason=str(error))
        return _Found(stored)
    if committed is None:
        return _Found(stored)
    told = read_commit(committed.offset, committed.metadata)
    said_origin = told.origin
    if told.settled is None:
        return _Found(stored)
    said = Snapshot(committed.offset, told.settled, epochs=_epochs(committed, told))
    snapshot = reconciled(stored, origin, said, said_origin)
    behind = said_origin > origin or committed.offset > stored.cursor
    if behind and snapshot is not stored:
        log.warning(
            "store_behind_commit",
            **_place(group, partition),
            stored=stored.cursor,
            committed=committed.offset,
            cursor=snapshot.cursor,
        )
    settled_ms = read_times(committed.offset, committed.metadata).settled_ms
    return _Found(snapshot, said_origin, settled_ms if said_origin >= origin else 0)


async def _fresh(
    dependencies: Dependencies,
    key: WindowKey,
    partition: TopicPartition,
    *,
    partitions: int,
    reliable: bool,
) -> _Found:
    """The state of a window without the store: at first use, and when the store has lost the window
    or never keeps it. Kafka's commit says where it goes on, or else the group's start. Raises
    StoreError, UpstreamError.
    """
    group = key.group
    begun_with = await _begun_with(dependencies, key, partitions, reliable=reliable)
    committed = await dependencies.commits.fetch(group, partition)
    if committed is not None:
        told = read_commit(committed.offset, committed.metadata)
        if told.settled is None and committed.metadata:
            log.warning(
                "commit_metadata_unreadable", **_place(group, partition), offset=committed.offset
            )
        # Not readable: replay from the committed offset, inclusive.
        epochs = _epochs(committed, told)
        snapshot = Snapshot(committed.offset, told.settled or [], epochs=epochs)
        settled_ms = read_times(committed.offset, committed.metadata).settled_ms
        return _Found(snapshot, told.origin, settled_ms)
    # The start is decided once, by the present settings in Kafka.
    section = await dependencies.settings.learn(group)
    now_ms = dependencies.now_ms()
    cursor = await start_position(
        dependencies.upstream,
        section,
        group,
        partition,
        now_ms,
        added_later=key.partition >= begun_with,
    )
    return _Found(Snapshot(cursor))


async def _begun_with(
    dependencies: Dependencies, key: WindowKey, partitions: int, *, reliable: bool
) -> int:
    """How many partitions the topic had when the group began with it. Raises StoreError."""
    begun = dependencies.begun_topics
    if not reliable:
        return begun.remembered(key.group, key.topic_id, partitions)
    try:
        return await begun.partitions_of(key.group, key.topic_id, partitions)
    except TableUnavailable as error:
        raise StoreError(str(error)) from error


def _place(group: str, partition: TopicPartition) -> dict[str, str | int]:
    """The partition, as fields of a log line."""
    return {"group": group, "topic": partition.topic, "partition": partition.partition}
