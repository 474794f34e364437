"""Bytes of records by topic in forwarded traffic: in Produce requests, and in Fetch responses.

Only topics that upstream has named in a Metadata answer are told apart. All others are one: a
request may name topics that do not exist, and upstream refuses it later. So whatever clients send,
it adds no entry here.

Plain numbers: a metric is made of them when it is asked for (gateway/listen/metrics.py).
"""

from __future__ import annotations

from typing import Final, final

from gateway.core.cluster.busiest_topics import OTHER
from gateway.core.limits import TOPICS_NAMED_MAX

_NO_ID: Final = bytes(16)  # of a Metadata answer without topic ids


@final
class TopicTraffic:
    """Bytes of records of one topic since they were last taken."""

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.topic_id = _NO_ID  # its latest
        self.produced = 0
        self.fetched = 0
        self.watched = False  # each connection is to know whether it has produced to it


@final
class TopicBytes:
    """The bytes by topic of all connections of a node. A walk finds a topic by its id or by its
    name in UTF-8.
    """

    def __init__(self, named_max: int = TOPICS_NAMED_MAX) -> None:
        self.by_id: Final[dict[bytes, TopicTraffic]] = {}
        self.by_name: Final[dict[bytes, TopicTraffic]] = {}
        self.unnamed: Final = TopicTraffic(OTHER)  # all that upstream has not named
        self._named_max = named_max

    def name(self, topic: str, topic_id: bytes) -> None:
        """Upstream says that there is such a topic."""
        key = topic.encode()
        known = self.by_name.get(key) if topic_id == _NO_ID else self.by_id.get(topic_id)
        if known is not None and known.name == topic:
            return
        traffic = self.by_name.get(key)
        if traffic is None:
            if len(self.by_name) >= self._named_max:
                self._forget_idle()
            if len(self.by_name) >= self._named_max:
                return
            traffic = self.by_name[key] = TopicTraffic(topic)
        if topic_id != _NO_ID:
            self.by_id.pop(traffic.topic_id, None)
            traffic.topic_id = topic_id
            self.by_id[topic_id] = traffic

    def watch(self, topics: dict[str, bytes]) -> None:
        """From now on connections know that they produce to these topics (ids by name)."""
        for traffic in self.by_name.values():
            traffic.watched = False
        for topic, topic_id in topics.items():
            self.name(topic, topic_id)
            traffic = self.by_name.get(topic.encode(), self.unnamed)
            traffic.watched = traffic is not self.unnamed

    def take(self) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        """Names with the bytes produced, and with those fetched, since the last call."""
        produced: list[tuple[str, int]] = []
        fetched: list[tuple[str, int]] = []
        for traffic in (self.unnamed, *self.by_name.values()):
            if traffic.produced:
                produced.append((traffic.name, traffic.produced))
                traffic.produced = 0
            if traffic.fetched:
                fetched.append((traffic.name, traffic.fetched))
                traffic.fetched = 0
        return produced, fetched

    def _forget_idle(self) -> None:
        """Forgets topics without bytes since the last look. A client asks for the metadata of a
        topic again within minutes (metadata.max.age.ms, topic.metadata.refresh.interval.ms).
        """
        idle = [
            topic
            for topic in self.by_name.values()
            if not (topic.produced or topic.fetched or topic.watched)
        ]
        for traffic in idle:
            del self.by_name[traffic.name.encode()]
            self.by_id.pop(traffic.topic_id, None)
