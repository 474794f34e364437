"""The short forms of campaigns that need servers: they run, and are not judged by their bars."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.embedded.kafka import KafkaCluster
from tests.bench import beside, schema_view, workers
from tests.bench import repartition as bench_repartition
from tests.bench.__main__ import throughput
from tests.bench.cases import CASES, Bench
from tests.bench.latency import Load
from tests.hostile.attacks import ROWS
from tests.hostile.site import Site as AttackedSite
from tests.peers import __main__ as peers
from tests.peers import test_peers
from tests.peers.registries import peer
from tests.rig.clients.java_programs import JavaPrograms
from tests.rig.gateway_process import REPOSITORY, GatewayProcess
from tests.rig.schema_registry.site import served_registry

pytestmark = [pytest.mark.deep, pytest.mark.integration]


def test_bench(
    kafka: KafkaCluster,
    gateway: GatewayProcess,
    java_programs: JavaPrograms,
    tmp_path: Path,
    fresh_name: Callable[[str], str],
) -> None:
    bench = Bench(
        kafka,
        gateway,
        java_programs,
        records=2_000,
        max_poll_records=500,
        run_s_max=300,
        directory=tmp_path,
        keyed_topic=fresh_name("keyed"),
        plain_topic=fresh_name("plain"),
    )
    names = ("keyed librdkafka: Keyway", "producer-perf: Keyway")
    failures: list[str] = []
    rows = throughput(bench, {name: CASES[name] for name in names}, iter([0]), failures)
    assert failures == []
    assert {row.name.partition(": gateway")[0].partition(": client")[0] for row in rows} == {*names}


def test_bench_beside(
    kafka: KafkaCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    load = Load(per_second=500, warmup_s=0.5, judged_s=1)
    monkeypatch.setattr(beside, "LOAD", load)
    monkeypatch.setattr(beside, "CASES", {"producer-perf": beside.CASES["producer-perf"]})
    with beside.both(kafka, REPOSITORY, 2_000, tmp_path) as benches:
        beside.told(beside.measured(benches, 1), "itself")
    said = capsys.readouterr().out
    assert "producer-perf: this" in said
    assert "share consumer p99: other" in said


def test_bench_repartition(
    kafka: KafkaCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    load = Load(per_second=500, warmup_s=0.5, judged_s=1)
    monkeypatch.setattr(beside, "LOAD", load)
    monkeypatch.setattr(beside, "CASES", {"producer-perf": beside.CASES["producer-perf"]})
    ratios = bench_repartition.told(bench_repartition.latency(kafka, tmp_path, 4))
    assert set(ratios) >= {"at rest", "while it grows, keys that stay"}
    assert "p99" in capsys.readouterr().out
    with bench_repartition.idle(kafka, tmp_path / "idle", 2_000) as benches:
        beside.told(beside.measured(benches, 1), "itself")


def test_bench_workers(
    kafka: KafkaCluster,
    tmp_path: Path,
    fresh_name: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "MEMBERS", 4)
    found = workers.measured(kafka, tmp_path, fresh_name("orders"), 2_000, 1)
    assert all(cost > 0 and rate > 0 for runs in found.values() for cost, rate in runs)
    assert found.keys() == {1, 2}


def test_hostile(kafka: KafkaCluster, tmp_path: Path) -> None:
    with AttackedSite(tmp_path, kafka) as site:
        found = site.attacked(ROWS["byte_by_byte"], 0.5)
    assert found.did
    assert found.victim.p50 > 0


def test_bench_view(kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"VERSIONS": 60, "SUBJECTS": 6, "PHASE_S": 0.5}.items():
        monkeypatch.setattr(schema_view, name, value)
    found = schema_view.measured(tmp_path, kafka.bootstrap_servers)
    assert {"rest", "look_ups", "registrations", "again"} == found.keys()
    assert all(phase["view"]["count"] for phase in found.values())
    schema_view.missed(found)


def test_schemas_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the tests' own registry in the part of one that runs already: it is found and asked."""
    asked: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(os, "environ", dict(os.environ))  # the campaign adds the registry's own
    monkeypatch.setattr(subprocess, "run", run)
    with served_registry(tmp_path / "theirs.log") as url:
        monkeypatch.setattr(sys, "argv", ["peers", "--import", url, "-k", "killed"])
        assert peers.main() == 0
        found = peer("import")
        number = found.register("orders-value", {"schema": '"string"'})
        assert found.shown("orders-value") == {1: (number, True)}
    ((*_, folder, option, name),) = asked
    assert (folder, option, name) == ("tests/peers", "-k", "killed")
    assert test_peers.KILLS
