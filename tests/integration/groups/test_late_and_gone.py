"""100 librdkafka members that join a group late and leave at once: all of them close."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.config.groups import GroupSection
from gateway.embedded.kafka import KafkaCluster
from tests.rig.gateway_process import REPOSITORY, GatewayProcess, Settings
from tests.rig.kafka import produce
from tests.rig.patience import patient_s

pytestmark = pytest.mark.integration

MEMBERS = 100
CROWD_S_MAX = patient_s(120.0)
CROWDS_MAX = 5


def test_a_crowd_that_joins_late_and_leaves_at_once(
    kafka: KafkaCluster, topic: Callable[..., str], tmp_path: Path
) -> None:
    """Some of each crowd stayed in close() for ever when a join was answered with partitions."""
    settings: Settings = {
        "match": "*",
        "auto_offset_reset": "earliest",
        "assignment_interval_ms": GroupSection().assignment_interval_ms,
        "heartbeat_interval_ms": 30_000,  # the crowd has left by then on any machine
    }
    name = topic(partitions=4)
    produce(kafka.bootstrap_servers, name, [(b"k%d" % at, b"v") for at in range(100)])
    with GatewayProcess(tmp_path, kafka.bootstrap_servers, groups=[settings]) as gateway:
        command = [sys.executable, "-m", "tests.hostile.late_crowd", gateway.bootstrap]
        for crowd in range(CROWDS_MAX):  # on a slow machine most go before they have joined
            said = subprocess.run(
                [*command, f"crowd-{crowd}", name, str(MEMBERS)],
                cwd=REPOSITORY,
                capture_output=True,
                text=True,
                timeout=CROWD_S_MAX,
                check=True,
            )
            assert said.stdout.strip() == "0", "members that did not close"
            joined = gateway.log_text().count("member_joined")
            if joined > MEMBERS // 10:
                break
    assert joined > MEMBERS // 10, "hardly anybody joined"
