"""For every API two clients get through the gateway, which authenticates them, what their users get
at the broker itself: each answer to the same request is the same, but for what is another at each
call.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.core.cluster.scram import ScramClient
from gateway.core.wire import schema as s
from gateway.core.wire.apis import APIS, ApiKey
from gateway.core.wire.schema import Field, Message
from tests.rig.clients.wire_client import WireClient
from tests.rig.identified_node import (
    CLIENTS,
    IdentifiedNode,
    gate_password,
    guarded_kafka,
    identified_node,
    kafka_password,
    kafka_user,
)
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

SHA512 = "SCRAM-SHA-512"
# Of the login itself, and those that tell each client what the gateway offers. A second heartbeat
# of a member is answered otherwise than its first one, whoever asks.
NOT_COMPARED = {
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.API_VERSIONS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
}
# Another one at each call, or the gateway's own address.
VARIES = frozenset(
    {
        *("ThrottleTimeMs", "MemberId", "MemberEpoch", "SessionId", "ProducerId", "ProducerEpoch"),
        *("Host", "Port", "LeaderEpoch", "CurrentTimestampMs", "LastCaughtUpTimestamp"),
        *(
            "ClientInstanceId",
            "SubscriptionId",
            "LastFetchTimestamp",
            "TotalBytes",
            "UsableBytes",
            "LogEndOffset",
            "HighWatermark",
        ),
    }
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdentifiedNode]:
    """Before a Kafka of its own: requests of every kind go there."""
    with (
        guarded_kafka() as guarded,
        identified_node(tmp_path_factory.mktemp("equivalence"), guarded) as node,
    ):
        yield node


def logged_in(address: str, user: str, password: str) -> WireClient:
    line = WireClient(address)
    scram = ScramClient("sha512", user, password, secrets.token_hex(8))
    assert line.call(ApiKey.SASL_HANDSHAKE, 1, {"Mechanism": SHA512})["ErrorCode"] == 0
    challenge = line.call(ApiKey.SASL_AUTHENTICATE, 2, {"AuthBytes": scram.first()})
    keys = scram.source(challenge["AuthBytes"]).keys()
    final, _ = scram.final(challenge["AuthBytes"], keys)
    assert line.call(ApiKey.SASL_AUTHENTICATE, 2, {"AuthBytes": final})["ErrorCode"] == 0
    return line


def filled(fields: list[Field], version: int, name: str) -> Message:
    """A request about what has this name: every text is it, every list has one element."""
    message: Message = {}
    for field in fields:
        if not field.versions.has(version) or field.tag >= 0:
            continue
        match field.kind:
            case s.STRING:
                message[field.name] = name
            case s.STRINGS:
                message[field.name] = [name]
            case s.I32S:
                message[field.name] = [0]
            case s.STRUCT:
                message[field.name] = filled(field.fields, version, name)
            case s.STRUCTS:
                message[field.name] = [filled(field.fields, version, name)]
            case _:
                continue  # the default
    return message


def settled(value: Any) -> Any:
    """Without what varies."""
    if isinstance(value, dict):
        return {key: settled(inner) for key, inner in value.items() if key not in VARIES}
    if isinstance(value, str) and value.startswith("Request Request("):
        return "the broker's own words for this very request"
    if isinstance(value, list):
        return [settled(inner) for inner in value]
    return value


def compared(node: IdentifiedNode) -> list[tuple[int, int]]:
    """The APIs that clients are offered and upstream has, in their newest common versions."""
    asked = {"ClientSoftwareName": "tests", "ClientSoftwareVersion": "1"}
    with WireClient(node.guarded) as line:
        theirs = {
            api["ApiKey"]: api["MaxVersion"]
            for api in line.call(ApiKey.API_VERSIONS, 3, asked)["ApiKeys"]
        }
    with WireClient(node.sasl) as line:
        ours = {
            api["ApiKey"]: api["MaxVersion"]
            for api in line.call(ApiKey.API_VERSIONS, 3, asked)["ApiKeys"]
        }
    share = {key for key in ours if ApiKey(key).name.find("SHARE") >= 0}
    keys = sorted(ours.keys() & theirs.keys() & APIS.keys() - NOT_COMPARED - share)
    return [(key, min(ours[key], theirs[key], APIS[key].max_version)) for key in keys]


def test_each_answer_is_that_of_the_broker(node: IdentifiedNode) -> None:
    unlike: list[object] = []
    told: dict[str, dict[str, Any]] = {client: {} for client in CLIENTS}
    wait_until(lambda: coordinator_found(node), what="a coordinator", deadline_s=60.0)
    apis = compared(node)
    assert len(apis) >= 25, apis
    for key, version in apis:
        if key == ApiKey.PRODUCE:
            continue  # without records it has no answer worth comparing
        request = filled(APIS[key].request.fields, version, "anna")
        for client in CLIENTS:
            # A connection each: an API that ends one ends both.
            with logged_in(node.sasl, client, gate_password(client)) as line:
                through = _answer(line, key, version, request)
            with logged_in(node.guarded, kafka_user(client), kafka_password(client)) as line:
                direct = _answer(line, key, version, request)
            if through != direct:
                unlike.append((ApiKey(key).name, client, through, direct))
            told[client][ApiKey(key).name] = through
    assert not unlike
    differ = [name for name in told["anna"] if told["anna"][name] != told["bert"][name]]
    assert len(differ) >= 8, ("the two users have different rights", differ)


def coordinator_found(node: IdentifiedNode) -> bool:
    """The first question about any group makes the topic of offsets, and has another answer."""
    with logged_in(node.guarded, kafka_user("anna"), kafka_password("anna")) as line:
        asked: Message = {"KeyType": 0, "CoordinatorKeys": ["anna"]}
        (found,) = line.call(ApiKey.FIND_COORDINATOR, 4, asked)["Coordinators"]
        return bool(found["ErrorCode"] == 0)


def _answer(line: WireClient, key: int, version: int, request: Message) -> Any:
    try:
        return settled(line.call(key, version, request))
    except ConnectionError:
        return "closed"
