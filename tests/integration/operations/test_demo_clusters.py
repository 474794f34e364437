"""`make demo-clusters` on part of the data: it holds, and leaves nothing running."""

from __future__ import annotations

import re
from pathlib import Path

import psutil
import pytest

from demo.run import PORT_VARIABLE, Ports
from demo.two_clusters import run_demo
from gateway.embedded.process import SetupError, free_ports

pytestmark = [
    pytest.mark.deep,
    pytest.mark.integration,
    pytest.mark.spark,
]


def free_bootstrap() -> int:
    while True:
        first = Ports(free_ports(140) + 12)
        try:
            for ports in (first, Ports(first.bootstrap + 100)):
                ports.require_all_free()
        except SetupError:
            continue
        return first.bootstrap


def test_flights_are_copied_masked_and_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(PORT_VARIABLE, str(free_bootstrap()))
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    status = run_demo(flights_max=3_000, directory=tmp_path / "demo")
    said = capsys.readouterr().out
    assert status == 0, said
    figures = dict(re.findall(r"│ ([a-z ,]+?) +│ +([\d,]+)", said))
    assert figures["flights on east"] == figures["records on west"] == "3,000"
    assert figures["missing"] == figures["twice"] == figures["out of order"] == "0"
    assert figures["plain tail numbers on west"] == "0"
    left = psutil.Process().children(recursive=True)
    assert [one for one in left if one.pid not in before] == []
