"""Dead letters that cannot be written: their keys wait, everything else flows, operators see why.

Scenario 19 with stock clients: the topic is missing, takes no record so large, or has no leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from gateway.core.wire.apis import ApiKey
from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.order import assert_never_backwards
from tests.rig.clients.share_members import ShareHost, ShareMember
from tests.rig.clients.wire_client import WireClient
from tests.rig.gateway_process import GatewayProcess, Settings
from tests.rig.kafka import create_topic, produce, read_partition
from tests.rig.operating import keyway, windows_of
from tests.rig.patience import wait_until

pytestmark = [pytest.mark.deep, pytest.mark.integration]

Names = Callable[[str], str]
MISSING, SMALL, LEADERLESS = "letters-missing", "letters-small", "letters-leaderless"
POISON = b"poison" * 100  # more than SMALL takes at first
ANSWER_S_MAX = 30.0


def policy(match: str, letters: str) -> Settings:
    return {
        "match": match,
        "auto_offset_reset": "earliest",
        "backoff_base_ms": 200,
        "backoff_max_ms": 1_000,
        "rejected": "dead_letter",
        "deliveries_max": 1,
        "dead_letter_topic": letters,
    }


@pytest.fixture(scope="module")
def gateway(
    kafka_pair: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """In front of two brokers: one of them can be away."""
    with GatewayProcess(
        tmp_path_factory.mktemp("letters-gateway"),
        kafka_pair.bootstrap_servers,
        groups=[policy(f"{name}-*", name) for name in (MISSING, SMALL, LEADERLESS)],
        state={"commit_interval_ms": 500},
    ) as process:
        yield process


def alter_topic(bootstrap: str, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result(ANSWER_S_MAX)


def at_the_first_broker(kafka: KafkaCluster, prefix: str, fresh_name: Names) -> str:
    """Name of a group whose coordinator stays when the second broker goes."""
    names: list[str] = []

    def found() -> bool:
        names.append(fresh_name(prefix))
        with WireClient(kafka.brokers[0].address) as line:
            asked = {"Key": names[-1], "KeyType": 0}
            return bool(line.call(ApiKey.FIND_COORDINATOR, 3, asked)["NodeId"] == 1)

    wait_until(found, what="a group of the first broker", deadline_s=ANSWER_S_MAX)
    return names[-1]


def without(kind: str, kafka: KafkaCluster) -> Callable[[], None]:
    """Makes dead letters impossible to write; the function returned makes them possible."""
    server = kafka.bootstrap_servers
    match kind:
        case "letters-missing":
            return lambda: create_topic(server, MISSING)
        case "letters-small":
            create_topic(server, SMALL, config={"max.message.bytes": "300"})
            return lambda: alter_topic(server, SMALL, "max.message.bytes", "100000")
        case _:
            create_topic(server, LEADERLESS, assignment=[[2]])
            kafka.brokers[1].kill()

            def back() -> None:
                kafka.brokers[1].start()
                kafka.wait_ready()

            return back


@pytest.mark.parametrize(
    ("kind", "trouble"),
    [(MISSING, "UNKNOWN_TOPIC_OR_PARTITION"), (SMALL, "TooLarge"), (LEADERLESS, "")],
)
def test_the_key_waits_and_the_others_flow(
    kafka_pair: KafkaCluster,
    gateway: GatewayProcess,
    fresh_name: Names,
    librdkafka_host: ShareHost,
    kind: str,
    trouble: str,
) -> None:
    name, group = fresh_name("topic"), at_the_first_broker(kafka_pair, kind, fresh_name)
    create_topic(kafka_pair.bootstrap_servers, name, assignment=[[1]])
    produce(
        gateway.bootstrap,
        name,
        [(b"bad", POISON), *((key, b"%d" % at) for at in range(5) for key in (b"bad", b"good"))],
    )
    possible_again = without(kind, kafka_pair)
    try:
        member = librdkafka_host.member(gateway.bootstrap, group, [name], explicit=True)
        reject_poison(member, others=5)
        assert member.poll_empty(1.0) == [], "its key waits"
        row = wait_for_trouble(gateway, group)
        assert trouble in row["dead_letter_trouble"]
        assert (row["dead_lettering"], row["cursor"]) == (1, 0)
        status, said, _ = keyway(gateway, "group", "describe", group)
        assert status == 0
        assert f"{name}-0: dead letters are not written: " in said
        if kind != LEADERLESS:  # there a try lasts 15 s
            tries = gateway.log_text().count("dead_letters_not_written")
            wait_until(
                lambda: gateway.log_text().count("dead_letters_not_written") > tries,
                what="another try",
                deadline_s=ANSWER_S_MAX,
            )
    finally:
        possible_again()
    waiting: list[bytes | None] = []
    while len(waiting) < 5:
        batch = member.poll_some(ANSWER_S_MAX)
        assert batch, f"stuck after {waiting}"
        member.settle("ACCEPT", batch)
        waiting += [record.value for record in batch]
    assert waiting == [b"0", b"1", b"2", b"3", b"4"], "delivered, not dropped"
    letters = read_partition(kafka_pair.bootstrap_servers, kind, 0)
    assert [(key, value) for _, key, value in letters] == [(b"bad", POISON)]
    row = windows_of(gateway, group)[0]
    assert (row["cursor"], row["dead_lettering"], row["dead_letter_trouble"]) == (11, 0, None)
    assert_never_backwards(member.deliveries)
    member.close()


def reject_poison(member: ShareMember, *, others: int) -> None:
    """Rejects the first of key `bad` and accepts this many of the other key."""
    accepted = 0
    rejected = False
    while accepted < others or not rejected:
        batch = member.poll_some()
        assert batch, f"stuck after {accepted} of {others}"
        bad = [record for record in batch if record.key == b"bad"]
        assert {record.value for record in bad} <= {POISON}
        rejected = rejected or bool(bad)
        member.acknowledge("REJECT", bad)
        member.settle("ACCEPT", [record for record in batch if record not in bad])
        accepted += len(batch) - len(bad)


def wait_for_trouble(gateway: GatewayProcess, group: str) -> dict[str, Any]:
    """The window's row, once it says that letters cannot be written."""
    wait_until(
        lambda: any(row.get("dead_letter_trouble") for row in windows_of(gateway, group)),
        what="the trouble shown",
        deadline_s=ANSWER_S_MAX,
    )
    return windows_of(gateway, group)[0]
