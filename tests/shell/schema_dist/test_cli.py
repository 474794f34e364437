"""The commands' words and exit codes, against registries without Kafka."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from keyway.clusters.config import load
from schema_dist import cli, commands
from schema_dist.commands import Targets
from tests.rig.schema_registry.site import HTTP, served_registry

NOBODY = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def registries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    folder = tmp_path_factory.mktemp("registries")
    with served_registry(folder / "a.log") as a, served_registry(folder / "b.log") as b:
        yield a, b


def config(folder: Path, a: str, b: str, **more: Any) -> str:
    """Two registries that are read over REST; no Kafka."""
    clusters = [
        {
            "name": name,
            "bootstrap_servers": "127.0.0.1:1",
            "subject_pattern": pattern,
            "registry": {"url": url, "reads": "rest"},
        }
        for name, pattern, url in (("a", "acme-{topic}", a), ("b", "{topic}.b", b))
    ]
    whole = {
        "clusters": clusters,
        "tree": {"level": 1, "children": ["a", "b"]},
        "schemas": {"primary": "a"},
        **more,
    }
    path = folder / "clusters.yaml"
    path.write_text(yaml.safe_dump(whole))
    return str(path)


def ended(*words: str) -> Result:
    return CliRunner().invoke(cli.app, words, catch_exceptions=False)


def test_differences_as_a_table_and_as_json(
    registries: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = config(tmp_path, *registries)
    same = ended("diff", path, "a", "b")
    assert (same.exit_code, same.stdout.split()) == (
        0,
        ["a", "and", "b:", "0", "differences", "SUBJECT", "VERSION", "ID", "WHAT"],
    )
    url = f"{registries[0]}/subjects/acme-s-value/versions"
    assert HTTP.post(url, json={"schema": '"int"'}).json() == {"id": 1}
    monkeypatch.setattr(cli, "TOLD_EVERY_S", 0.001)  # as if it took long
    other = ended("diff", path, "a", "b")
    assert other.exit_code == 1
    assert other.stdout.splitlines()[2].split() == [
        "s.b-value",
        "1",
        "1",
        "only",
        "in",
        "the",
        "first",
    ]
    assert "keyway: reading the registry of a ...\n" in other.stderr
    other = ended("diff", path, "a", "b", "-o", "json")
    assert other.exit_code == 1
    found = {"subject": "s.b-value", "version": 1, "id": 1, "what": "only in the first"}
    assert json.loads(other.stdout) == {
        "ok": False,
        "first": "a",
        "second": "b",
        "differences": [found],
    }


def test_a_registry_that_is_away_is_named(tmp_path: Path) -> None:
    answer = ended("diff", config(tmp_path, NOBODY, NOBODY), "a", "b")
    assert (answer.exit_code, answer.stdout) == (3, "")
    assert answer.stderr.startswith(f"keyway: registry {NOBODY}: GET /schemas: ")


@pytest.mark.parametrize("command", ["check", "status"])
def test_a_file_without_a_primary(tmp_path: Path, command: str) -> None:
    answer = ended(command, config(tmp_path, NOBODY, NOBODY, schemas={}))
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert "primary" in answer.stderr


def test_the_status_of_one_target(tmp_path: Path) -> None:
    path = config(tmp_path, NOBODY, NOBODY)
    found = Targets(load(Path(path)), "b").look(within_s=0.1)
    assert found.away == ("b: no answer yet, after 0.1 s",)
    for wrong, says in (("a", "a is the primary, and no target"), ("z", "no cluster z: there are")):
        answer = ended("status", path, "--target", wrong)
        assert (answer.exit_code, answer.stdout) == (2, "")
        assert answer.stderr.startswith(f"keyway: {says}")


def test_a_watch_tells_no_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They would stand among the troubles that the node shows."""
    monkeypatch.setattr(cli, "TOLD_EVERY_S", 0.001)
    looks = iter([commands.Answer(ok=True, fields={"targets": []})])

    async def look(told: commands.OnStep) -> commands.Answer:
        told("asking the clusters")
        await asyncio.sleep(0.05)
        answer = next(looks, None)
        if answer is None:
            raise KeyboardInterrupt
        return answer

    cli._done(look, "json", watch=0.001)
    assert capsys.readouterr() == ('{"ok": true, "targets": []}\n', "")


def test_a_pair_that_makes_one_subject_of_two_is_refused_with_the_two(tmp_path: Path) -> None:
    path = Path(config(tmp_path, NOBODY, NOBODY))
    path.write_text(path.read_text().replace("acme-{topic}", "'{site}-{topic}'"))
    answer = ended("check", str(path))
    assert answer.exit_code == 2
    for name in ("'site1-orders'", "'other-orders'", "'orders'"):
        assert name in answer.stderr


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    answer = ended("diff", config(tmp_path, NOBODY, NOBODY), "a", "z")
    assert (answer.exit_code, answer.stderr) == (2, "keyway: no cluster z: there are a, b\n")
