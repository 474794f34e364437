"""Short crash rounds with stock clients; `make campaign NAME=chaos` plays long ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from gateway.embedded.kafka import KafkaCluster
from tests.chaos.campaign import run
from tests.chaos.plan import QUICK, Victim, plan_of
from tests.rig.clients.java_programs import JavaPrograms

pytestmark = pytest.mark.integration
# Gateway; broker, Redis and gateway; a flush; Redis; members of both kinds; then more at once.
SEEDS = (17, 133, 6, 23, 25, 74, 5, 48, 49, 50)
SECONDS_MAX = 25  # a machine that is slower plays fewer rounds


def test_crash_rounds(
    plain_kafka: KafkaCluster,
    java_programs: JavaPrograms,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ten short rounds on one site under load; the other crash tests show them one by one."""
    struck = Counter(
        victim
        for seed in SEEDS
        for strike in plan_of(seed, QUICK).strikes
        for victim in strike.victims
    )
    assert set(struck) == set(Victim), "the seeds still give the same runs"
    passed = run(
        SEEDS,
        tmp_path,
        seconds_max=SECONDS_MAX,
        pace=QUICK,
        kafka=plain_kafka,
        programs=java_programs,
    )
    assert passed, capsys.readouterr().out
