"""The upstream's own ACLs permit looking at, resetting and deleting a Key-Shared group, under the
client's own identity. Kafka's stock tool as three users, against a broker with an authorizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import free_ports
from tests.rig.clients.kafka_tools import SHARE_GROUPS, KafkaTools, table
from tests.rig.clients.wire_client import WireClient
from tests.rig.committed import committed
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import create_topic, produce

pytestmark = pytest.mark.integration

USERS = ("keyway", "node", "owner", "looker", "nobody")
GROUP, TOPIC = "guarded", "guarded-topic"
ANSWER_S_MAX = 30.0
GROUP_DENIED = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)


def login(user: str) -> str:
    return (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{user}" password="{user}-secret"'
    )


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[KafkaCluster, str]]:
    with guarded_kafka() as (cluster, address):
        create_topic(cluster.bootstrap_servers, TOPIC)
        produce(cluster.bootstrap_servers, TOPIC, [(b"k", b"v")] * 5)
        allow(cluster, "owner", AclOperation.READ, AclOperation.DELETE)
        allow(cluster, "looker", AclOperation.DESCRIBE)
        yield cluster, address


@contextmanager
def guarded_kafka(
    libs: Path | None = None, share_version: int = 1
) -> Iterator[tuple[KafkaCluster, str]]:
    """A broker with an authorizer, and the address of its SASL listener."""
    first = free_ports(3)
    plain, controller, guarded = first, first + 1, first + 2
    advertised = f"CLIENT://127.0.0.1:{plain},GUARDED://127.0.0.1:{guarded}"
    passwords = " ".join(f'user_{user}="{user}-secret"' for user in USERS)
    properties = {
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"{advertised},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": advertised,
        "listener.security.protocol.map": (
            "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_PLAINTEXT"
        ),
        "listener.name.guarded.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.guarded.plain.sasl.jaas.config": f"{login('keyway')} {passwords};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:keyway",
    }
    with KafkaCluster(
        1, share_groups=share_version, properties=properties, ports=(plain,), libs=libs
    ) as cluster:
        yield cluster, f"127.0.0.1:{guarded}"


def allow(cluster: KafkaCluster, user: str, *operations: AclOperation) -> None:
    bindings = [
        AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for kind, name in ((ResourceType.GROUP, GROUP), (ResourceType.TOPIC, TOPIC))
        for operation in operations
    ]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for answer in admin.create_acls(bindings).values():
        answer.result(ANSWER_S_MAX)


@pytest.fixture(scope="module")
def gateway(
    guarded: tuple[KafkaCluster, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    process = GatewayProcess(tmp_path_factory.mktemp("acl-gateway"), guarded[1])
    settings = yaml.safe_load(process.config.read_text())
    settings["upstream"]["sasl"] = {"username": "keyway", "password": "keyway-secret"}
    process.config.write_text(yaml.safe_dump(settings))
    with process:
        yield process


Tool = Callable[..., str]


@pytest.fixture
def tool_as(kafka_tools: KafkaTools, gateway: GatewayProcess, tmp_path: Path) -> Tool:
    """kafka-share-groups as a user: everything it says."""

    def run(user: str, *arguments: str) -> str:
        config = tmp_path / f"{user}.properties"
        config.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f"sasl.jaas.config={login(user)};\n"
        )
        as_user = ("--command-config", str(config))
        return kafka_tools.run(SHARE_GROUPS, gateway.bootstrap, *as_user, *arguments)

    return run


RESET = ("--reset-offsets", "--group", GROUP, "--topic", TOPIC, "--execute")
OFFSETS = ("--describe", "--group", GROUP, "--offsets")


def refused(said: str) -> bool:
    return any(
        words in said.lower()
        for words in ("not authorized", "authorization fail", "authorizationexception")
    )


def test_upstream_decides(guarded: tuple[KafkaCluster, str], tool_as: Tool) -> None:
    cluster, _ = guarded

    def position() -> int:
        return committed(cluster, GROUP, TOPIC, 0)[0]

    for user in ("nobody", "looker"):
        assert refused(tool_as(user, *RESET, "--to-latest"))
    assert position() == -1
    assert [row["NEW-OFFSET"] for row in table(tool_as("owner", *RESET, "--to-latest"))] == ["5"]
    assert position() == 5

    assert GROUP not in tool_as("nobody", "--list").split()
    assert GROUP in tool_as("looker", "--list").split()
    assert GROUP in tool_as("owner", "--list").split()
    assert refused(tool_as("nobody", *OFFSETS))
    (row,) = table(tool_as("looker", *OFFSETS))
    assert (row["START-OFFSET"], row["LAG"]) == ("5", "0")

    for user in ("nobody", "looker"):
        tool_as(user, *RESET, "--to-earliest")
        tool_as(user, "--delete-offsets", "--group", GROUP, "--topic", TOPIC)
        tool_as(user, "--delete", "--group", GROUP)
    assert position() == 5
    assert refused(tool_as("looker", *RESET, "--to-earliest"))
    (row,) = table(tool_as("owner", *OFFSETS))
    assert row["START-OFFSET"] == "5", "nothing of it happened"

    said = tool_as("owner", "--delete-offsets", "--group", GROUP, "--topic", TOPIC)
    assert "Successful" in said, said
    assert position() == -1
    said = tool_as("owner", "--delete", "--group", GROUP)
    assert "successful" in said, said
    assert GROUP not in tool_as("owner", "--list").split()


def test_who_does_not_ask_for_the_coordinator_first(
    guarded: tuple[KafkaCluster, str], gateway: GatewayProcess, tool_as: Tool
) -> None:
    """Upstream tells nobody where the group is; the virtual broker itself refuses too."""
    cluster, _ = guarded
    tool_as("owner", *RESET, "--to-latest")
    assert committed(cluster, GROUP, TOPIC, 0)[0] == 5
    topics = [{"TopicName": TOPIC, "Partitions": [{"PartitionIndex": 0, "StartOffset": 1}]}]
    denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
    with WireClient(gateway.address_of(1)) as line:
        authenticate(line, "nobody")
        body = {"GroupId": GROUP, "Topics": topics}
        answer = line.call(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, body)
        assert answer["ErrorCode"] == denied
        body = {"GroupId": GROUP, "Topics": [{"TopicName": TOPIC}]}
        answer = line.call(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, body)
        assert answer["ErrorCode"] == denied
        body = {"Groups": [{"GroupId": GROUP, "Topics": None}]}
        answer = line.call(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, body)
        assert answer["Groups"][0]["ErrorCode"] == denied
        answer = line.call(ApiKey.DELETE_GROUPS, 2, {"GroupsNames": [GROUP]})
        assert answer["Results"][0]["ErrorCode"] == denied
        answer = line.call(ApiKey.LIST_GROUPS, 5, {})
        assert answer["Groups"] == []
    with WireClient(gateway.address_of(1)) as line:
        authenticate(line, "looker")
        body = {"GroupId": GROUP, "Topics": [{"TopicName": TOPIC}]}
        answer = line.call(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, body)
        assert answer["ErrorCode"] == denied
        answer = line.call(ApiKey.DELETE_GROUPS, 2, {"GroupsNames": [GROUP]})
        assert answer["Results"][0]["ErrorCode"] == denied
    assert committed(cluster, GROUP, TOPIC, 0)[0] == 5


ROW = {"PartitionIndex": 0, "CommittedOffset": 1, "CommittedMetadata": ""}
STRANGERS: dict[ApiKey, tuple[int, dict[str, Any]]] = {
    ApiKey.JOIN_GROUP: (5, {"SessionTimeoutMs": 10_000, "ProtocolType": "consumer"}),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        1,
        {"MemberId": "m", "MemberEpoch": 0, "RebalanceTimeoutMs": 1_000, "TopicPartitions": []},
    ),
    ApiKey.STREAMS_GROUP_HEARTBEAT: (
        0,
        {
            "MemberId": "m",
            "MemberEpoch": 0,
            "RebalanceTimeoutMs": 1_000,
            "ProcessId": "p",
            "Topology": {"Epoch": 0, "Subtopologies": []},
            "ActiveTasks": [],
            "StandbyTasks": [],
            "WarmupTasks": [],
        },
    ),
    ApiKey.OFFSET_COMMIT: (9, {"Topics": [{"Name": TOPIC, "Partitions": [ROW]}]}),
    ApiKey.TXN_OFFSET_COMMIT: (
        3,
        {"TransactionalId": "t", "Topics": [{"Name": TOPIC, "Partitions": [ROW]}]},
    ),
    ApiKey.OFFSET_DELETE: (0, {"Topics": [{"Name": TOPIC, "Partitions": [{"PartitionIndex": 0}]}]}),
}


def test_who_has_no_right_does_not_learn_that_the_name_is_taken(
    guarded: tuple[KafkaCluster, str], gateway: GatewayProcess, tool_as: Tool
) -> None:
    """Consumers of another kind, and commits: to nobody it is a name like any other."""
    cluster, _ = guarded
    tool_as("owner", *RESET, "--to-latest")
    assert committed(cluster, GROUP, TOPIC, 0)[0] == 5
    said: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for user in ("nobody", "looker", "owner"):
        with WireClient(gateway.address_of(1)) as line:
            authenticate(line, user)
            for name in (GROUP, "no-such"):
                said[user, name] = [
                    line.call(api, version, {**body, "GroupId": name})
                    for api, (version, body) in STRANGERS.items()
                ]
    assert said["nobody", GROUP] == said["nobody", "no-such"]
    assert str(said["nobody", GROUP]).count(f"'ErrorCode': {GROUP_DENIED}") == 5
    assert str(said["looker", GROUP]).count(f"'ErrorCode': {GROUP_DENIED}") == 5
    inconsistent, *others = said["owner", GROUP]
    assert inconsistent["ErrorCode"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    not_found = f"'ErrorCode': {int(ErrorCode.GROUP_ID_NOT_FOUND)}"
    assert all(not_found in str(answer) for answer in others), others
    assert committed(cluster, GROUP, TOPIC, 0)[0] == 5


JOIN = {
    "GroupId": GROUP,
    "MemberId": "AAAAAAAAAAAAAAAAAAAAAA",
    "MemberEpoch": 0,
    "RackId": None,
    "SubscribedTopicNames": [TOPIC],
}
FETCH = {
    "GroupId": GROUP,
    "MemberId": JOIN["MemberId"],
    "ShareSessionEpoch": 0,
    "MaxWaitMs": 0,
    "MinBytes": 1,
    "MaxBytes": 1_000,
    "MaxRecords": 10,
    "BatchSize": 10,
    "Topics": [],
}
ACKNOWLEDGE = {name: FETCH[name] for name in ("GroupId", "MemberId", "Topics")}
ASKED: dict[ApiKey, dict[str, Any]] = {
    ApiKey.SHARE_GROUP_HEARTBEAT: JOIN,
    ApiKey.SHARE_FETCH: FETCH,
    ApiKey.SHARE_ACKNOWLEDGE: {**ACKNOWLEDGE, "ShareSessionEpoch": 1},
    ApiKey.SHARE_GROUP_DESCRIBE: {"GroupIds": [GROUP]},
    ApiKey.LIST_GROUPS: {},
    ApiKey.DELETE_GROUPS: {"GroupsNames": [GROUP]},
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: {"Groups": [{"GroupId": GROUP, "Topics": None}]},
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: {"GroupId": GROUP, "Topics": []},
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: {"GroupId": GROUP, "Topics": []},
}
VERSIONS = {
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.LIST_GROUPS: 5,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: 0,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: 0,
}


@pytest.mark.parametrize("api", ASKED)
def test_who_has_not_said_who_it_is_hears_nothing(gateway: GatewayProcess, api: ApiKey) -> None:
    """The gateway's own answers go to clients that upstream knows. An upstream that wants SASL ends
    the connection of a client that asks for anything else first.
    """
    with (
        WireClient(gateway.address_of(1)) as line,
        pytest.raises((ConnectionError, EOFError)),
    ):
        line.call(api, VERSIONS.get(api, 1), ASKED[api])


@pytest.mark.parametrize(
    ("user", "error"),
    [
        ("nobody", ErrorCode.GROUP_AUTHORIZATION_FAILED),
        ("looker", ErrorCode.GROUP_AUTHORIZATION_FAILED),
        ("owner", ErrorCode.NONE),
    ],
)
def test_who_may_join(gateway: GatewayProcess, user: str, error: ErrorCode) -> None:
    with WireClient(gateway.address_of(1)) as line:
        authenticate(line, user)
        assert line.call(ApiKey.SHARE_GROUP_HEARTBEAT, 1, JOIN)["ErrorCode"] == error
        fetched = line.call(ApiKey.SHARE_FETCH, 1, FETCH)
        assert fetched["ErrorCode"] == error
        if error == ErrorCode.NONE:
            left = line.call(ApiKey.SHARE_GROUP_HEARTBEAT, 1, {**JOIN, "MemberEpoch": -1})
            assert left["ErrorCode"] == ErrorCode.NONE


def authenticate(line: WireClient, user: str) -> None:
    """SASL PLAIN."""
    answer = line.call(ApiKey.SASL_HANDSHAKE, 1, {"Mechanism": "PLAIN"})
    assert answer["ErrorCode"] == 0, answer
    token = f"\0{user}\0{user}-secret".encode()
    answer = line.call(ApiKey.SASL_AUTHENTICATE, 2, {"AuthBytes": token})
    assert answer["ErrorCode"] == 0, answer
