"""The rights of the node's user in Redis that docs/deploy.md names are enough."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis

from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import free_ports
from gateway.embedded.redis import EmbeddedRedis
from tests.rig.clients.wire_client import ShareSession
from tests.rig.committed import wait_for_committed
from tests.rig.gateway_process import REPOSITORY, GatewayProcess
from tests.rig.groups import GROUPS
from tests.rig.kafka import produce
from tests.rig.operating import health, keyway

pytestmark = pytest.mark.integration
PAGE = (REPOSITORY / "docs" / "deploy.md").read_text(encoding="utf-8")
ACCEPT = 1


def test_the_documented_rights_are_enough(
    kafka: KafkaCluster,
    topic: Callable[..., str],
    share_group: Callable[..., str],
    tmp_path: Path,
) -> None:
    name, group = topic(partitions=1), share_group()
    produce(kafka.bootstrap_servers, name, [(b"k%d" % at, b"v") for at in range(10)])
    (rights,) = re.findall(r"`ACL SETUSER (keyway on >PASSWORD [^`]*)`", PAGE)
    port = free_ports(1)
    with EmbeddedRedis(tmp_path / "redis", port=port) as redis:
        with Redis.from_url(redis.url) as admin:
            admin.execute_command("ACL", "SETUSER", *rights.split())
        with GatewayProcess(
            tmp_path / "gateway",
            kafka.bootstrap_servers,
            groups=GROUPS,
            redis_url=f"redis://keyway:PASSWORD@127.0.0.1:{port}/0",
            nodes={"id": "a"},
            state={"commit_interval_ms": 500, "deleted_topics_interval_ms": 500},
        ) as node:
            rule = ("--rule", "*;keys=*", "--execute")
            status, _, problem = keyway(node, "filter", "set", group, *rule)
            assert status == 0, problem
            with ShareSession(node.bootstrap, group, name).join() as session:
                held = session.fetch_count(10)
                assert session.acknowledge({0: [(0, 9, [ACCEPT])]}) == {0: 0}
                session.leave()
            assert held.offsets == list(range(10))
            wait_for_committed(kafka, group, name, 0, 10)
            assert keyway(node, "group", "seek", group, "--to", "earliest", "--execute")[0] == 0
            assert keyway(node, "group", "delete", group, "--execute")[0] == 0
            assert health(node)[0] == 200
        with Redis.from_url(redis.url) as admin:
            refused = {
                entry["object"] for entry in admin.acl_log() if entry["username"] == "keyway"
            }
    assert refused <= {"client"}, "the library tells its name, and does without"
    assert "NOPERM" not in node.log_text()
