"""Admin requests that name brokers, between clients and upstream, where brokers have several slots.

A client that takes a broker's id from Metadata may name a virtual broker of any slot. Upstream is
asked for the broker, and the client is answered under the name that it used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gateway.core.cluster.slots import Slots
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import decode_request, encode_request
from gateway.core.wire.decode import PASSING_ROW_ELEMENTS
from gateway.core.wire.errors import WireError
from gateway.core.wire.frames import parse_request_header
from gateway.core.wire.schema import Message

_BROKER: Final = 4  # ConfigResource.Type
_BROKER_LOGGER: Final = 8

# Besides IncrementalAlterConfigs and DescribeConfigs, whose ways are their own.
NAMING_BROKERS: Final = frozenset(
    {
        ApiKey.ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.CREATE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.UNREGISTER_BROKER,
    }
)


def named_for_upstream(key: int, body: Message, slots: Slots) -> dict[str, str]:
    """Changes the request. The answer: names of config resources as the client knows them, by
    upstream's.
    """
    if slots.count == 1:
        return {}
    if key == ApiKey.UNREGISTER_BROKER:
        body["BrokerId"] = slots.upstream(body["BrokerId"])
    for row, field in _lists_of_brokers(key, body):
        if row[field] is not None:
            row[field] = [slots.upstream(broker) for broker in row[field]]
    used: dict[str, str] = {}
    for resource in body.get("Resources", ()):
        name = upstream_name(resource, slots)
        if name is not None:
            used[name] = resource["ResourceName"]
            resource["ResourceName"] = name
    return used


def upstream_name(resource: Message, slots: Slots) -> str | None:
    """Upstream's name of the broker, if the config resource is a virtual broker under an id of
    Keyway's own.
    """
    name: str = resource["ResourceName"]
    if resource["ResourceType"] not in (_BROKER, _BROKER_LOGGER) or not name.isdecimal():
        return None
    return str(slots.upstream(int(name))) if slots.is_extra(int(name)) else None


def named_for_client(rows: list[Message], used: dict[str, str]) -> None:
    """Changes the rows of an answer about config resources."""
    for row in rows:
        if row["ResourceType"] in (_BROKER, _BROKER_LOGGER):
            row["ResourceName"] = used.get(row["ResourceName"], row["ResourceName"])


def _lists_of_brokers(key: int, body: Message) -> Iterator[tuple[Message, str]]:
    if key == ApiKey.ALTER_PARTITION_REASSIGNMENTS:
        for topic in body["Topics"]:
            for partition in topic["Partitions"]:
                yield partition, "Replicas"
    elif key in (ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS):
        for topic in body["Topics"]:
            for assignment in topic["Assignments"] or ():
                yield assignment, "BrokerIds"


def configs_for_upstream(version: int, payload: bytes, slots: Slots) -> tuple[bytes, bool]:
    """A DescribeConfigs request as upstream is to have it, and whether it asks about brokers: the
    answer to any other shows no address. One that is malformed goes on for upstream to refuse it.
    """
    try:
        body_at = parse_request_header(payload).body_at
        message = decode_request(
            ApiKey.DESCRIBE_CONFIGS, version, payload, body_at, PASSING_ROW_ELEMENTS
        )
    except WireError:
        return payload, True
    if named_for_upstream(ApiKey.DESCRIBE_CONFIGS, message, slots):
        body = encode_request(ApiKey.DESCRIBE_CONFIGS, version, message)
        return payload[:body_at] + body, True
    return payload, any(row["ResourceType"] == _BROKER for row in message["Resources"])
