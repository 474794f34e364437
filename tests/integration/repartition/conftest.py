"""A node whose repartitions take seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.embedded.kafka import KafkaCluster
from tests.rig.gateway_process import GatewayProcess
from tests.rig.repartitions import QUICK


@pytest.fixture
def node(
    kafka: KafkaCluster, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[GatewayProcess]:
    process = GatewayProcess(
        tmp_path,
        kafka.bootstrap_servers,
        groups=[{"match": "*", "auto_offset_reset": "earliest"}],
        state={"commit_interval_ms": 500},
        repartition=getattr(request, "param", QUICK),
    )
    with process:
        yield process
