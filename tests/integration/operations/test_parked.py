"""Parked records through REST and the CLI: listed, retried, skipped, dead-lettered, refused."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dispatcher.core.routing.hashes import key_hash32
from gateway.admin.limits import ADMIN_BODY_BYTES_MAX
from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.share_lines import Delivery
from tests.rig.clients.share_members import ShareHost, ShareMember
from tests.rig.committed import wait_for_committed
from tests.rig.gateway_process import GatewayProcess, Settings
from tests.rig.kafka import create_topic, produce
from tests.rig.operating import keyway, metrics, rest
from tests.rig.patience import wait_until
from tests.rig.topic_contents import headers_of, read_messages

pytestmark = pytest.mark.integration

Topic = Callable[..., str]
Names = Callable[[str], str]
LETTERS = "tests-parked-letters"
BLOCK: Settings = {
    "auto_offset_reset": "earliest",
    "backoff_base_ms": 50,
    "rejected": "block",
    "exhausted": "block",
    "deliveries_max": 2,
}


@pytest.fixture(scope="module")
def gateway(
    kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway of this file alone: its groups block, and it is restarted."""
    create_topic(kafka.bootstrap_servers, LETTERS)
    with GatewayProcess(
        tmp_path_factory.mktemp("parked-gateway"),
        kafka.bootstrap_servers,
        groups=[
            {"match": "letters*", **BLOCK, "dead_letter_topic": LETTERS},
            {"match": "*", **BLOCK},
        ],
        state={"commit_interval_ms": 500},
    ) as process:
        yield process


def parked(gateway: GatewayProcess, group: str) -> list[dict[str, Any]]:
    status, answer = rest(gateway, f"/v1/parked?{urllib.parse.urlencode({'group': group})}")
    assert status == 200, answer
    rows: list[dict[str, Any]] = answer["parked"]
    return rows


def release(
    gateway: GatewayProcess, group: str, topic: str, offsets: object, action: str
) -> tuple[int, Any]:
    body = {
        "group": group,
        "topic": topic,
        "partition": 0,
        "offsets": offsets,
        "action": action,
    }
    return rest(gateway, "/v1/parked/release", body)


def park(member: ShareMember, rejected: set[int], accepted: int) -> None:
    """Rejects these offsets, accepts everything else until `accepted` records were."""
    done = 0
    while rejected or done < accepted:
        batch = member.poll_some()
        assert batch, f"stuck with {rejected} and {done} of {accepted}"
        bad = [record for record in batch if record.offset in rejected]
        good = [record for record in batch if record.offset not in rejected]
        if bad:
            member.acknowledge("REJECT", bad)
        if good:
            member.acknowledge("ACCEPT", good)
        assert set(member.commit()) <= {"OK"}
        rejected = rejected - {record.offset for record in bad}
        done += len(good)


def accept_some(member: ShareMember) -> list[Delivery]:
    batch = member.poll_some()
    member.settle("ACCEPT", batch)
    return batch


def two_of_each(gateway: GatewayProcess, topic: str) -> None:
    """Offsets 0, 3 of key a; 1, 4 of b; 2, 5 of c."""
    produce(gateway.bootstrap, topic, [(key, b"v") for _ in range(2) for key in (b"a", b"b", b"c")])


def test_listed_retried_skipped(
    gateway: GatewayProcess,
    kafka: KafkaCluster,
    topic: Topic,
    fresh_name: Names,
    any_host: ShareHost,
) -> None:
    """The whole way by REST, for a group whose name is no path segment."""
    name, group = topic(), fresh_name("odd/na me?&%2F/parked")
    two_of_each(gateway, name)
    member = any_host.member(gateway.bootstrap, group, [name], explicit=True)
    park(member, {0, 1}, accepted=2)
    rows = parked(gateway, group)
    assert [(row["topic"], row["partition"], row["offset"]) for row in rows] == [
        (name, 0, 0),
        (name, 0, 1),
    ]
    assert [row["key_hash"] for row in rows] == [f"{key_hash32(key):08x}" for key in (b"a", b"b")]
    assert {row["reason"] for row in rows} == {"rejected"}
    assert {row["deliveries"] for row in rows} == {1}
    assert all(row["member_id"] for row in rows)

    assert release(gateway, group, name, [0], "retry") == (
        200,
        {
            "group": group,
            "action": "retry",
            "records": 1,
            "partitions": [{"topic": name, "partition": 0, "offsets": [0]}],
        },
    )
    (again,) = accept_some(member)
    assert (again.offset, again.delivery_count) == (0, 2)
    assert [record.offset for record in accept_some(member)] == [3], "the rest of its key follows"

    assert release(gateway, group, name, "all", "skip")[0] == 200
    assert [record.offset for record in accept_some(member)] == [4], "1 was skipped"
    assert parked(gateway, group) == []
    wait_for_committed(kafka, group, name, 0, 6)
    member.close()


