"""Key filters: declared by stock clients in client.id, set by operators while members work."""

from __future__ import annotations

import json
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from gateway.core.wire.apis import ApiKey
from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.redis import EmbeddedRedis
from tests.rig.clients.order import assert_first_deliveries_in_order, assert_never_backwards
from tests.rig.clients.share_members import MemberFailed, ShareHost, ShareMember, deliveries_of
from tests.rig.clients.wire_client import WireClient
from tests.rig.committed import wait_for_committed
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import produce
from tests.rig.operating import keyway, rest
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

Topic = Callable[..., str]
Names = Callable[[str], str]
EU, US = b"eu", b"us"
OF_CONFIG = [{"client_id": "nobody-*", "keys": ["none"]}]


@pytest.fixture(scope="module")
def gateway(
    kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway of this file alone, because it is restarted."""
    group = {
        "match": "*",
        "auto_offset_reset": "earliest",
        "filters": OF_CONFIG,
        "unmatched_wait_ms": 1_000,
    }
    with GatewayProcess(
        tmp_path_factory.mktemp("filter-gateway"),
        kafka.bootstrap_servers,
        groups=[group],
        state={"commit_interval_ms": 500},
    ) as process:
        yield process


def rules(
    gateway: GatewayProcess, group: str, body: object = None, *, method: str = "GET"
) -> tuple[int, Any]:
    path = f"/v1/filters?{urllib.parse.urlencode({'group': group})}"
    return rest(gateway, path, body, method=method)


def member_of(
    host: ShareHost, gateway: GatewayProcess, group: str, topic: str, client_id: str
) -> ShareMember:
    return host.member(
        gateway.bootstrap, group, [topic], explicit=True, properties={"client.id": client_id}
    )


def joined(gateway: GatewayProcess, group: str, members: list[ShareMember]) -> None:
    """All of them are members: only then are keys that one of them wants not skipped for it."""

    def all_there() -> bool:
        for member in members:
            member.poll(0.1)
        with WireClient(gateway.address_of(1)) as line:
            answer = line.call(ApiKey.SHARE_GROUP_DESCRIBE, 1, {"GroupIds": [group]})
        return len(answer["Groups"][0]["Members"]) == len(members)

    wait_until(all_there, what="all members joined", deadline_s=30)


def keys_of(member: ShareMember) -> set[bytes]:
    return {(delivery.key or b"").partition(b"-")[0] for delivery in member.deliveries}


def test_declared_in_the_client_id(
    gateway: GatewayProcess,
    kafka: KafkaCluster,
    topic: Topic,
    fresh_name: Names,
    any_host: ShareHost,
) -> None:
    name, group = topic(), fresh_name("inline")
    europe = member_of(any_host, gateway, group, name, "orders-1;keys=eu-*|at?%7C*")
    america = member_of(any_host, gateway, group, name, "orders-2;keys=us-*")
    joined(gateway, group, [europe, america])
    keys = [b"eu-1", b"eu-2", b"at-|x", b"us-1", b"atx", b"asia-1"]
    produce(gateway.bootstrap, name, [(key, b"%d" % at) for at in range(10) for key in keys])
    for member in (europe, america):
        member.begin_consume()
    wait_for_committed(kafka, group, name, 0, 60)
    for member in (europe, america):
        member.end_consume()
    assert {delivery.key for delivery in europe.deliveries} == {b"eu-1", b"eu-2", b"at-|x"}
    assert {delivery.key for delivery in america.deliveries} == {b"us-1"}
    assert len(europe.deliveries) == 30
    assert_never_backwards(deliveries_of([europe, america]))
    europe.close()
    america.close()


def test_a_declaration_that_cannot_be_read_is_no_member(
    gateway: GatewayProcess, topic: Topic, fresh_name: Names, java_host: ShareHost
) -> None:
    """It would get keys it did not ask for."""
    name, group = topic(), fresh_name("malformed")
    member = member_of(java_host, gateway, group, name, "orders-1;keys=eu-*|")
    with pytest.raises(MemberFailed, match=r"INVALID_REQUEST"):
        member.poll_some(20)
    refused = [line for line in gateway.log_text().splitlines() if "heartbeat_refused" in line]
    assert any(group in line and "A key filter is empty" in line for line in refused), "and why"


def test_members_that_come_back_one_after_the_other_when_redis_and_the_node_are_lost(
    kafka: KafkaCluster,
    topic: Topic,
    fresh_name: Names,
    tmp_path: Path,
    librdkafka_host: ShareHost,
) -> None:
    """Nobody knows then of the second one, and its keys were skipped before it was back."""
    name, group = topic(partitions=1), fresh_name("lost")
    eu, us = "orders-1;keys=eu-*", "orders-2;keys=us-*"
    with (
        EmbeddedRedis(tmp_path / "redis") as store,
        GatewayProcess(
            tmp_path / "gateway",
            kafka.bootstrap_servers,
            groups=[{"match": "*", "auto_offset_reset": "earliest"}],
            redis_url=store.url,
        ) as gateway,
    ):
        members = [member_of(librdkafka_host, gateway, group, name, one) for one in (eu, us)]
        joined(gateway, group, members)
        members[1].close()
        gateway.kill()
        with redis.Redis.from_url(store.url) as client:
            client.flushall()
        keys = [b"eu-1", b"us-1"] * 10
        produce(kafka.bootstrap_servers, name, [(key, b"x") for key in keys])
        gateway.start()
        members[0].settle("ACCEPT", members[0].poll_count(1, within_s=60))
        members[1] = member_of(librdkafka_host, gateway, group, name, us)
        for member in members:
            member.begin_consume()
        wait_until(
            lambda: sum(len(member.deliveries) for member in members) == len(keys),
            what="all records",
            deadline_s=60,
        )
        for member in members:
            member.end_consume()
            member.close()
    assert keys_of(members[1]) == {US}


def swapped(first: str, second: str) -> dict[str, Any]:
    return {
        "rules": [
            {"client_id": "first-*", "keys": [first]},
            {"client_id": "second-*", "keys": [second]},
        ]
    }


def test_changed_while_records_are_in_flight(
    gateway: GatewayProcess,
    kafka: KafkaCluster,
    topic: Topic,
    fresh_name: Names,
    any_host: ShareHost,
) -> None:
    """A key in flight stays where it is until it is settled; all others change hands at once."""
    name, group = topic(), fresh_name("swap")
    assert rules(gateway, group)[1] == {"group": group, "source": "config", "rules": OF_CONFIG}
    assert rules(gateway, group, swapped("eu-*", "us-*"), method="PUT")[0] == 200
    one = member_of(any_host, gateway, group, name, "first-1")
    two = member_of(any_host, gateway, group, name, "second-1")
    joined(gateway, group, [one, two])
    keys = [b"%s-%d" % (side, at) for at in range(10) for side in (EU, US)]
    produce(gateway.bootstrap, name, [(key, b"%d" % at) for at in range(10) for key in keys])
    held_by_one, held_by_two = one.poll_some(), two.poll_some()
    assert (keys_of(one), keys_of(two)) == ({EU}, {US})

    assert rules(gateway, group, swapped("us-*", "eu-*"), method="PUT")[0] == 200
    before = len(one.deliveries), len(two.deliveries)
    two.settle("ACCEPT", held_by_two)
    batch = two.poll(1.0)
    assert not {record.key for record in batch} & {record.key for record in held_by_one}, (
        "one still has those"
    )
    if batch:
        two.settle("ACCEPT", batch)
    one.settle("ACCEPT", held_by_one)
    two.settle("ACCEPT", two.poll_some())
    one.settle("ACCEPT", one.poll_some())
    for member in (one, two):
        member.begin_consume()
    wait_for_committed(kafka, group, name, 0, 200)
    for member in (one, two):
        member.end_consume()
    assert {delivery.key[:2] for delivery in one.deliveries[before[0] :] if delivery.key} == {US}
    assert {delivery.key[:2] for delivery in two.deliveries[before[1] :] if delivery.key} == {EU}
    everything = deliveries_of([one, two])
    assert_never_backwards(everything)
    assert_first_deliveries_in_order(everything)
    assert len({delivery.offset for delivery in everything}) == len(everything) == 200
    one.close()
    two.close()


@pytest.mark.deep
def test_kept_over_a_restart_and_taken_back(gateway: GatewayProcess, fresh_name: Names) -> None:
    group = fresh_name("kept/?&")
    body = swapped("a*", "grün*")
    assert rules(gateway, group, body, method="PUT") == (
        200,
        {"group": group, "source": "rest", "rules": body["rules"]},
    )
    gateway.restart()
    wait_until(
        lambda: rules(gateway, group)[1]["source"] == "rest", what="rules known", deadline_s=10
    )
    assert rules(gateway, group)[1]["rules"] == body["rules"]
    assert rules(gateway, group, {"rules": []}, method="PUT")[1]["rules"] == []
    assert rules(gateway, group)[1] == {"group": group, "source": "rest", "rules": []}
    assert rules(gateway, group, method="DELETE")[1]["source"] == "config"
    assert rules(gateway, group, {"rules": [{"client_id": "a"}]}, method="PUT")[0] == 400
    assert rules(gateway, group, {"rule": []}, method="PUT")[0] == 400
    assert rest(gateway, "/v1/filters")[0] == 400


def test_command_line(gateway: GatewayProcess, fresh_name: Names) -> None:
    """Listed, tried dry, set in the form of the client id, and taken back."""
    group = fresh_name("cli/filters")
    status, said, _ = keyway(gateway, "filter", "list", group)
    assert (status, said.split()) == (
        0,
        ["CLIENT-ID", "KEYS", "FROM", "nobody-*", "none", "keyway.yaml"],
    )
    wanted = ("filter", "set", group, "--rule", "a-*;keys=eu-*|x%7C*", "--rule", "*;keys=us-?")
    status, said, _ = keyway(gateway, *wanted)
    assert (status, said.splitlines()[-1]) == (
        0,
        "would be replaced by 2 rules; nothing is done without --execute",
    )
    status, said, _ = keyway(gateway, *wanted, "-o", "json")
    assert json.loads(said)["dry_run"] is True
    assert rules(gateway, group)[1]["source"] == "config", "a dry run is dry"
    status, said, _ = keyway(gateway, *wanted, "--execute")
    assert (status, [line.split() for line in said.splitlines()[1:]]) == (
        0,
        [["a-*", "eu-*", "|", "x|*", "set"], ["*", "us-?", "set"]],
    )
    expected = [
        {"client_id": "a-*", "keys": ["eu-*", "x|*"]},
        {"client_id": "*", "keys": ["us-?"]},
    ]
    status, said, _ = keyway(gateway, "filter", "list", group, "-o", "json")
    assert json.loads(said) == {"group": group, "source": "rest", "rules": expected}
    assert keyway(gateway, "filter", "remove", group)[0] == 0
    assert rules(gateway, group)[1]["rules"] == expected, "a dry run is dry"
    status, said, _ = keyway(gateway, "filter", "remove", group, "--execute", "-o", "json")
    assert (status, json.loads(said)) == (
        0,
        {"group": group, "source": "config", "rules": OF_CONFIG},
    )


@pytest.mark.deep
def test_changed_by_command_under_load(
    gateway: GatewayProcess,
    topic: Topic,
    fresh_name: Names,
    librdkafka_host: ShareHost,
    java_host: ShareHost,
) -> None:
    """Keys change hands six times while two stock clients work: each change counts for every record
    that is produced after it, and no key is ever out of order.
    """
    name, group = topic(partitions=2), fresh_name("load")
    assert rules(gateway, group, swapped("eu-*", "us-*"), method="PUT")[0] == 200
    one = member_of(librdkafka_host, gateway, group, name, "first-1")
    two = member_of(java_host, gateway, group, name, "second-1")
    joined(gateway, group, [one, two])
    for member in (one, two):
        member.begin_consume()
    keys = [b"%s-%d" % (side, at) for at in range(20) for side in (EU, US)]
    stop, flooded = threading.Event(), []

    def flood() -> None:
        while not stop.is_set():
            produce(gateway.bootstrap, name, [(key, b"flood") for key in keys])
            flooded.append(len(keys))

    flooding = threading.Thread(target=flood)
    flooding.start()
    try:
        for turn in range(6):
            mine, theirs = (EU, US) if turn % 2 else (US, EU)
            said = keyway(
                gateway,
                *("filter", "set", group, "--execute"),
                *("--rule", f"first-*;keys={mine.decode()}-*"),
                *("--rule", f"second-*;keys={theirs.decode()}-*"),
            )
            assert said[0] == 0, said
            produce(gateway.bootstrap, name, [(key, b"turn-%d" % turn) for key in keys])
    finally:
        stop.set()
        flooding.join(60)
    total = sum(flooded) + 6 * len(keys)
    wait_until(
        lambda: len(one.deliveries) + len(two.deliveries) >= total,
        what=f"{total} records",
        deadline_s=60,
    )
    for member in (one, two):
        member.end_consume()
    everything = deliveries_of([one, two])
    assert len({delivery.place for delivery in everything}) == len(everything) == total
    assert_never_backwards(everything)
    last = {
        (delivery.member, (delivery.key or b"")[:2])
        for delivery in everything
        if delivery.value == b"turn-5"
    }
    assert last == {(one.name, EU), (two.name, US)}, "set before they were produced"
    one.close()
    two.close()
