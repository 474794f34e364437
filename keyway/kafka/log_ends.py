"""Where the logs of partitions begin and end, for readers of committed records."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from keyway.kafka.topics import answered, described

Partition = tuple[str, int]  # topic, partition


class Tail(NamedTuple):
    """The end of a log, and the epoch of its leader; None: it does not tell."""

    offset: int
    epoch: int | None


START = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
END = OffsetSpec.latest()  # type: ignore[no-untyped-call]

# A question about partitions of which none has a leader fails as a whole.
NO_LEADERS = KafkaError._NOENT

# Of the time for an answer: a client that is kept may ask a leader that has died since, and waits
# for that one alone.
KEPT_SHARE = 1 / 3
SHORTEST_S = 0.1
GRACE_S = 1.0  # behind the time that librdkafka was given


class LogEnds:
    """librdkafka remembers a topic that a broker did not know a moment after it was created, and
    for 15 minutes says at once that its partitions have no leaders. It waits for a leader that has
    died until time is up. So a client that gave an error is asked nothing more, and the question
    goes to a new one. `admin` is asked first; as all clients it has a length, 0, and so counts as
    false. One thread at a time may use it.
    """

    def __init__(
        self, settings: Mapping[str, Any], answer_s: float, admin: AdminClient | None = None
    ) -> None:
        self._settings = dict(settings)
        self._answer_s = answer_s
        self._admin = admin
        self._is_connected = False  # `_admin`

    def starts(self, places: Iterable[Partition]) -> dict[Partition, int | KafkaError]:
        return _offsets(self._asked(places, START))

    def ends(self, places: Iterable[Partition]) -> dict[Partition, int | KafkaError]:
        """The last stable offsets."""
        return _offsets(self.tails(places))

    def tails(self, places: Iterable[Partition]) -> dict[Partition, Tail | KafkaError]:
        """The same, with the epochs."""
        return self._asked(places, END)

    def _asked(
        self, places: Iterable[Partition], spec: OffsetSpec
    ) -> dict[Partition, Tail | KafkaError]:
        wanted = {TopicPartition(*partition): spec for partition in places}
        if not wanted:
            return {}
        until = time.monotonic() + self._answer_s
        kept, self._admin = self._admin, None
        found = {} if kept is None else self._answers(kept, wanted, self._answer_s * KEPT_SHARE)
        if kept is None or _has_error(found):
            kept, self._is_connected = AdminClient(self._settings), False
            found = self._answers(kept, wanted, until - time.monotonic())
        if not _has_error(found):
            self._admin = kept
        return found

    def _answers(
        self, admin: AdminClient, wanted: dict[TopicPartition, OffsetSpec], answer_s: float
    ) -> dict[Partition, Tail | KafkaError]:
        until = time.monotonic() + answer_s
        if not self._is_connected:
            # A client that looks for leaders before it has a connection may look again only after
            # 3 s (four of 25 did). DescribeCluster waits for a controller, which a broker may not
            # know yet.
            described(admin, [next(iter(wanted)).topic], answer_s)
            self._is_connected = True
        asked = admin.list_offsets(
            wanted,
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=max(SHORTEST_S, until - time.monotonic()),
        )
        found: dict[Partition, Tail | KafkaError] = {}
        for tp, future in asked.items():
            try:
                told = answered(future, max(0.0, until + GRACE_S - time.monotonic()))
            except KafkaException as error:
                found[tp.topic, tp.partition] = error.args[0]
            else:
                # Without an error where one of several brokers has not answered in time.
                late = KafkaError(KafkaError._TIMED_OUT)
                tail = Tail(int(told.offset), told.leader_epoch)
                found[tp.topic, tp.partition] = late if tail.offset < 0 else tail
        return found


def _offsets(
    found: Mapping[Partition, Tail | KafkaError],
) -> dict[Partition, int | KafkaError]:
    return {
        place: tail if isinstance(tail, KafkaError) else tail.offset
        for place, tail in found.items()
    }


def _has_error(found: Mapping[Partition, Tail | KafkaError]) -> bool:
    return any(isinstance(answer, KafkaError) for answer in found.values())
