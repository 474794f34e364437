"""Key-Shared groups in the hands of admins: Kafka's own tools, upstream's view, groups that only
the store or Kafka remembers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from shutil import rmtree

import pytest

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.kafka_tools import CONSUMER_GROUPS, GROUPS, SHARE_GROUPS, KafkaTools, table
from tests.rig.clients.share_lines import Delivery
from tests.rig.clients.share_members import ShareHost, consume_all
from tests.rig.clients.wire_client import WireClient
from tests.rig.committed import commit_plain, committed, wait_for_committed
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import create_topic, produce
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

Topic = Callable[..., str]
Names = Callable[[str], str]
NOTHING_COMMITTED = -1


@pytest.fixture(scope="module")
def gateway(
    kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway of this file alone, because some tests restart it."""
    with GatewayProcess(
        tmp_path_factory.mktemp("admin-gateway"),
        kafka.bootstrap_servers,
        groups=[{"match": "*", "auto_offset_reset": "earliest"}],
        state={"commit_interval_ms": 500},
    ) as process:
        yield process


Tool = Callable[..., str]


@pytest.fixture
def share_tool(kafka_tools: KafkaTools, gateway: GatewayProcess) -> Tool:
    """kafka-share-groups against the gateway: everything it says, refusals too."""

    def run(*arguments: str, tool: str = SHARE_GROUPS) -> str:
        return kafka_tools.run(tool, gateway.bootstrap, *arguments)

    return run


def write(gateway: GatewayProcess, topic: str, count: int, *, partition: int = 0) -> None:
    records = [(b"key-%d" % (at % 7), b"%d" % at) for at in range(count)]
    produce(gateway.bootstrap, topic, records, partition=partition)


def consume(
    host: ShareHost, gateway: GatewayProcess, group: str, topic: str, wanted: set[int]
) -> list[Delivery]:
    """A member that takes exactly these offsets of partition 0 and leaves."""
    member = host.member(gateway.bootstrap, group, [topic])
    consume_all([member], {(topic, 0, offset) for offset in wanted})
    member.close()
    return member.deliveries


def offsets_of(deliveries: list[Delivery]) -> list[int]:
    return sorted(delivery.offset for delivery in deliveries)


