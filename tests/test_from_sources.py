"""Tests that count the calls of functions, which compiled modules do not show."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dispatcher.core import dispatcher
from tests.rig.gateway_process import REPOSITORY

COUNTING = (
    "tests/sim/scenarios/test_steps.py::"
    "test_what_comes_often_costs_the_same_in_a_window_of_any_size",
    "tests/unit/dispatcher/core/stored/test_restore.py::"
    "test_a_window_with_many_records_aside_is_put_together_by_stretches",
)
SECONDS_MAX = 120


@pytest.mark.skipif(not dispatcher.__file__.endswith(".so"), reason="they run by themselves")
def test_they_hold_for_the_sources_of_what_is_compiled() -> None:
    command = [
        sys.executable,
        "-m",
        "tests.rig.from_sources",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [*command, "-p", "no:schemathesis", "-n", "0", *COUNTING],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(COUNTING)} passed" in done.stdout, "none was skipped"
