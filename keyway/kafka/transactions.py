"""Producers of transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Producer

# Of any producer: librdkafka's would make a topic anew that was deleted, as a broker makes it.
NO_TOPICS = {"allow.auto.create.topics": False}


def opened(settings: Mapping[str, Any], topic: str, answer_s: float) -> Producer:
    """A producer whose `transactional.id` is its own from now on: the writer before it is fenced,
    and its open transaction ended. `topic`: one that is on the cluster, or was. Each question takes
    `answer_s` at most. Raises KafkaException.
    """
    producer = Producer({**settings, **NO_TOPICS})
    # Without a connection librdkafka looks for the coordinator again after half a second. The first
    # answer comes over the one to the bootstrap address, which it gives up then.
    for _ in range(2):
        producer.list_topics(topic, answer_s)
    producer.init_transactions(answer_s)
    return producer