def test_stock_tool_from_list_to_delete(
    gateway: GatewayProcess,
    kafka: KafkaCluster,
    topic: Topic,
    fresh_name: Names,
    share_tool: Tool,
    librdkafka_host: ShareHost,
) -> None:
    """kafka-share-groups all the way, as against a broker with share groups of its own."""
    name, group = topic(partitions=2), fresh_name("tool")
    write(gateway, name, 20)
    member = librdkafka_host.member(gateway.bootstrap, group, [name])
    consume_all([member], {(name, 0, offset) for offset in range(20)})
    assert f"{group} Stable" in " ".join(share_tool("--list", "--state").split())
    assert group in share_tool("--list").split()
    (row,) = table(share_tool("--describe", "--group", group, "--members"))
    assert row["CLIENT-ID"] == member.name
    refused = share_tool(
        "--reset-offsets", "--group", group, "--topic", name, "--to-earliest", "--execute"
    )
    assert "not empty" in refused or "NON_EMPTY" in refused, refused
    refused = share_tool("--delete", "--group", group)
    assert "not empty" in refused.lower(), refused
    member.close()
    state = share_tool("--describe", "--group", group, "--state").split()
    assert "Empty 0" in " ".join(state), state
    rows = table(share_tool("--describe", "--group", group, "--offsets"))
    assert {row["PARTITION"]: (row["START-OFFSET"], row["LAG"]) for row in rows} == {
        "0": ("20", "0"),
        "1": ("0", "0"),
    }

    planned = share_tool(
        "--reset-offsets", "--group", group, "--topic", f"{name}:0", "--to-earliest", "--dry-run"
    )
    assert [row["NEW-OFFSET"] for row in table(planned)] == ["0"]
    wait_for_committed(kafka, group, name, 0, 20)
    share_tool(
        "--reset-offsets", "--group", group, "--topic", f"{name}:0", "--to-earliest", "--execute"
    )
    assert committed(kafka, group, name, 0)[0] == 0
    again = consume(librdkafka_host, gateway, group, name, set(range(20)))
    assert offsets_of(again) == list(range(20))
    assert {delivery.delivery_count for delivery in again} == {1}

    write(gateway, name, 10)
    share_tool("--reset-offsets", "--group", group, "--all-topics", "--to-latest", "--execute")
    assert committed(kafka, group, name, 0)[0] == 30
    write(gateway, name, 5)
    rows = table(share_tool("--describe", "--group", group))
    assert {row["PARTITION"]: row["LAG"] for row in rows} == {"0": "5", "1": "0"}
    rest = consume(librdkafka_host, gateway, group, name, set(range(30, 35)))
    assert offsets_of(rest) == list(range(30, 35))

    said = share_tool("--delete-offsets", "--group", group, "--topic", name)
    assert "Successful" in said, said
    assert committed(kafka, group, name, 0)[0] == NOTHING_COMMITTED
    assert not table_or_nothing(share_tool("--describe", "--group", group, "--offsets"))
    anew = consume(librdkafka_host, gateway, group, name, set(range(35)))
    assert offsets_of(anew) == list(range(35)), "as auto_offset_reset says: from the earliest"

    wait_for_committed(kafka, group, name, 0, 35)
    said = share_tool("--delete", "--group", group)
    assert "successful" in said, said
    assert group not in share_tool("--list").split()
    assert committed(kafka, group, name, 0)[0] == NOTHING_COMMITTED
    assert "not found" in share_tool("--describe", "--group", group)
    reborn = consume(librdkafka_host, gateway, group, name, set(range(35)))
    assert offsets_of(reborn) == list(range(35)), "nothing of the deleted group is left"


def table_or_nothing(text: str) -> list[dict[str, str]]:
    return table(text) if "GROUP" in text else []


def test_a_reset_creates_the_group_and_its_start(
    gateway: GatewayProcess,
    topic: Topic,
    fresh_name: Names,
    share_tool: Tool,
    java_host: ShareHost,
) -> None:
    """As Kafka does: a position set before the first member ever came."""
    name, group = topic(), fresh_name("early")
    write(gateway, name, 10)
    share_tool("--reset-offsets", "--group", group, "--topic", name, "--to-latest", "--execute")
    write(gateway, name, 3)
    assert offsets_of(consume(java_host, gateway, group, name, {10, 11, 12})) == [10, 11, 12]


@pytest.mark.parametrize("lost", ["memory", "store"])
def test_groups_that_are_not_in_memory(
    gateway: GatewayProcess,
    kafka: KafkaCluster,
    topic: Topic,
    fresh_name: Names,
    share_tool: Tool,
    librdkafka_host: ShareHost,
    lost: str,
) -> None:
    """After a restart only the store knows the windows; after a loss of it only Kafka does."""
    name, group = topic(), fresh_name(f"without-{lost}")
    write(gateway, name, 30)
    member = librdkafka_host.member(gateway.bootstrap, group, [name], explicit=True)
    first = member.poll_count(7)  # one of each key
    kept = [delivery for delivery in first if delivery.offset in (0, 2, 3)]
    member.acknowledge("ACCEPT", kept)
    member.acknowledge("RELEASE", [delivery for delivery in first if delivery not in kept])
    member.commit()
    member.close()
    wait_for_committed(kafka, group, name, 0, 1)
    gateway.stop()
    if lost == "store":
        rmtree(gateway.state_directory)
    gateway.start()

    assert group in share_tool("--list").split()
    (row,) = table(share_tool("--describe", "--group", group, "--offsets"))
    assert (row["START-OFFSET"], row["LAG"]) == ("1", "27"), "29 less the two settled behind it"
    share_tool("--reset-offsets", "--group", group, "--topic", name, "--to-latest", "--execute")
    (row,) = table(share_tool("--describe", "--group", group, "--offsets"))
    assert (row["START-OFFSET"], row["LAG"]) == ("30", "0")
    write(gateway, name, 2)
    assert offsets_of(consume(librdkafka_host, gateway, group, name, {30, 31})) == [30, 31]
    assert "successful" in share_tool("--delete", "--group", group)
    assert committed(kafka, group, name, 0)[0] == NOTHING_COMMITTED


