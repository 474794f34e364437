"""Topics as content that all nodes share (topics.lua): each node says what it sees in Kafka, and
reads what others saw when the generation has grown. Rows of topics that Kafka has deleted go when
the sweep of deleted topics (gateway/operations/deleted_topics.py) has found them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.core.cluster.topology import Topology
from gateway.core.forwarding.metadata_answer import ListedTopic
from gateway.core.routing.topics import TopicRouting, changed, reflects
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

    def shown_by(self, metadata: Sequence[ListedTopic]) -> bool:
        """Metadata of a broker that is not behind what the nodes know."""
        shown = {
            topic.topic_id.hex(): topic.partitions for topic in metadata if topic.error_code == 0
        }
        return reflects(self.known, shown)

    def topics(self) -> set[bytes]:
        """The ids of topics that have a row, but that this node does not see in Kafka."""
        return {bytes.fromhex(topic) for topic in self.known.keys() - self._seen.keys()}

    async def delete_topics(self, topic_ids: Collection[bytes]) -> None:
        """Deletes their rows. What Redis does not take is told by `topics` again."""
        names = sorted({topic_id.hex() for topic_id in topic_ids} & self.known.keys())
        try:
            for at in range(0, len(names), TOPICS_TOLD_AT_ONCE):
                portion = names[at : at + TOPICS_TOLD_AT_ONCE]
                await self._redis.hdel(TOPICS_KEY, *portion)
                for name in portion:
                    self.known.pop(name, None)
        except (RedisError, OSError) as error:
            log.info("deleted_topics_stay", reason=str(error))

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
            self.known = await _parsed(rows)
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


async def _parsed(rows: Mapping[bytes, bytes]) -> dict[str, TopicRouting]:
    """Clients are served meanwhile."""
    found: dict[str, TopicRouting] = {}
    for at, (topic, row) in enumerate(rows.items(), 1):
        version, _, partitions = row.partition(b" ")
        found[topic.decode()] = TopicRouting(partitions=int(partitions), version=int(version))
        if at % TOPICS_TOLD_AT_ONCE == 0:
            await asyncio.sleep(0)
    return found
