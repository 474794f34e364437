"""Where the logs of partitions begin and end, for readers of committed records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from keyway.kafka.topics import answered

Partition = tuple[str, int]  # topic, partition

START = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
END = OffsetSpec.latest()  # type: ignore[no-untyped-call]

# A question about partitions of which none has a leader fails as a whole.
NO_LEADERS = KafkaError._NOENT


class LogEnds:
    """librdkafka remembers a topic that a broker did not know a moment after it was created, and
    for 15 minutes says at once that its partitions have no leaders. So a client that gave an error
    is asked nothing more. `admin` is asked first. One thread at a time may use it.
    """

    def __init__(
        self, settings: Mapping[str, Any], answer_s: float, admin: AdminClient | None = None
    ) -> None:
        self._settings = dict(settings)
        self._answer_s = answer_s
        self._admin = admin
        self._is_connected = False  # `_admin`

    def starts(self, places: Iterable[Partition]) -> dict[Partition, int | KafkaError]:
        return self._asked(places, START)

    def ends(self, places: Iterable[Partition]) -> dict[Partition, int | KafkaError]:
        """The last stable offsets."""
        return self._asked(places, END)

    def _asked(
        self, places: Iterable[Partition], spec: OffsetSpec
    ) -> dict[Partition, int | KafkaError]:
        wanted = {TopicPartition(*partition): spec for partition in places}
        if not wanted:
            return {}
        admin = self._admin
        if admin is None:  # (One that is there counts as false: it has a length.)
            admin, self._is_connected = AdminClient(self._settings), False
        self._admin = None
        try:
            self._connect(admin)
        except KafkaException as error:
            return {(tp.topic, tp.partition): error.args[0] for tp in wanted}
        asked = admin.list_offsets(
            wanted,
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=self._answer_s,
        )
        found: dict[Partition, int | KafkaError] = {}
        for tp, future in asked.items():
            try:
                found[tp.topic, tp.partition] = int(answered(future, self._answer_s).offset)
            except KafkaException as error:
                found[tp.topic, tp.partition] = error.args[0]
        if not any(isinstance(answer, KafkaError) for answer in found.values()):
            self._admin = admin
        return found

    def _connect(self, admin: AdminClient) -> None:
        """A client that looks for leaders before it has a connection looks again only after 3 s.
        Raises KafkaException.
        """
        if not self._is_connected:
            answered(admin.describe_cluster(request_timeout=self._answer_s), self._answer_s)
            self._is_connected = True