def test_each_group_is_listed_once(
    gateway: GatewayProcess,
    kafka: KafkaCluster,
    topic: Topic,
    fresh_name: Names,
    share_tool: Tool,
    librdkafka_host: ShareHost,
) -> None:
    """kafka-groups: the Key-Shared group as share, a plain one as upstream says;
    kafka-consumer-groups lists only the plain one, and shows the lag of both.
    """
    name, ours, plain = topic(), fresh_name("once"), fresh_name("plain")
    write(gateway, name, 8)
    consume(librdkafka_host, gateway, ours, name, set(range(8)))
    wait_for_committed(kafka, ours, name, 0, 8)
    with WireClient(gateway.address_of(1)) as line:
        commit_plain(line, plain, name)
        listed = line.call(ApiKey.LIST_GROUPS, 4, {})
        rows = [row for row in listed["Groups"] if row["GroupId"] in (ours, plain)]
        assert sorted(row["GroupId"] for row in rows) == [ours, plain]
        typed = line.call(ApiKey.LIST_GROUPS, 5, {"TypesFilter": ["share"]})
        assert ours in [row["GroupId"] for row in typed["Groups"]]
        assert plain not in [row["GroupId"] for row in typed["Groups"]]
        typed = line.call(ApiKey.LIST_GROUPS, 5, {"TypesFilter": ["classic"]})
        assert ours not in [row["GroupId"] for row in typed["Groups"]]
        assert plain in [row["GroupId"] for row in typed["Groups"]]
        stable = line.call(ApiKey.LIST_GROUPS, 5, {"StatesFilter": ["Stable"]})
        assert ours not in [row["GroupId"] for row in stable["Groups"]]
    listing = [row for row in table(share_tool("--list", tool=GROUPS)) if row["GROUP"] == ours]
    assert [row["TYPE"] for row in listing] == ["Share"]
    consumers = share_tool("--list", tool=CONSUMER_GROUPS).split()
    assert plain in consumers
    assert ours not in consumers
    rows = table(share_tool("--describe", "--group", ours, tool=CONSUMER_GROUPS))
    assert [(row["CURRENT-OFFSET"], row["LAG"]) for row in rows] == [("8", "0")]


def alter(line: WireClient, group: str, topic: str, partition: int, offset: int) -> int:
    """The error of the group, or else that of the partition."""
    part = {"PartitionIndex": partition, "StartOffset": offset}
    body = {"GroupId": group, "Topics": [{"TopicName": topic, "Partitions": [part]}]}
    answer = line.call(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, body)
    if answer["ErrorCode"]:
        return int(answer["ErrorCode"])
    return int(answer["Responses"][0]["Partitions"][0]["ErrorCode"])


