"""The look at a target's last records, without Kafka: topics that have no answer."""

from __future__ import annotations

from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from keyway.clusters.core.tree import ClusterName
from keyway.clusters.core.trust import CHECKSUM
from spark.links.own_copies import NOT_READABLE, _found, looked_at


class Told:
    """An error of a partition, as a consumer's message."""

    def __init__(self, topic: str, code: int) -> None:
        self._topic, self._code = topic, code

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 0

    def error(self) -> KafkaError:
        return KafkaError(self._code)


class Polled:
    def __init__(self, *messages: Told) -> None:
        self._messages = list(messages)

    def poll(self, _timeout_s: float) -> Told:
        return self._messages.pop(0)


def look(*messages: Told) -> dict[str, str]:
    ends = {("fares", 0): 1, ("flights", 0): 1}
    return _found(cast(Consumer, Polled(*messages)), ends, ClusterName("c1"), {}, CHECKSUM)


def test_a_topic_that_may_not_be_read_stops_alone() -> None:
    """A user with WRITE alone: the whole link waited, and the reason named no topic."""
    denied = Told("fares", KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert look(denied, Told("flights", KafkaError._PARTITION_EOF)) == {"fares": NOT_READABLE}


def test_a_cluster_that_fails_is_no_fault_of_a_topic() -> None:
    with pytest.raises(KafkaException):
        look(Told("fares", KafkaError._TRANSPORT))


@pytest.mark.parametrize(
    ("start", "end", "spans"),
    [
        (7, 7, []),
        (7, 9, [(7, 9)]),
        (0, 300, [(0, 300)]),
        (0, 301, [(1, 301), (0, 100)]),
        (50, 2_000, [(1_700, 2_000), (1_400, 1_500), (800, 900), (50, 150)]),
    ],
)
def test_a_log_is_looked_at_from_its_end_back(
    start: int, end: int, spans: list[tuple[int, int]]
) -> None:
    assert looked_at(start, end) == spans


def test_copies_are_met_if_they_are_as_many_as_what_is_behind_them() -> None:
    for behind in range(1, 5_000, 7):
        log_end = 10_000
        copies = range(log_end - 2 * behind, log_end - behind)
        assert any(
            first < copies.stop and last > copies.start for first, last in looked_at(0, log_end)
        )
