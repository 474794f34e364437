"""Asks kafka-clients: one Java process per call, commands in, answers out (see Oracle.java)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.rig.clients.java_programs import compile_programs

_SECONDS_MAX = 120


def ask(commands: Sequence[str]) -> list[str]:
    """All lines of the answer: one per command, several for `facts`."""
    programs = compile_programs(Path(__file__).parent)
    said = programs.run("Oracle", seconds_max=_SECONDS_MAX, stdin="\n".join(commands) + "\n")
    return said.split("\n")[:-1]
