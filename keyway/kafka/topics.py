"""What Kafka says of topics by name, each for itself. The callers judge the errors."""

from __future__ import annotations

import time
from collections.abc import Collection
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient

Answer = TypeVar("Answer")

# Of the time for an answer: for the controller that an admin client knows, which may be gone.
FIRST_SHARE = 1 / 3
SHORTEST_S = 0.1
_NO_ANSWER = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT)


def answered(future: Future[Answer], answer_s: float) -> Answer:
    """Raises KafkaException, also for a broker that hangs: the admin client's own time limit does
    not hold for all questions.
    """
    try:
        return future.result(answer_s)
    except TimeoutError as error:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from error


def described(
    admin: AdminClient,
    names: Collection[str],
    answer_s: float,
    needed: AclOperation | None = None,
) -> dict[str, tuple[str, int] | KafkaError]:
    """The topic id, as librdkafka writes it, and the number of partitions of each topic; or Kafka's
    error in their place: UNKNOWN_TOPIC_OR_PART for a topic that does not exist, and
    TOPIC_AUTHORIZATION_FAILED for one that this user may describe, but that lacks the right
    `needed`. All answers together take `answer_s` at most. Raises KafkaException if the question
    cannot be asked.

    librdkafka asks the controller, and learns only every five minutes that another broker is it
    since the one it knew has died. A list of all topics tells it at once.
    """
    if not names:
        return {}
    until = time.monotonic() + answer_s
    found = _described(admin, names, answer_s * FIRST_SHARE, needed)
    left_s = until - time.monotonic()
    if left_s > SHORTEST_S and any(
        isinstance(answer, KafkaError) and answer.code() in _NO_ANSWER for answer in found.values()
    ):
        with suppress(KafkaException):  # the question itself shows that nobody answers
            admin.list_topics(timeout=left_s / 2)
        found = _described(admin, names, max(SHORTEST_S, until - time.monotonic()), needed)
    return found


def _described(
    admin: AdminClient, names: Collection[str], answer_s: float, needed: AclOperation | None
) -> dict[str, tuple[str, int] | KafkaError]:
    until = time.monotonic() + answer_s
    asked = admin.describe_topics(
        TopicCollection(list(names)),
        include_authorized_operations=needed is not None,
        request_timeout=answer_s,
    )
    found: dict[str, tuple[str, int] | KafkaError] = {}
    for name, future in asked.items():
        try:
            topic = answered(future, max(0.0, until - time.monotonic()))
        except KafkaException as error:
            found[name] = error.args[0]
        else:
            allowed = topic.authorized_operations if needed is not None else None
            if needed is not None and allowed and needed not in allowed:  # old brokers tell none
                why = f"{needed.name} is not allowed"
                found[name] = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, why)
            else:
                found[name] = (str(topic.topic_id), len(topic.partitions))
    return found
