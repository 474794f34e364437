"""What producers ask a broker for, which creates a topic for whoever lets it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from keyway.kafka.compacted import CompactedTopic
from keyway.kafka.transactions import opened
from spark.streaming.writers import Writer
from tests.rig.fake_broker import FakeBroker, ReceivedRequest, speaking

TOPIC = "gone"
VERSIONS = {
    ApiKey.API_VERSIONS: 3,
    ApiKey.METADATA: 12,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.PRODUCE: 9,
}
Work = Callable[[dict[str, Any]], None]


def transactional(settings: dict[str, Any]) -> None:
    with pytest.raises(KafkaException):
        opened({**settings, "transactional.id": "one"}, TOPIC, 0.5)


def task(settings: dict[str, Any]) -> None:
    """Of at-least-once, whose producer opens nothing."""
    writer = Writer(settings, "one", TOPIC, 1.0, exactly_once=False)
    writer.producer.produce(TOPIC, b"1")
    with pytest.raises(KafkaException):
        writer.flush()


def state(settings: dict[str, Any]) -> None:
    topic = CompactedTopic(settings, TOPIC, answer_s=0.5)
    with pytest.raises(KafkaException):
        topic.write([(b"key", b"value")])
    topic.close()


@pytest.mark.parametrize("work", [transactional, task, state])
def test_a_topic_that_is_gone_is_not_made_anew(work: Work) -> None:
    """The broker would make it with its own partitions and settings: a state topic not compacted,
    a copy whose records change their partition.
    """
    allowed: list[bool] = []

    async def bounded() -> None:
        broker: FakeBroker

        async def metadata(request: ReceivedRequest) -> bytes:
            if TOPIC in [topic["Name"] for topic in request.body["Topics"] or ()]:
                allowed.append(request.body["AllowAutoTopicCreation"])
            unknown = {"ErrorCode": int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "Name": TOPIC}
            return request.response({**broker.metadata(), "Topics": [unknown]})

        async def nothing(_: ReceivedRequest) -> None:
            """The topic is asked for before, and again meanwhile."""

        broker = speaking(
            {key: nothing for key in VERSIONS if key != ApiKey.API_VERSIONS}
            | {ApiKey.METADATA: metadata},
            {int(key): (0, high) for key, high in VERSIONS.items()},
        )
        async with broker.running():
            settings = {"bootstrap.servers": f"127.0.0.1:{broker.port}", "log_level": 2}
            await asyncio.to_thread(work, settings)

    asyncio.run(bounded())
    assert allowed
    assert not any(allowed)
