"""A topic grows, or moves, while its gateway is killed; many rounds: `make campaign`."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.embedded.kafka import KafkaCluster
from tests.chaos.repartition import PACE, Kill, Moving, Round, gateway_for, play, play_move
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


def test_one_round_of_a_move(
    kafka: KafkaCluster, tmp_path: Path, librdkafka_host: ShareHost
) -> None:
    plan = Moving(seed=0, before=2, after=1, transactions=True, kills=(Kill("moved", 0.1),))
    with gateway_for(kafka, tmp_path) as node:
        told = play_move(plan, node, kafka, librdkafka_host)
    assert told.killed == ["moved: open"]
    assert told.moved > 0


def test_a_producer_that_stands_still_for_100_s(
    kafka: KafkaCluster, tmp_path: Path, librdkafka_host: ShareHost
) -> None:
    """Acceptance 19: then it sends again what it had on its way, to the old partitions."""
    plan = Round(seed=0, before=4, after=8, protocol="consumer", frozen_s=100.0, kills=())
    pace = PACE | {"delivery_timeout_ms": 110_000, "settle_ms": 3_000}
    with gateway_for(kafka, tmp_path, pace) as node:
        told = play(plan, node, kafka, librdkafka_host)
    assert told.moved > 0
