"""`keyway doctor` with a real Kafka: before the node starts, and beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.embedded.kafka import KafkaCluster
from tests.rig.gateway_process import GatewayProcess
from tests.rig.quick_start import ran

pytestmark = pytest.mark.integration


def doctor(node: GatewayProcess) -> dict[str, tuple[str, str]]:
    """Status and finding by check."""
    words = ["doctor", "--config", str(node.config)]
    ended = ran([*words, "-o", "json"], timeout_s=120)
    rows = json.loads(ended.stdout)["findings"]
    faults = [row for row in rows if row["status"] == "fault"]
    assert ended.returncode == bool(faults), ended.stderr
    return {row["check"]: (row["status"], row["found"]) for row in rows}


def test_before_the_node_and_beside_it(kafka: KafkaCluster, tmp_path: Path, topic: str) -> None:
    node = GatewayProcess(tmp_path, kafka.bootstrap_servers)
    found = doctor(node)
    assert found["Java"][0] == "ok"
    assert found["upstream"][0] == "ok"
    assert found["version"] == ("ok", "Kafka 4.2 or later")
    assert found["permissions"][0] == "ok", topic
    assert found["metadata limit"] == ("ok", "offset.metadata.max.bytes is 4096")
    assert found["ports"][1].endswith(" are free")
    with node:
        assert doctor(node)["ports"] == ("ok", "a node listens on them already")


def test_nothing_is_there(tmp_path: Path) -> None:
    node = GatewayProcess(tmp_path, "127.0.0.1:1")
    assert doctor(node)["upstream"][0] == "fault"
