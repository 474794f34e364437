"""The short forms of campaigns that need no servers; and that every campaign has one."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.bench import parked_scale, ring, window_cost
from tests.campaigns import CAMPAIGNS, Campaign
from tests.containers import bases
from tests.containers.podman import Podman
from tests.mutation.trial import every_module
from tests.peers import __main__ as peers
from tests.release.environments import found_pythons
from tests.release.licences import licences

ROOT = Path(__file__).resolve().parent.parent
TARGETS_MAX = 20


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("campaign", CAMPAIGNS.values(), ids=CAMPAIGNS.keys())
def test_each_has_its_short_form(campaign: Campaign) -> None:
    assert (ROOT / campaign.shortly).is_file()
    named = [word for word in campaign.words if word.startswith("tests/")]
    assert [word for word in named if not (ROOT / word).exists()] == []


def test_without_a_name_they_are_listed_and_an_unknown_one_is_refused() -> None:
    listed, unknown = ran("-m", "tests.campaigns"), ran("-m", "tests.campaigns", "chaso")
    assert (listed.returncode, unknown.returncode) == (0, 2)
    for said in (listed.stderr, unknown.stderr):
        assert all(f"\n  {name} " in said for name in CAMPAIGNS)


def test_more_words_are_the_campaigns_own() -> None:
    helped = ran("-m", "tests.campaigns", "fuzz", "--help")
    assert (helped.returncode, "--inputs" in helped.stdout) == (0, True)


def test_the_makefile_stays_short() -> None:
    lines = (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if ":" in line and " ## " in line]) <= TARGETS_MAX


@pytest.mark.deep
def test_parked_scale(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["parked_scale", "--records", "30000"])
    monkeypatch.setattr(parked_scale, "RATE_MIN", 0.0)  # of millions of records
    assert parked_scale.main() == 0
    assert "the backlogs drain at" in capsys.readouterr().out


def test_ring(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name, value in {"KEYS": 200, "RUNS": 1, "MEMBERS": (3,)}.items():
        monkeypatch.setattr(ring, name, value)
    monkeypatch.setattr(ring, "WRITTEN", tmp_path / "ring.json")
    ring.main()
    assert (tmp_path / "ring.json").exists()
    assert "us/key" in capsys.readouterr().out


@pytest.mark.deep
def test_bench_window(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["window_cost", "--turns", "2"])
    monkeypatch.setattr(window_cost, "WARM_UP_TURNS", 1)
    window_cost.main()
    assert capsys.readouterr().out


def test_release() -> None:
    """The sources as they are published, this Python among those found, and an SBOM's licences."""
    this = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert set(found_pythons([this, "2.0"])) == {this}
    bill = {
        "components": [
            {"name": "b", "version": "2", "licenses": [{"license": {"id": "MIT"}}]},
            {"name": "A", "version": "1", "licenses": [{"expression": "BSD-3-Clause OR MIT"}]},
            {"name": "c", "version": "3"},
        ]
    }
    assert [(licence.package, licence.licence) for licence in licences(bill)] == [
        ("A", "BSD-3-Clause OR MIT"),
        ("b", "MIT"),
        ("c", ""),
    ]


def test_containers(tmp_path: Path) -> None:
    """Engine and override as they are written; the stand-ins have the names that are asked for."""
    podman = Podman(tmp_path / "podman")
    podman.prepare()
    engine = tomllib.loads((tmp_path / "podman" / "containers.conf").read_text())
    assert engine["engine"]["runtime"] == "runc"
    assert [limit.split("=")[0] for limit in engine["containers"]["default_ulimits"]] == [
        "nofile",
        "nproc",
    ]
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    override = yaml.safe_load((ROOT / "tests/containers/host-network.yml").read_text())["services"]
    assert override.keys() == compose.keys()
    images = {service["image"] for service in compose.values() if "image" in service}
    images |= set(re.findall(r"^FROM (\S+:\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    made = (bases.PYTHON, bases.KAFKA, bases.REDIS)
    assert images == {re.sub(r"^docker\.io/(library/)?", "", image) for image in made}


def test_mutants_are_made_of_every_room_of_the_core() -> None:
    modules = set(every_module(ROOT))
    assert {"dispatcher.core.dispatcher", "dispatcher.core.routing.ring"} <= modules
    assert {"schema_dist.core.plan", "schema_dist.core.absences"} <= modules


@pytest.mark.deep
def test_mutate() -> None:
    """A few mutants of one module, with its own unit tests."""
    tried = ran("-m", "tests.mutation", "--own", "--sample", "5", "retry")
    assert "5 mutants in" in tried.stdout, tried.stdout + tried.stderr


def test_schemas_peers_without_a_registry(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["peers"])
    assert peers.main() == 2
    assert "no registry is named" in capsys.readouterr().err
