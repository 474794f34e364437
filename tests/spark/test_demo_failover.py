"""`make demo-failover`, with fewer flights: nothing is missed, no more repeated than said."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.failover import run_demo
from demo.run import PORT_VARIABLE

pytestmark = [
    pytest.mark.deep,
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.timeout(1_800),
]


def test_both_groups_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(PORT_VARIABLE, "13192")
    assert run_demo(flights_max=1_500, directory=tmp_path / "demo") == 0, capsys.readouterr().out
