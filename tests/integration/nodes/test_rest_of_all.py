"""REST of two nodes with tokens: each shows what both have, an act reaches the node that has the
records, a token's groups hold at both, and one that is frozen is named.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.admin.tokens import sha256_of
from gateway.embedded.kafka import KafkaCluster
from tests.chaos.nodes.site import Nodes
from tests.integration.upstream.test_two_brokers import places_on
from tests.rig.certificates import Authority
from tests.rig.clients.share_members import ShareHost, consume_all
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import create_topic, produce
from tests.rig.operating import keyway, rest
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

Name = Callable[[str], str]
PARTITIONS = 4


def tokens() -> list[dict[str, Any]]:
    return [
        {"name": "root", "role": "admin", "sha256": sha256_of("root")},
        {"name": "some", "role": "admin", "sha256": sha256_of("some"), "groups": ["nothing-*"]},
    ]


@pytest.fixture(scope="module")
def nodes(kafka_pair: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    both = Nodes(tmp_path_factory.mktemp("rest"), kafka_pair, "ab", admin={"tokens": tokens()})
    with both.running("ab"):
        yield both


def asked(
    node: GatewayProcess, path: str, who: str = "root", body: object = None, method: str = ""
) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {who}"}
    return rest(node, path, body, method=method or None, headers=headers)


def glance(node: GatewayProcess, group: str) -> tuple[list[str], int, int]:
    """The nodes of its overview, the group's windows, and records accepted of it."""
    said = asked(node, "/v1/overview")[1]
    lines = {row["group"]: row for row in said["groups"]}
    if group not in lines:
        return said["nodes"], 0, 0
    return said["nodes"], lines[group]["windows"], lines[group]["outcomes"].get("accepted", 0)


def test_each_node_shows_and_does_what_all_can(
    nodes: Nodes, kafka_pair: KafkaCluster, fresh_name: Name, librdkafka_host: ShareHost
) -> None:
    topic, group = fresh_name("orders"), fresh_name("group")
    create_topic(kafka_pair.bootstrap_servers, topic, assignment=[[1], [2], [1], [2]])
    produce(nodes.bootstrap, topic, [(b"k%d" % (at % 40), b"%d" % at) for at in range(80)])
    member = librdkafka_host.member(nodes.bootstrap, group, [topic])
    consume_all([member], places_on(kafka_pair.bootstrap_servers, topic, PARTITIONS))
    a, b = nodes.nodes["a"], nodes.nodes["b"]
    places = [(topic, partition) for partition in range(PARTITIONS)]
    for node in (a, b):

        def settled(node: GatewayProcess = node) -> bool:
            status, found = asked(node, f"/v1/groups/{group}")
            rows = found["partitions"]
            assert status == 200
            return (
                [(row["topic"], row["partition"]) for row in rows] == places
                and all(row["state"] == "up" for row in rows)
                and (found["windows"], found["lag"]) == (PARTITIONS, 0)
            )

        wait_until(settled, what="all partitions, from either node", deadline_s=60)
        listed = asked(node, "/v1/groups")[1]["groups"]
        assert [row["windows"] for row in listed if row["group"] == group] == [PARTITIONS]
        one = asked(node, f"/v1/windows?group={group}&limit=3")[1]
        two = asked(node, f"/v1/windows?group={group}&limit=3&after={one['next']}")[1]
        pages = [[window["partition"] for window in page["windows"]] for page in (one, two)]
        assert (pages, two["next"]) == ([[0, 1, 2], [3]], None)
        assert asked(node, f"/v1/groups/{group}", "some")[0] == 404
        assert asked(node, "/v1/groups", "some")[1]["groups"] == []

        def seen(node: GatewayProcess = node) -> bool:
            return glance(node, group) == (["a", "b"], PARTITIONS, 80)

        wait_until(seen, what="the overview of both", deadline_s=60)
        assert asked(node, "/v1/overview", "some")[1]["groups"] == []

        def kept(node: GatewayProcess = node) -> bool:
            status, past = asked(node, f"/v1/history?group={group}")
            assert (status, past["group"], past.get("unanswered")) == (200, group, None)
            return [line["topic"] for line in past["topics"]] == [topic]

        wait_until(kept, what="the first look of the group's history", deadline_s=60)
        found = asked(node, f"/v1/keys?group={group}&key=k7")[1]["keys"]
        assert [row["topic"] for row in found] == [topic]
        status, said = asked(node, f"/v1/groups/{group}", method="DELETE")
        assert (status, "is not empty" in said["title"]) == (409, True)
    member.close()
    wait_until(
        lambda: all(asked(name, f"/v1/groups/{group}")[1]["members"] == 0 for name in (a, b)),
        what="the member is gone for both",
        deadline_s=60,
    )
    for node in (a, b):
        moved = {"to": "earliest", "execute": True}
        status, said = asked(node, f"/v1/positions/seek?group={group}", body=moved)
        assert (status, {position["new"] for position in said["positions"]}) == (200, {0})
    status, said = asked(b, f"/v1/groups/{group}", method="DELETE")
    assert (status, said) == (200, {"group": group, "deleted": True})


def test_a_node_that_is_frozen_is_named_and_the_rest_shown(nodes: Nodes) -> None:
    a, b = nodes.nodes["a"], nodes.nodes["b"]
    assert "unanswered" not in asked(a, "/v1/groups")[1]
    os.kill(b.pid, signal.SIGSTOP)
    try:
        status, said = asked(a, "/v1/groups")
        assert status == 200
        assert [silent["node"] for silent in said["unanswered"]] == ["b"]
        overview = asked(a, "/v1/overview")[1]
        assert [silent["node"] for silent in overview["unanswered"]] == ["b"]
        assert overview["nodes"] == ["a"]
        assert overview["health"]["reasons"][-1].startswith("node b does not answer: ")
        os.environ["KEYWAY_TOKEN"] = "root"
        code, out, err = keyway(a, "group", "list", "-o", "json")
        assert code == 0
        assert isinstance(json.loads(out)["groups"], list)
        assert not err or err.startswith("keyway: node b is missing here: ")
    finally:
        os.environ.pop("KEYWAY_TOKEN", None)
        os.kill(b.pid, signal.SIGCONT)
    nodes.wait_for_owners("ab")
    log = a.log_text() + b.log_text()
    assert "Bearer" not in log
    assert "handler_failed" not in log


def test_nodes_with_https_ask_each_other_if_they_trust_the_certificate(
    kafka_pair: KafkaCluster, tmp_path: Path
) -> None:
    authority, stranger = Authority(tmp_path / "ca"), Authority(tmp_path / "other", "stranger")
    own = authority.issue("node")
    trust = authority.trusting()

    def overview(node: GatewayProcess) -> dict[str, Any]:
        headers = {"Authorization": "Bearer root"}
        answer = httpx.get(f"https://{node.admin}/v1/overview", headers=headers, verify=trust)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    for trusted, names, missing in (
        (authority, ["a", "b"], []),
        (stranger, ["a"], ["b"]),
    ):
        admin = {
            "tokens": tokens(),
            "tls": own.as_options(),
            "nodes_ca_file": str(trusted.ca_file),
        }
        both = Nodes(tmp_path / "-".join(["nodes", *names]), kafka_pair, "ab", admin=admin)
        with both.running("ab"):
            found = overview(both.nodes["a"])
            assert found["nodes"] == names
            assert [silent["node"] for silent in found["unanswered"]] == missing
            if missing:
                assert "certificate verify failed" in found["unanswered"][0]["reason"]
