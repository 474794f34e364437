"""A Key-Shared group whose name goes back to the consumers that had it before.

From then on their commits are the positions of the name, so nothing of the gateway may count beside
them: neither a window that is still to be committed, nor what the store has, which would be the
position of the next share members. Kafka gets the cursors first: the consumers begin there, before
all records that are not settled.

A name that is no group's passes: a Key-Shared group that was empty for long is forgotten, and its
windows stay in the store. If consumers have had the name since, these windows go before the next
share member comes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from dispatcher.store.base import WindowKey
from gateway.core.cluster.topology import TopicPartition
from gateway.core.wire.errors import ErrorCode, error_name
from gateway.members.redis_table import TableUnavailable
from gateway.operations.errors import GroupInUse, StateUnavailable
from gateway.operations.group_offsets import GroupOffsets
from gateway.upstream.commits import Commit
from gateway.upstream.errors import UpstreamError
from keyway.commit_metadata.core.metadata import decode as decode_commit
from keyway.commit_metadata.core.metadata import encode as encode_commit

log = structlog.get_logger("keyway.groups")

# The second: consumers are at work there, who came at a broker. The offsets are theirs already.
_COMMITTED = (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)


async def give_back(offsets: GroupOffsets, name: str) -> None:
    """Leaves of the group what its operator has set: settings and key filters. Raises GroupInUse,
    NotCoordinated, StateUnavailable.
    """
    await offsets.committer.commit()
    async with offsets.at_rest(name, lambda _: True):
        await _commit_stored(offsets, name)
        try:
            await offsets.forget_windows(name, lambda _: True)
            await offsets.forget_members(name)
        except TableUnavailable as error:
            raise StateUnavailable(f"Redis: {error}") from error
    log.info("group_given_back", group=name)


async def clear_overtaken(
    offsets: GroupOffsets, consumers_have: Callable[[str], Awaitable[bool]], name: str
) -> None:
    """Before the first member of a name that is no group's: what is in the store where consumers
    have committed since. Raises NotCoordinated, StateUnavailable.
    """
    if not await _overtaken(offsets, name) or not await consumers_have(name):
        return
    with suppress(GroupInUse):  # another member was faster
        async with offsets.at_rest(name, lambda _: True):
            overtaken = await _overtaken(offsets, name)
            await offsets.forget_windows(name, overtaken.__contains__)


async def _overtaken(offsets: GroupOffsets, name: str) -> set[WindowKey]:
    """Windows in the store whose committed offset is not the gateway's. Raises StateUnavailable."""
    stored = await offsets.stored(name)
    if not stored:
        return set()
    topics = await offsets.topics_by_id({key.topic_id for key in stored})
    try:
        committed = await offsets.commits.fetch_all(name)
    except UpstreamError as error:
        raise StateUnavailable(f"upstream: {error}") from error
    theirs = {
        place
        for place, commit in committed.items()
        if decode_commit(commit.offset, commit.metadata) is None
    }
    return {
        key
        for key in stored
        if (topic := topics.get(key.topic_id)) and (topic.name, key.partition) in theirs
    }


async def _commit_stored(offsets: GroupOffsets, name: str) -> None:
    """Cursors that Kafka has not, as of windows of other nodes. Records that are settled behind
    them come again. Raises StateUnavailable.
    """
    stored = await offsets.stored(name)
    if not stored:
        return
    topics = await offsets.topics_by_id({key.topic_id for key in stored})
    committed = await offsets.committed(name, ours_only=False)
    commits: list[Commit] = []
    for key, cursor in stored.items():
        topic = topics.get(key.topic_id)
        if topic is None:
            continue  # deleted
        there = committed.get((topic.name, key.partition))
        if there is None or there.offset < cursor:
            place = TopicPartition(topic.name, topic.topic_id, key.partition)
            commits.append(Commit(place, cursor, encode_commit(cursor, [])))
    for code in await offsets.commits.commit(name, commits):
        if code not in _COMMITTED:
            raise StateUnavailable(f"upstream: {error_name(code)}")
