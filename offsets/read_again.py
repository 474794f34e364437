"""Ranges of partitions that are read again from Kafka, for searches in their indexes.

A partition whose range cannot be read rests for a while: it has no leader, is damaged, or may not
be read any more. Meanwhile it counts as not indexed, and its groups wait. The others do not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from keyway.kafka.to_ends import Unread, place_of, read_to
from offsets.client import ClusterClient, Partition
from offsets.core.model import Rows
from offsets.followed import Columns
from offsets.limits import REREAD_REST, REREAD_REST_S_MIN, REREAD_S_MAX

log = structlog.get_logger("keyway.offsets")

Range = tuple[int, int]  # offsets, inclusive
Add = Callable[[Columns, Message, Partition], None]


@dataclass(frozen=True, slots=True)
class _Rest:
    until_s: float  # of a monotonic clock
    why: str


class ReadAgain:
    """`add` takes a record into the columns of its partition. Call `close` in the end."""

    def __init__(self, client: ClusterClient, add: Add) -> None:
        self._client = client
        self._add = add
        self._consumer: Consumer | None = None
        self._rests: dict[Partition, _Rest] = {}  # also those that may be tried again

    def why_not(self, partition: Partition) -> str:
        """Why it rests; empty: it does not."""
        rest = self._rests.get(partition)
        return "" if rest is None or time.monotonic() >= rest.until_s else rest.why

    def forget(self, partition: Partition) -> None:
        self._rests.pop(partition, None)

    def read(self, ranges: Mapping[Partition, Range]) -> dict[Partition, Rows]:
        """The rows of each range, without the partitions that rest from now on. Raises ClusterAway
        if the cluster does not tell its topics.
        """
        began_s, failed = time.monotonic(), self._leaderless(ranges)
        names = {
            partition: (self._client.topic_here(partition[0]) or "", partition[1])
            for partition in ranges
            if partition not in failed
        }
        places = {name: partition for partition, name in names.items()}
        columns = {partition: Columns() for partition in names}
        unread = Unread({names[partition]: ranges[partition][1] + 1 for partition in names})
        if self._consumer is None:
            self._consumer = self._client.consumer()
        self._consumer.assign([TopicPartition(*names[at], ranges[at][0]) for at in names])
        until_s = began_s + REREAD_S_MAX * len(ranges)
        try:
            for message in read_to(self._consumer, unread, wait_s=REREAD_S_MAX):
                partition = places[place_of(message)]
                if (error := message.error()) is not None:
                    failed[partition] = error.str()
                else:
                    self._add(columns[partition], message, partition)
                if time.monotonic() > until_s:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        except KafkaException as error:
            failed |= dict.fromkeys((places[at] for at in unread.ends), error.args[0].str())
        finally:
            self._consumer.unassign()
        self._rest(ranges, failed, time.monotonic() - began_s)
        return {at: read.rows() for at, read in columns.items() if at not in failed}

    def _leaderless(self, ranges: Mapping[Partition, Range]) -> dict[Partition, str]:
        """Of those that rested before: a second time nobody waits for a leader."""
        again = {partition for partition in ranges if partition in self._rests}
        without = {
            topic: self._client.without_leader(self._client.topic_here(topic) or "")
            for topic in {topic for topic, _ in again}
        }
        return {(topic, at): "no leader" for topic, at in again if at in without[topic]}

    def _rest(
        self, ranges: Mapping[Partition, Range], failed: Mapping[Partition, str], took_s: float
    ) -> None:
        until_s = time.monotonic() + max(REREAD_REST_S_MIN, REREAD_REST * took_s)
        for (topic, at), why in failed.items():
            known = self._rests.get((topic, at))
            if known is None or known.why != why:
                log.warning("range_not_read_again", partition=f"{topic}-{at}", reason=why)
            self._rests[topic, at] = _Rest(until_s, why)
        for partition in ranges.keys() - failed.keys():
            self.forget(partition)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
