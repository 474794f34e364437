"""Windows of deleted topics leave the store: no group would ever ask for them again. So do what the
nodes have told each other of these topics.

A broker that has just started may not know a topic yet. So a window is deleted only when two looks
in a row found its topic unknown, and never while it is in memory. After a mistake Kafka still has
the group's committed offset and bitmap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from dispatcher.store.base import StoreError
from gateway.core.wire.errors import EncodeError
from gateway.members.redis_table import TableUnavailable
from gateway.operations.group_offsets import GroupOffsets
from gateway.operations.limits import TOPICS_ASKED_AT_ONCE
from gateway.upstream.errors import UpstreamError
from gateway.upstream.requests import names_by_id
from gateway.windows.window_keys import topic_id_bytes, topic_id_text

log = structlog.get_logger("keyway.windows")


class SharedTopicRows(Protocol):
    """gateway.routing.shared_topics.SharedTopics"""

    def topics(self) -> set[bytes]: ...
    async def delete_topics(self, topic_ids: Collection[bytes]) -> None: ...


@dataclass(slots=True)
class DeletedTopics:
    offsets: GroupOffsets
    interval_ms: int  # between two looks
    shared: SharedTopicRows | None = None  # None: the node stands alone
    _unknown: set[str] = field(default_factory=set)  # topic ids, at the last look

    async def sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(self.interval_ms / 1000)
            try:
                await self.sweep()
            except (StoreError, TableUnavailable, UpstreamError) as error:
                log.info("deleted_topics_not_checked", reason=str(error))
            except EncodeError:
                return  # an upstream that knows no topic ids

    async def sweep(self) -> int:
        """Deletes the windows of topics that were unknown before and still are; returns their
        number. Raises StoreError, TableUnavailable, UpstreamError, EncodeError.
        """
        store, windows, begun = self.offsets.store, self.offsets.windows, self.offsets.begun_topics
        stored = await store.positions(None)
        ids = {key.topic_id for key in stored} | await begun.topics()
        if self.shared is not None:
            ids |= {topic_id_text(topic_id) for topic_id in self.shared.topics()}
        unknown = await self._unknown_of(ids)
        deleted, self._unknown = unknown & self._unknown, unknown
        keys = [
            key
            for key in sorted(key for key in stored if key.topic_id in deleted)
            if windows.get(key.group, topic_id_bytes(key.topic_id), key.partition) is None
        ]
        for key in keys:
            await store.delete(key)
        if deleted:
            await begun.delete_topics(deleted)
            if self.shared is not None:
                await self.shared.delete_topics([topic_id_bytes(text) for text in deleted])
        if keys:
            log.info("windows_of_deleted_topics", topics=len(deleted), windows=len(keys))
        return len(keys)

    async def _unknown_of(self, ids: set[str]) -> set[str]:
        wanted = [topic_id_bytes(text) for text in sorted(ids)]
        names: dict[bytes, str | None] = {}
        for at in range(0, len(wanted), TOPICS_ASKED_AT_ONCE):
            portion = wanted[at : at + TOPICS_ASKED_AT_ONCE]
            names |= await names_by_id(self.offsets.upstream, portion)
        return {topic_id_text(topic_id) for topic_id, name in names.items() if name is None}
