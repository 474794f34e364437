"""A topic grows while its gateway is killed; `make campaign NAME=repartition` plays many rounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.embedded.kafka import KafkaCluster
from tests.chaos.repartition import Kill, Round, gateway_for, play
from tests.rig.clients.share_members import ShareHost
from tests.rig.gateway_process import DIRECT

pytestmark = [
    pytest.mark.deep,
    pytest.mark.integration,
    pytest.mark.skipif(DIRECT, reason="Kafka itself has no repartition"),
]


def test_one_round(kafka: KafkaCluster, tmp_path: Path, librdkafka_host: ShareHost) -> None:
    kills = (Kill("open", 0.1),)
    plan = Round(seed=0, before=1, after=2, protocol="classic", frozen_s=0.0, kills=kills)
    with gateway_for(kafka, tmp_path) as node:
        told = play(plan, node, kafka, librdkafka_host)
    assert told.killed == ["open"]
    assert told.moved > 0
