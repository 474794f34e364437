"""Ends all writing to a target that a link leaves.

Each partition gets a transaction with the id that its tasks use. Opening it ends the tasks'
transactions and keeps them from committing. In it the position is committed as it stands, with the
generation of the switch. A task that comes later, of this process or of one that was frozen, finds
that generation and stops.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from confluent_kafka import Consumer, KafkaException, TopicPartition

from keyway.kafka.transactions import opened
from spark.links.link import Link
from spark.streaming.core.survey import Position
from spark.streaming.kafka import KafkaSide, committing, position_of
from spark.streaming.limits import ANSWER_S, FENCED_AT_ONCE, QUIET
from spark.streaming.orders import Partition


def fence(
    side: KafkaSide, link: Link, places: Mapping[Partition, Position], transaction_timeout_ms: int
) -> None:
    """`places`: by the target's topics, the position of one that has none there, and the generation
    of the switch. Raises KafkaException at the first that fails; the others that wait are left.
    """
    with side.consumer(link.group) as consumer, ThreadPoolExecutor(FENCED_AT_ONCE) as pool:
        work = [
            pool.submit(_fence, side, link, consumer, place, position, transaction_timeout_ms)
            for place, position in places.items()
        ]
        try:
            for running in work:
                running.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _fence(
    side: KafkaSide,
    link: Link,
    consumer: Consumer,
    place: Partition,
    begun: Position,
    transaction_timeout_ms: int,
) -> None:
    settings = {
        **side.settings,
        "transactional.id": link.transactional_id(*place),
        "transaction.timeout.ms": transaction_timeout_ms,
        "log_level": QUIET,
    }
    producer = opened(settings, place[0], ANSWER_S)
    (found,) = consumer.committed([TopicPartition(*place)], ANSWER_S)
    if found.error is not None:
        raise KafkaException(found.error)
    position = begun
    if found.offset >= 0:
        stood = position_of(found)
        position = replace(stood, generation=max(stood.generation, begun.generation))
    marked = [committing(place, position)]
    producer.begin_transaction()
    producer.send_offsets_to_transaction(marked, consumer.consumer_group_metadata(), ANSWER_S)
    producer.commit_transaction(ANSWER_S)
