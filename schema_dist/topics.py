"""Compacted topics of one partition, created where they are missing."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from schema_dist.errors import AwayError
from schema_dist.limits import ANSWER_S_MAX

_CONFIG = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}


def ensure_compacted(client_settings: Mapping[str, str], topic: str) -> None:
    """Creates `topic`, with the broker's replication factor, unless it is there. Blocks. Raises
    AwayError.
    """
    admin = AdminClient({**client_settings, "log_level": 2})
    where = f"{topic} at {client_settings['bootstrap.servers']}"
    try:
        created = admin.create_topics(
            [NewTopic(topic, 1, -1, config=_CONFIG)], request_timeout=ANSWER_S_MAX
        )
        created[topic].result(ANSWER_S_MAX)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise AwayError(f"{where}: {error.args[0].str()}") from error
    except TimeoutError as error:
        raise AwayError(f"{where}: no answer to its creation") from error
