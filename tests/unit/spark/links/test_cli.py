"""`keyway distribute` without Kafka or Spark: a fault that a user can mend is one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from gateway.cli.main import app
from keyway.terminal.exits import Exit

TWO = """
clusters:
  - {name: c1, bootstrap_servers: "127.0.0.1:1"}
  - {name: c2, bootstrap_servers: "127.0.0.1:1"}
tree: {level: 1, children: [c1, c2]}
"""


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "clusters.yaml"
    path.write_text(text)
    return str(path)


def test_help_names_every_command() -> None:
    shown = CliRunner().invoke(app, ["distribute", "--help"]).output
    for command in ("check", "run", "status", "switch", "verify"):
        assert command in shown


def test_a_wrong_file_is_one_line(tmp_path: Path) -> None:
    path = written(tmp_path, TWO.replace("level: 1", "level: 33"))
    for command in (["check", path], ["run", path, "--cluster", "c1"], ["status", path]):
        ended = CliRunner().invoke(app, ["distribute", *command])
        assert ended.exit_code == 2
        assert "tree: the node of c1, c2 has level 33" in ended.output


def test_a_link_that_is_not_there(tmp_path: Path) -> None:
    path = written(tmp_path, TWO)
    wrong = ["switch", path, "--cluster", "c1", "--level", "2", "--to", "c2"]
    ended = CliRunner().invoke(app, ["distribute", *wrong])
    assert (ended.exit_code, "its levels are 1" in ended.output) == (2, True)


def test_a_missing_package_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    ended = CliRunner().invoke(app, ["distribute", "status", written(tmp_path, TWO)])
    assert ended.exit_code == 2
    assert "pip install 'keyway-gateway[distribution]'" in ended.output


def test_the_status_of_clusters_that_are_away(tmp_path: Path) -> None:
    ended = CliRunner().invoke(app, ["distribute", "status", written(tmp_path, TWO), "-o", "yaml"])
    assert [(row["link"], row["state"]) for row in yaml.safe_load(ended.stdout)] == [
        ("c1-level-1", "unknown"),
        ("c2-level-1", "unknown"),
    ]
    assert ended.exit_code == Exit.AWAY


def test_the_status_of_one_link(tmp_path: Path) -> None:
    command = ["distribute", "status", written(tmp_path, TWO), "-o", "yaml", "--link"]
    ended = CliRunner().invoke(app, [*command, "c2-level-1"])
    assert [row["link"] for row in yaml.safe_load(ended.stdout)] == ["c2-level-1"]
    ended = CliRunner().invoke(app, [*command, "c2"])
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr == "keyway: no link c2: there are c1-level-1, c2-level-1\n"
