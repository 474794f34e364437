"""Requests that name brokers of several slots: upstream hears its own ids, the client its words."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from gateway.core.cluster.slots import Slots
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import decode_response, encode_request
from gateway.core.wire.frames import parse_request_header, request_frame
from gateway.core.wire.schema import Message
from gateway.handlers.list_groups import list_groups
from gateway.handlers.naming_brokers import naming_brokers
from gateway.listen.answering import Client, Request
from gateway.upstream.errors import Unreachable

TWO = Slots(2)


@dataclass
class Connection:
    answer: Message | None
    broker_id: int | None = None
    asked: list[Message] = field(default_factory=list)
    aborted: bool = False

    async def ask_upstream(self, _key: int, _version: int, body: Message) -> Message:
        self.asked.append(body)
        if self.answer is None:
            raise Unreachable("gone")
        return self.answer

    def abort(self) -> None:
        self.aborted = True


def request(connection: Connection, key: int, version: int, body: Message) -> Request:
    payload = request_frame(key, version, 1, "admin", encode_request(key, version, body))[4:]
    return Request(parse_request_header(payload), payload, cast(Client, connection))


def altered(connection: Connection) -> bytes:
    row = {"ResourceType": 4, "ResourceName": "1000001", "Configs": []}
    asked = request(connection, ApiKey.ALTER_CONFIGS, 2, {"Resources": [row]})
    return asyncio.run(naming_brokers(TWO, asked))


def test_upstream_is_asked_for_its_broker_and_the_client_is_answered_as_it_asked() -> None:
    answer: dict[str, Any] = {"Responses": [{"ResourceType": 4, "ResourceName": "1"}]}
    connection = Connection(answer)
    said = decode_response(ApiKey.ALTER_CONFIGS, 2, altered(connection))
    assert connection.asked[0]["Resources"][0]["ResourceName"] == "1"
    assert said["Responses"][0]["ResourceName"] == "1000001"


def test_a_client_whose_request_may_have_been_lost_is_sent_away() -> None:
    connection = Connection(None)
    assert altered(connection) == b""
    assert connection.aborted


@pytest.mark.parametrize("broker_id", [1_000_001, 2_000_001])
def test_a_further_slot_lists_no_groups(broker_id: int) -> None:
    connection = Connection(None, broker_id)
    asked = request(connection, ApiKey.LIST_GROUPS, 5, {})
    nothing = asyncio.run(list_groups(cast(Any, None), cast(Any, None), Slots(3), asked))
    assert decode_response(ApiKey.LIST_GROUPS, 5, nothing)["Groups"] == []
    assert not connection.asked
