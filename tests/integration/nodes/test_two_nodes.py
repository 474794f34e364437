"""Two nodes in front of two brokers, one Redis, members of both stock clients in one group: a node
is killed, returns, is stopped as planned, and drained; a virtual broker is moved. The short form of
`make campaign NAME=nodes`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.core.wire.apis import ApiKey
from gateway.embedded.kafka import KafkaCluster
from tests.chaos.nodes.acts import Director
from tests.chaos.nodes.load import Load
from tests.chaos.nodes.site import Nodes
from tests.rig.clients.share_members import ShareHost
from tests.rig.clients.wire_client import WireClient
from tests.rig.gateway_process import GatewayProcess
from tests.rig.operating import keyway, metrics
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

Name = Callable[[str], str]


def listed(nodes: Nodes, node: GatewayProcess) -> dict[str, str]:
    """The states of all nodes, as this one shows them; what it owns is what Redis says."""
    status, said, problem = keyway(node, "node", "list", "-o", "json")
    assert status == 0, problem
    answer = json.loads(said)
    owned = {row["node"]: row["owns"] for row in answer["nodes"]}
    owners = nodes.owners()
    assert {broker: owner for owner, has in owned.items() for broker in has} == owners
    return {row["node"]: row["state"] for row in answer["nodes"]}


def check_adoption(nodes: Nodes) -> None:
    """A connection to each node asks for Metadata; while nothing moves, no fetch is disturbed."""
    both = list(nodes.nodes.values())
    pushes = [metrics(node)["keyway_nodes_pushes_total"] for node in both]
    with WireClient(both[0].bootstrap) as one, WireClient(both[1].bootstrap) as two:
        for client in (one, two):
            client.call(ApiKey.METADATA, 12, {"Topics": None})
        wait_until(
            lambda: all(metrics(node)["keyway_nodes_adopted_generation"] > 0 for node in both),
            what="adoption by both nodes' clients",
            deadline_s=30,
        )
    for node in both:
        figures = metrics(node)
        assert figures["keyway_nodes_adopted_generation"] <= figures["keyway_nodes_generation"]
    assert [metrics(node)["keyway_nodes_pushes_total"] for node in both] == pushes


def check_orders(nodes: Nodes) -> None:
    """Under load, by the command: each ends when the virtual brokers have moved, and says so."""
    a, b = nodes.nodes["a"], nodes.nodes["b"]

    def ordered(node: GatewayProcess, *words: str) -> str:
        status, said, problem = keyway(node, "node", *words)
        assert status == 0, problem
        return said

    broker = min(owned for owned, owner in nodes.owners().items() if owner == "a")
    assert ordered(b, "move", str(broker), "b") == f"virtual broker {broker}: a to b\n"
    assert nodes.owners()[broker] == "b"
    assert ordered(a, "move", str(broker), "b") == "nothing had to move\n"
    assert ordered(b, "drain", "b").count(" b to a\n") == 2
    assert set(nodes.owners().values()) == {"a"}
    status, said, problem = keyway(b, "node", "drain", "a")
    assert (status, said) == (1, "")
    assert problem.startswith("keyway: node 'a' cannot be drained: no other node can own virtual")
    assert "b     up, drained" in ordered(a, "list")
    assert ordered(b, "undrain", "b").count(" a to b\n") == 1
    nodes.wait_for_owners("ab")
    status, said, problem = keyway(a, "node", "move", str(broker), "c")
    assert (status, problem) == (1, "keyway: no live node is named 'c'; alive: a, b\n")
    status, said, problem = keyway(a, "node", "move", "77", "b")
    assert (status, problem) == (1, "keyway: no node listens for virtual broker 77\n")


def test_a_node_is_killed_returns_and_is_stopped(
    kafka_pair: KafkaCluster,
    fresh_name: Name,
    java_host: ShareHost,
    librdkafka_host: ShareHost,
    tmp_path: Path,
) -> None:
    """Nothing lost, keys in order, nothing that was confirmed comes again."""
    nodes = Nodes(tmp_path, kafka_pair, "ab")
    kafka = kafka_pair.bootstrap_servers
    load = Load(kafka, fresh_name("orders"), brokers=2, partitions=4, per_second=10)
    hosts = (java_host, librdkafka_host, java_host, librdkafka_host)
    with nodes.running("ab"):
        load.join(hosts, nodes.bootstrap, fresh_name("group"))
        director = Director(nodes, load, "ab", "", seed=1, after=5)
        with load.running():
            load.wait_for_more(5)
            assert listed(nodes, nodes.nodes["b"]) == {"a": "up", "b": "up"}
            check_adoption(nodes)
            director.play("kill")
            director.play("restart")
            director.play("drain")
            nodes.wait_for_owners("ab")
            director.play("move")
            nodes.wait_for_owners("ab")
            check_orders(nodes)
        verdict = load.finish()
        assert verdict.passed, verdict.faults
        assert [cost.act for cost in director.costs()] == [
            *("kill -9", "start", "stop", "start"),
            *("drain", "undrain", "move"),
        ]
        with (tmp_path / "pauses").open("w") as figures:
            figures.writelines(f"{cost.act} {cost.pause_s:.2f} s\n" for cost in director.costs())
    for node in nodes.nodes.values():
        assert not re.search(r"handler_failed|dispatcher_bug|Traceback", node.log_text())
