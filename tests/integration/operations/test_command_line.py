"""The `keyway` command beside a node that works: members, keys, connections, a seek that is refused
while members are there, and done when they have left.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.share_members import ShareHost
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import produce
from tests.rig.operating import keyway, poll_until_up
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

Topic = Callable[..., str]
SEEN_S_MAX = 30.0


def table(gateway: GatewayProcess, *command: str) -> list[dict[str, str]]:
    """The rows of a table without empty cells, by their columns."""
    code, out, err = keyway(gateway, *command)
    assert (code, err) == (0, "")
    columns, *rows = [line.split() for line in out.splitlines()]
    return [dict(zip(columns, row, strict=False)) for row in rows]


def test_a_group_at_work_and_after(
    gateway: GatewayProcess,
    kafka: KafkaCluster,
    topic: Topic,
    share_group: Callable[[str], str],
    librdkafka_host: ShareHost,
) -> None:
    name, group = topic(partitions=1), share_group("patient")  # longer than the commands take
    keys = [b"a", b"a", b"a", b"b"]
    produce(kafka.bootstrap_servers, name, [(key, b"v") for key in keys], partition=0)
    member = librdkafka_host.member(gateway.bootstrap, group, [name], explicit=True)
    seen = poll_until_up(gateway, group, member) or member.poll_some()
    assert {delivery.key for delivery in seen} == {b"a", b"b"}, "one record of each key"

    (row,) = table(gateway, "member", "list", group)
    assert (row["CLIENT-ID"], row["SHARE"], row["IN-FLIGHT"]) == (member.name, "100.0%", "2")
    (shown,) = [line for line in table(gateway, "topic", "list") if line["TOPIC"] == name]
    assert (shown["PARTITIONS"], shown["LEADERLESS"]) == ("1", "0")
    (window,) = table(gateway, "window", "list", group, "--state", "up")
    assert (window["CURRENT-OFFSET"], window["READY"], window["IN-FLIGHT"]) == ("0", "2", "2")
    code, out, _ = keyway(gateway, "key", "show", group, "a", "-o", "json")
    (key,) = json.loads(out)["keys"]
    assert (key["state"], key["records"], key["owner"]) == ("in_flight", 3, row["CONSUMER-ID"])
    hot = table(gateway, "key", "list", group, "--limit", "1")
    assert [line["RECORDS"] for line in hot] == ["3"]
    connections = table(gateway, "connection", "list", "--client-id", member.name)
    assert connections
    assert all(connection["HOST"].startswith("127.0.0.1:") for connection in connections)

    dry = ("group", "seek", group, "--to", "latest", "--topic", name)
    for command in (dry, (*dry, "--execute")):
        code, _, err = keyway(gateway, *command)
        assert code == 1
        assert "is not empty" in err
    assert table(gateway, "group", "positions", group)[0]["CURRENT-OFFSET"] == "0", "it stays"
    member.close()

    def moved() -> bool:
        code, out, _ = keyway(gateway, *dry, "--execute", "-o", "json")
        return code == 0 and json.loads(out)["positions"][0]["new"] == 4

    wait_until(moved, what="the group is empty", deadline_s=SEEN_S_MAX)
    (position,) = table(gateway, "group", "positions", group)
    assert (position["CURRENT-OFFSET"], position["LAG"]) == ("4", "0")
    assert position["LAG-SECONDS"] == "0"
    code, out, _ = keyway(
        gateway, "audit", "--group", group, "--action", "positions.seek", "-o", "json"
    )
    rows = json.loads(out)["audit"]
    assert code == 0
    assert [row["who"] for row in rows] == [None] * len(rows), "there are no tokens"
    assert len({row["outcome"] for row in rows}) == 2, "it was refused, then done"
