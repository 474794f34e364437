"""One crash round with stock clients; `make chaos` plays many (tests/chaos)."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.embedded.kafka import KafkaCluster
from tests.chaos.campaign import run
from tests.chaos.plan import Victim, plan_of
from tests.clients.java_programs import JavaPrograms

pytestmark = pytest.mark.integration
SEED = 18


def test_a_crash_round(
    kafka: KafkaCluster,
    java_programs: JavaPrograms,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Gateway and Redis at once under load: the rest is in the other crash tests one by one."""
    struck = {victim for strike in plan_of(SEED).strikes for victim in strike.victims}
    assert struck == {Victim.GATEWAY, Victim.REDIS}, "the seed still means what it meant"
    passed = run([SEED], tmp_path, seconds_max=60, kafka=kafka, programs=java_programs)
    assert passed, capsys.readouterr().out