def test_released_without_members_after_a_restart(
    gateway: GatewayProcess, topic: Topic, fresh_name: Names, librdkafka_host: ShareHost
) -> None:
    """Nobody is there, the window is only in the store: it is listed with its key, and decided."""
    name, group = topic(), fresh_name("restarted")
    two_of_each(gateway, name)
    member = librdkafka_host.member(gateway.bootstrap, group, [name], explicit=True)
    park(member, {0, 2}, accepted=2)
    member.close()
    gateway.restart()
    rows = parked(gateway, group)
    assert [(row["offset"], row["key_hash"]) for row in rows] == [
        (0, f"{key_hash32(b'a'):08x}"),
        (2, f"{key_hash32(b'c'):08x}"),
    ]
    assert release(gateway, group, name, [2], "skip")[0] == 200
    gateway.restart()
    assert [row["offset"] for row in parked(gateway, group)] == [0], "the decision is stored"
    assert release(gateway, group, name, [0], "retry")[0] == 200
    heir = librdkafka_host.member(gateway.bootstrap, group, [name], explicit=True)
    got: list[Delivery] = []
    while len(got) < 3:
        batch = accept_some(heir)
        assert batch, got
        got += batch
    assert sorted(record.offset for record in got) == [0, 3, 5]
    assert [record.offset for record in got if record.key == b"a"] == [0, 3]
    heir.close()


def test_counted_without_members_after_a_restart(
    gateway: GatewayProcess, topic: Topic, fresh_name: Names, any_host: ShareHost
) -> None:
    """No window is in memory, and nobody asks for the records themselves: the list, the overview
    and the metric, hence its alert, know of them all the same.
    """
    name, group = topic(partitions=1), fresh_name("counted")
    two_of_each(gateway, name)
    member = any_host.member(gateway.bootstrap, group, [name], explicit=True)
    park(member, {0, 1}, 1)
    member.close()
    gateway.restart()
    sample = f'keyway_window_records{{group="{group}",partition="0",state="parked",topic="{name}"}}'
    wait_until(lambda: metrics(gateway).get(sample) == 2, what="the metric", deadline_s=60)
    _, listed = rest(gateway, f"/v1/groups?{urllib.parse.urlencode({'name': group})}")
    (row,) = listed["groups"]
    assert (row["state"], row["windows"], row["parked"]) == ("Empty", 0, 2)
    _, overview = rest(gateway, "/v1/overview")
    assert [shown["parked"] for shown in overview["groups"] if shown["group"] == group] == [2]


def test_dead_lettered(
    gateway: GatewayProcess,
    kafka: KafkaCluster,
    topic: Topic,
    fresh_name: Names,
    librdkafka_host: ShareHost,
) -> None:
    name, group = topic(), fresh_name("letters")
    two_of_each(gateway, name)
    member = librdkafka_host.member(gateway.bootstrap, group, [name], explicit=True)
    park(member, {1}, accepted=4)
    assert release(gateway, group, name, [1], "dead_letter")[0] == 200
    assert [record.offset for record in accept_some(member)] == [4]
    letters = [
        letter
        for letter in read_messages(kafka, LETTERS)
        if any(value == name.encode() for _, value in headers_of(letter))
    ]
    assert [letter.key() for letter in letters] == [b"b"]
    member.close()