def test_what_the_gateway_refuses_by_itself(
    gateway: GatewayProcess, topic: Topic, fresh_name: Names, librdkafka_host: ShareHost
) -> None:
    """The tool asks first and never sends these: here they are sent."""
    name, group, plain = topic(), fresh_name("refused"), fresh_name("plain")
    write(gateway, name, 4)
    member = librdkafka_host.member(gateway.bootstrap, group, [name])
    consume_all([member], {(name, 0, offset) for offset in range(4)})
    with WireClient(gateway.address_of(1)) as line:
        assert alter(line, group, name, 0, 0) == ErrorCode.NON_EMPTY_GROUP
        answer = line.call(
            ApiKey.DELETE_SHARE_GROUP_OFFSETS,
            0,
            {"GroupId": group, "Topics": [{"TopicName": name}]},
        )
        assert answer["ErrorCode"] == ErrorCode.NON_EMPTY_GROUP
        answer = line.call(ApiKey.DELETE_GROUPS, 2, {"GroupsNames": [group, "nobody"]})
        assert {row["GroupId"]: row["ErrorCode"] for row in answer["Results"]} == {
            group: ErrorCode.NON_EMPTY_GROUP,
            "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        write(gateway, name, 2)
        consume_all([member], {(name, 0, offset) for offset in (4, 5)})  # it was left in peace
        member.close()
        assert alter(line, group, name, 1, 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert alter(line, group, "no-such-topic", 0, 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert alter(line, group, name, 0, -1) == ErrorCode.INVALID_REQUEST
        assert alter(line, "", name, 0, 0) == ErrorCode.INVALID_GROUP_ID
        commit_plain(line, plain, name)
        assert alter(line, plain, name, 0, 0) == ErrorCode.GROUP_ID_NOT_FOUND, "not a share group"
        described = line.call(
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
            1,
            {
                "Groups": [
                    {"GroupId": "nobody", "Topics": None},
                    {"GroupId": plain, "Topics": None},
                    {
                        "GroupId": group,
                        "Topics": [
                            {"TopicName": name, "Partitions": [0, 7]},
                            {"TopicName": "no-such-topic", "Partitions": [0]},
                        ],
                    },
                ]
            },
        )["Groups"]
    assert [row["ErrorCode"] for row in described] == [69, 69, 0]
    known, unknown = described[2]["Topics"]
    assert [(row["StartOffset"], row["Lag"], row["ErrorCode"]) for row in known["Partitions"]] == [
        (6, 0, 0),
        (-1, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert unknown["Partitions"][0]["ErrorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.deep
def test_two_brokers_list_a_group_once(
    kafka_pair: KafkaCluster, fresh_name: Names, tmp_path: Path, librdkafka_host: ShareHost
) -> None:
    """Every broker is asked for its groups; only the coordinator lists and deletes this one."""
    name, groups = fresh_name("paired"), [fresh_name("pair") for _ in range(4)]
    create_topic(kafka_pair.bootstrap_servers, name)
    with GatewayProcess(
        tmp_path,
        kafka_pair.bootstrap_servers,
        groups=[{"match": "*", "auto_offset_reset": "earliest"}],
        state={"commit_interval_ms": 500},
    ) as pair:
        write(pair, name, 3)
        for group in groups:
            consume(librdkafka_host, pair, group, name, {0, 1, 2})
            wait_until(
                partial(is_listed_once, pair, group),
                what="listed by one broker",
                deadline_s=20,
            )
        coordinators = {group: listed(pair, group)[1] for group in groups}
        for group, (coordinator,) in coordinators.items():
            with WireClient(pair.address_of(3 - coordinator)) as other:
                answer = other.call(ApiKey.DELETE_GROUPS, 2, {"GroupsNames": [group]})
                assert answer["Results"][0]["ErrorCode"] == ErrorCode.NOT_COORDINATOR
            assert listed(pair, group) == (1, [coordinator])
            with WireClient(pair.address_of(coordinator)) as line:
                answer = line.call(ApiKey.DELETE_GROUPS, 2, {"GroupsNames": [group]})
                assert answer["Results"][0]["ErrorCode"] == 0
            assert listed(pair, group) == (0, [])


def is_listed_once(gateway: GatewayProcess, group: str) -> bool:
    return listed(gateway, group)[0] == 1


def listed(gateway: GatewayProcess, group: str) -> tuple[int, list[int]]:
    """How often it is listed by both brokers, and by which."""
    brokers = []
    for broker in (1, 2):
        with WireClient(gateway.address_of(broker)) as line:
            answer = line.call(ApiKey.LIST_GROUPS, 5, {})
            brokers += [broker for row in answer["Groups"] if row["GroupId"] == group]
    return len(brokers), brokers
