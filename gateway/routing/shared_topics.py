"""Topics as content that all nodes share (topics.lua): each node says what it sees in Kafka, and
reads what others saw when the generation has grown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.core.cluster.topology import Topology
from gateway.core.routing.topics import TopicRouting, changed, reflects
from gateway.core.wire.schema import Message
from gateway.routing.limits import BEAT_MS, BEAT_S_MAX, TOPICS_TOLD_AT_ONCE
from gateway.routing.lost_cancel import cancelled
from gateway.routing.shared_table import KEY

log = structlog.get_logger("keyway.nodes")

TOPICS_KEY = "keyway:routing:topics"
_NO_ID = bytes(16)


class SharedTopics:
    def __init__(self, redis: Redis, generation: Callable[[], int]) -> None:
        self.known: dict[str, TopicRouting] = {}  # by topic id
        self._redis = redis
        self._generation = generation
        self._script = resources.files("gateway.routing").joinpath("topics.lua").read_text()
        self._seen: dict[str, int] = {}
        self._read_at = -1  # the generation

    def look_at(self, topology: Topology) -> None:
        """Takes in what this node sees in Kafka now."""
        self._seen = {
            topic.topic_id.hex(): len(topic.partitions)
            for topic in topology.topics.values()
            if topic.partitions and topic.topic_id != _NO_ID
        }

    def shown_by(self, metadata: Message) -> bool:
        """Metadata of a broker that is not behind what the nodes know."""
        shown = {
            topic["TopicId"].hex(): len(topic["Partitions"])
            for topic in metadata["Topics"]
            if topic["ErrorCode"] == 0 and "TopicId" in topic
        }
        return reflects(self.known, shown)

    async def run(self) -> None:
        """Runs until cancelled."""
        while not cancelled():
            try:
                async with asyncio.timeout(BEAT_S_MAX):
                    await self._settle()
            except (RedisError, OSError, TimeoutError):
                pass  # the beats of the node tell that Redis is away
            await asyncio.sleep(BEAT_MS / 1000)

    async def _settle(self) -> None:
        generation = self._generation()
        if generation != self._read_at:
            rows: dict[Any, Any] = await self._redis.hgetall(TOPICS_KEY)
            self.known = _parsed(rows)
            self._read_at = generation
        for portion in _portions(changed(self.known, self._seen)):
            words = [
                word
                for topic, topic_facts in portion.items()
                for word in (topic, topic_facts.partitions)
            ]
            changes = await self._redis.eval(self._script, 2, KEY, TOPICS_KEY, *map(str, words))
            self.known.update(portion)
            if changes:
                log.info("topics_changed", topics=changes)


def _portions(topics: Mapping[str, TopicRouting]) -> Iterator[dict[str, TopicRouting]]:
    names = list(topics)
    for at in range(0, len(names), TOPICS_TOLD_AT_ONCE):
        yield {name: topics[name] for name in names[at : at + TOPICS_TOLD_AT_ONCE]}


def _parsed(rows: Mapping[bytes, bytes]) -> dict[str, TopicRouting]:
    found: dict[str, TopicRouting] = {}
    for topic, row in rows.items():
        version, _, partitions = row.partition(b" ")
        found[topic.decode()] = TopicRouting(partitions=int(partitions), version=int(version))
    return found
