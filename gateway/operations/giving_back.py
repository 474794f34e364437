"""A Key-Shared group whose name goes back to the consumers that had it before.

From then on their commits are the positions of the name, so nothing of the gateway may count beside
them: neither a window that is still to be committed, nor what the store has, which would be the
position of the next share members. Kafka gets the cursors first: the consumers begin there, before
all records that are not settled.
"""

from __future__ import annotations

import structlog

from gateway.core.cluster.topology import TopicPartition
from gateway.core.wire.errors import ErrorCode, error_name
from gateway.members.redis_table import TableUnavailable
from gateway.operations.errors import StateUnavailable
from gateway.operations.group_offsets import GroupOffsets
from gateway.upstream.commits import Commit
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