def test_what_is_refused(
    gateway: GatewayProcess, topic: Topic, fresh_name: Names, librdkafka_host: ShareHost
) -> None:
    name, group = topic(), fresh_name("refused")
    two_of_each(gateway, name)
    member = librdkafka_host.member(gateway.bootstrap, group, [name], explicit=True)
    park(member, {0}, accepted=4)
    status, problem = release(gateway, group, name, [0, 3], "skip")
    assert (status, problem["title"]) == (409, f"{name}-0: offset 3 is not parked")
    assert [row["offset"] for row in parked(gateway, group)] == [0], "all or none"
    assert release(gateway, group, name, [0], "dead_letter")[0] == 400, "it has no DLQ"
    assert release(gateway, group, "no-such-topic", [0], "skip")[0] == 404
    assert release(gateway, "no such group", name, [0], "skip")[0] == 404
    for offsets in ([], [-1], ["0"], [True], 0, "some", None):
        assert release(gateway, group, name, offsets, "skip")[0] == 400, offsets
    assert release(gateway, group, name, [0], "burn")[0] == 400
    assert rest(gateway, "/v1/parked/release", {"group": group})[0] == 400
    assert rest(gateway, "/v1/parked/release", b"{")[0] == 400
    assert rest(gateway, "/v1/parked/release", b" " * (ADMIN_BODY_BYTES_MAX + 1))[0] == 413
    plain = {"Content-Type": "text/plain"}
    assert rest(gateway, "/v1/parked/release", b"{}", headers=plain)[0] == 415
    assert rest(gateway, "/v1/parked/release")[0] == 405
    assert rest(gateway, "/v1/parked")[0] == 400
    assert rest(gateway, "/v1/parked?group=no+such+group")[0] == 404
    rebound = {"Host": "evil.example:9180"}
    assert rest(gateway, f"/v1/parked?group={group}", headers=rebound)[0] == 421
    assert rest(gateway, f"/v1/parked?group={group}", headers={"Host": "localhost"})[0] == 200
    assert release(gateway, group, name, "all", "skip")[0] == 200
    assert release(gateway, group, name, "all", "skip")[0] == 409
    member.close()


def cli(gateway: GatewayProcess, *arguments: str) -> tuple[int, str, str]:
    return keyway(gateway, "group", *arguments)


def test_command_line(
    gateway: GatewayProcess, topic: Topic, fresh_name: Names, librdkafka_host: ShareHost
) -> None:
    """Listed, tried dry, done, and refused with the node's own words."""
    name, group = topic(), fresh_name("cli/group")
    two_of_each(gateway, name)
    member = librdkafka_host.member(gateway.bootstrap, group, [name], explicit=True)
    park(member, {0, 1}, accepted=2)
    status, said, _ = cli(gateway, "parked", group)
    assert status == 0
    assert [line.split()[2] for line in said.splitlines()[1:]] == ["0", "1"]
    status, said, _ = cli(gateway, "parked", group, "-o", "json")
    assert [row["offset"] for row in json.loads(said)["parked"]] == [0, 1]

    where = ("release", group, "--topic", name, "--partition", "0")
    status, said, _ = cli(gateway, *where, "--offset", "0", "--offset", "1", "--action", "skip")
    assert status == 0
    assert "nothing is done without --execute" in said
    status, said, _ = cli(gateway, *where, "--all", "--action", "skip", "-o", "json")
    assert json.loads(said)["dry_run"] is True
    assert [row["offset"] for row in parked(gateway, group)] == [0, 1], "a dry run is dry"

    status, said, _ = cli(
        gateway, *where, "--offset", "0", "--action", "skip", "--execute", "-o", "json"
    )
    assert (status, json.loads(said)["partitions"][0]["offsets"]) == (0, [0])
    status, _, said = cli(gateway, *where, "--offset", "0", "--action", "skip", "--execute")
    assert (status, said) == (1, f"keyway: {name}-0: offset 0 is not parked\n")
    status, _, said = cli(gateway, *where, "--offset", "0", "--action", "skip")
    assert (status, said) == (1, f"keyway: {name}-0: offset 0 is not parked\n")
    status, said, _ = cli(gateway, *where, "--all", "--action", "retry", "--execute")
    assert (status, said) == (0, f"retry: 1 record of {name}-0\n")
    wait_until(lambda: parked(gateway, group) == [], what="nothing parked", deadline_s=10)
    assert cli(gateway, *where, "--action", "skip")[0] == 2, "neither --offset nor --all"
    assert f"parked_released group={group}" in gateway.log_text().replace("'", "")
    member.close()
