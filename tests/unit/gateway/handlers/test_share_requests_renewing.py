"""RENEW (KIP-1222) in ShareFetch and ShareAcknowledge: the contents of such a request, and
groups that do not permit it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dispatcher.core.model import AckType
from gateway.config.groups import GroupSection
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from tests.rig.node_parts import GROUP, Node
from tests.rig.share_client import (
    ACCEPT,
    Acks,
    Client,
    ack_error,
    error,
    offsets,
    row_error,
    rows,
    story,
)

RENEW = bytes([AckType.RENEW])
LOCK = GroupSection(
    auto_offset_reset="earliest", lock_duration_ms=10_000, backoff_base_ms=0, backoff_max_ms=0
)
OFF = LOCK.model_copy(update={"renew_acknowledge": False})
NO_RECORDS = dict.fromkeys(("MaxBytes", "MinBytes", "MaxRecords", "MaxWaitMs", "BatchSize"), 0)
MIXED: Acks = [(0, 0, ACCEPT), (1, 2, bytes([AckType.RENEW, AckType.RELEASE]))]


async def renewing_fetch(client: Client, acks: dict[int, Acks], **fields: int) -> Message:
    asked: dict[str, Any] = {"IsRenewAck": True, **NO_RECORDS, **fields}
    return await client.fetch(acks=acks, **asked)


@pytest.mark.parametrize("api", [ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE])
def test_a_renewed_lock_runs_from_then_on(api: ApiKey) -> None:
    async def tell(_node: Node, client: Client) -> None:
        client.version = 2
        assert offsets(await client.fetch()) == [0, 1, 2]
        await asyncio.sleep(9)
        if api == ApiKey.SHARE_FETCH:
            answer = await renewing_fetch(client, {0: [(1, 1, RENEW)]})
            assert (ack_error(answer), offsets(answer)) == (ErrorCode.NONE, [])
        else:
            answer = await client.acknowledge({0: [(1, 1, RENEW)]}, IsRenewAck=True)
            assert row_error(answer) == ErrorCode.NONE
        await asyncio.sleep(9)
        assert offsets(await client.fetch()) == [0, 2], "they were not renewed"
        assert row_error(await client.acknowledge({0: [(1, 1, ACCEPT)]})) == ErrorCode.NONE

    story(tell, LOCK)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("types", [RENEW, bytes([AckType.ACCEPT, AckType.RENEW])])
def test_a_renewal_that_the_request_does_not_announce(version: int, types: bytes) -> None:
    async def tell(node: Node, client: Client) -> None:
        client.version = version
        await client.fetch()
        acks = {0: [(0, len(types) - 1, types)]}
        assert row_error(await client.acknowledge(acks)) == ErrorCode.INVALID_REQUEST
        assert ack_error(await client.fetch(acks=acks)) == ErrorCode.INVALID_REQUEST
        assert node.stored[node.window().key] == 0

    story(tell, LOCK)


@pytest.mark.parametrize("name", ["MaxBytes", "MinBytes", "MaxRecords", "MaxWaitMs"])
def test_a_renewal_asks_for_no_records(name: str) -> None:
    async def tell(node: Node, client: Client) -> None:
        client.version = 2
        await client.fetch()
        answer = await renewing_fetch(client, {0: [(0, 0, ACCEPT)]}, **{name: 1})
        assert error(answer) == ErrorCode.INVALID_REQUEST
        assert name in answer["ErrorMessage"]
        assert node.stored[node.window().key] == 0
        client.epoch = 1
        assert error(await renewing_fetch(client, {0: [(0, 0, ACCEPT)]})) == ErrorCode.NONE

    story(tell, LOCK)


def test_a_group_that_permits_no_renewal_refuses_all_of_that_partition() -> None:
    """Kafka takes back the other acknowledgements of the partition, and so none of them
    counts; other partitions, and requests that renew nothing, are as ever.
    """

    async def tell(node: Node, client: Client) -> None:
        client.version = 2
        await client.fetch(partitions=[0, 1])
        answer = await client.acknowledge({0: MIXED, 1: [(0, 0, ACCEPT)]}, IsRenewAck=True)
        assert row_error(answer, 0) == ErrorCode.INVALID_RECORD_STATE
        assert rows(answer)[0]["ErrorMessage"] == (
            "Renewing acquisition locks is not enabled for the group."
        )
        assert row_error(answer, 1) == ErrorCode.NONE
        answer = await renewing_fetch(client, {0: MIXED, 1: [(1, 1, ACCEPT)]})
        assert ack_error(answer, 0) == ErrorCode.INVALID_RECORD_STATE
        assert ack_error(answer, 1) == ErrorCode.NONE
        assert node.stored[node.window(0).key] == 0
        answer = await client.acknowledge({0: [(0, 2, ACCEPT)]})
        assert row_error(answer, 0) == ErrorCode.NONE, "still held"
        assert node.stored[node.window(0).key] == 3

    story(tell, OFF, partitions=2)


def test_renewing_is_permitted_and_forbidden_while_the_group_works() -> None:
    async def tell(node: Node, client: Client) -> None:
        client.version = 2
        await client.fetch()
        for value, expected in (
            ("false", ErrorCode.INVALID_RECORD_STATE),
            ("true", ErrorCode.NONE),
            ("FALSE", ErrorCode.INVALID_RECORD_STATE),
            (None, ErrorCode.NONE),  # Kafka's default, too
        ):
            name = "share.renew.acknowledge.enable"
            node.kafka_config = {} if value is None else {name: value}
            await node.settings.learn(GROUP)
            answer = await client.acknowledge({0: [(0, 2, RENEW)]}, IsRenewAck=True)
            assert row_error(answer) == expected, value

    story(tell, LOCK)
