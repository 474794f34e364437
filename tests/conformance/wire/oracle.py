"""Asks kafka-clients: one Java process per call, commands in, answers out (see Oracle.java)."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from gateway.embedded.kafka import java, kafka_classpath
from tests.rig.patience import patient_s

_SOURCE = Path(__file__).with_name("Oracle.java")
_SECONDS_MAX = patient_s(120)


def ask(commands: Sequence[str]) -> list[str]:
    """All lines of the answer: one per command, several for `facts`."""
    command = [java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"]
    run = subprocess.run(
        [*command, "-cp", kafka_classpath(), str(_SOURCE)],
        input="\n".join(commands) + "\n",
        capture_output=True,
        encoding="utf-8",
        timeout=_SECONDS_MAX,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.split("\n")[:-1]
