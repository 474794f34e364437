"""A topic of one partition, read from its start: the latest value of each key counts."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, TopicPartition

from offsets.client import ClusterClient, consumed
from offsets.errors import ClusterAway


class LatestValues:
    """`take` gets each record. `close` it. Creates no topic."""

    def __init__(
        self,
        client: ClusterClient,
        topic: str,
        take: Callable[[bytes | None, bytes | None], object],
    ) -> None:
        self._client = client
        self._topic = topic
        self._take = take
        self._consumer: Consumer | None = None

    def read(self, *, for_s: float) -> bool:
        """To the topic's present end; False: time was up before. Raises ClusterAway."""
        until = time.monotonic() + for_s
        if self._consumer is None and not self._start():
            return True
        assert self._consumer is not None
        end = self._client.end(self._topic)
        while True:
            if self._position() >= end:
                return True
            if time.monotonic() > until:
                return False
            for message in consumed(self._consumer, 0.05):
                error = message.error()
                if error is None:
                    self._take(message.key(), message.value())
                elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise ClusterAway(f"{self._client.name}: {self._topic}: {error.str()}")

    def _start(self) -> bool:
        if self._topic not in self._client.topics():
            return False
        self._consumer = self._client.consumer()
        self._consumer.assign([TopicPartition(self._topic, 0, 0)])
        return True

    def _position(self) -> int:
        """The next offset to read; the topic has no transactions, so no markers at its end."""
        assert self._consumer is not None
        (at,) = self._consumer.position([TopicPartition(self._topic, 0)])
        return max(0, int(at.offset))

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
