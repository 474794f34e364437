"""Command groups of other packages: listed without loading them, loaded when they are called."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import typer.main
from typer.testing import CliRunner

from gateway.cli import commands
from gateway.cli.main import app

# Needed by distribution alone. A plain gateway must start without it.
EXTRAS = ("pyspark", "pyarrow", "confluent_kafka", "xxhash", "fastavro")


def test_help_lists_every_group_and_loads_none() -> None:
    code = (
        "import sys; sys.argv = ['keyway', '--help']\n"
        "from gateway.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        f"print('loaded', sorted(set({EXTRAS!r}) & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "loaded []" in shown.stdout
    for name in commands.GROUPS:
        assert f" {name} " in shown.stdout


@pytest.mark.parametrize("name", commands.GROUPS)
def test_a_group_is_loaded_when_it_is_called(name: str) -> None:
    shown = CliRunner().invoke(app, [name, "--help"])
    assert shown.exit_code == 0, shown.output
    assert "Commands" in shown.output
    assert "completion" not in shown.output, "`keyway` itself installs it, for all"


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(commands.GROUPS, "lacking", ("tests.no_such_module", "text"))
    ended = CliRunner().invoke(app, ["lacking", "--help"])
    assert ended.exit_code == 2
    assert ended.output.strip().endswith("pip install 'keyway-gateway[distribution]'")


@pytest.mark.parametrize("name", ["group", "context", "serve", "doctor", *commands.GROUPS])
def test_wrong_options_are_one_line_everywhere(name: str) -> None:
    ended = CliRunner().invoke(app, [name, "--nonsense"])
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr == f"keyway: no such option: --nonsense (try keyway {name} --help)\n"


def test_own_commands_are_still_there() -> None:
    root = typer.main.get_command(app)
    assert {"serve", "group", "filter"} <= set(root.list_commands(None))  # type: ignore[attr-defined]


def completed(words: str) -> list[str]:
    """The offers of a shell for the word behind these."""
    asked = {
        "_KEYWAY_COMPLETE": "complete_bash",
        "COMP_WORDS": f"keyway {words}",
        "COMP_CWORD": str(len(words.split()) + 1),
    }
    return CliRunner().invoke(app, [], env=asked).output.split()


def test_shells_complete_commands_and_load_none() -> None:
    assert {"list", "describe", "seek"} <= set(completed("group"))
    code = "import sys\nfrom gateway.cli.main import main\ntry: main()\nexcept SystemExit: pass\n"
    shown = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{code}print('loaded', sorted(set({EXTRAS!r}) & set(sys.modules)))",
        ],
        env={
            **os.environ,
            "_KEYWAY_COMPLETE": "complete_bash",
            "COMP_WORDS": "keyway ",
            "COMP_CWORD": "1",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert {"group", "top", *commands.GROUPS} <= set(shown.stdout.split("\n"))
    assert "loaded []" in shown.stdout


def test_a_shell_that_completes_hears_of_no_missing_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(commands.GROUPS, "lacking", ("tests.no_such_module", "text"))
    assert "lacking" in completed("")
    assert completed("lacking") == []
