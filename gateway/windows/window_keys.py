"""The names of windows: a group, the id of a topic as text, a partition."""

from __future__ import annotations

import base64
from functools import lru_cache

from dispatcher.store.base import WindowKey
from gateway.core.cluster.topology import TopicPartition
from gateway.windows.limits import TOPIC_IDS_REMEMBERED


@lru_cache(TOPIC_IDS_REMEMBERED)  # a share fetch asks about each of its partitions
def topic_id_text(topic_id: bytes) -> str:
    """Kafka's own text form of a topic id: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def topic_id_bytes(text: str) -> bytes:
    """The 16 bytes of a topic id from Kafka's text form."""
    return base64.urlsafe_b64decode(text + "==")


def window_key(group: str, tp: TopicPartition) -> WindowKey:
    return WindowKey(group, topic_id_text(tp.topic_id), tp.partition)
