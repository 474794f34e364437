"""Scenario 4 with stock clients of both kinds; `make campaign NAME=rolling` plays many."""

from __future__ import annotations

import pytest

from gateway.embedded.kafka import KafkaCluster
from tests.chaos.rolling import Rolling
from tests.rig.clients.share_members import ShareHost
from tests.rig.gateway_process import GatewayProcess

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("seed", [1, 7])  # each draws both kinds
def test_rolling_restart(
    kafka: KafkaCluster,
    gateway: GatewayProcess,
    librdkafka_host: ShareHost,
    java_host: ShareHost,
    seed: int,
) -> None:
    hosts = {host.kind: host for host in (librdkafka_host, java_host)}
    Rolling(gateway, kafka, hosts, seed).run()
