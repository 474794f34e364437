"""deploy/keyway.service and the page about it, against the command and the configuration."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
import typer.main

from gateway.cli.main import app
from gateway.listen.limits import DESCRIPTORS_RESERVED

ROOT = Path(__file__).resolve().parent.parent
UNIT = ROOT / "deploy" / "keyway.service"
PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")


def settings() -> dict[str, list[str]]:
    """Of all sections: no name stands in two of them."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in UNIT.read_text(encoding="utf-8").splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            found[name].append(value)
    return found


def test_its_command_is_one_the_cli_takes() -> None:
    (line,) = settings()["ExecStart"]
    program, *words = shlex.split(line)
    assert Path(program).is_absolute()
    assert Path(program).name == "keyway"
    root = typer.main.get_command(app)
    with root.make_context("keyway", list(words)) as context:
        name, command, rest = root.resolve_command(context, list(words))  # type: ignore[attr-defined]
        with command.make_context(name, rest, parent=context) as inner:
            assert name == "serve"
            assert inner.params["config"] == Path("/etc/keyway/keyway.yaml")


def test_it_gives_the_node_its_files_and_its_time() -> None:
    unit = settings()
    assert unit["WorkingDirectory"] == [f"/var/lib/{unit['StateDirectory'][0]}"], (
        "the only place that it may write to, and a relative state.directory is below it"
    )
    assert unit["KillSignal"] == ["SIGTERM"]
    assert unit["KillMode"] == ["mixed"], "its Redis must outlive the node's last write"
    assert int(unit["LimitNOFILE"][0]) > DESCRIPTORS_RESERVED
    assert unit["LimitCORE"] == ["0"], "a dump of its memory would hold passwords"
    assert unit["RestrictAddressFamilies"] == ["AF_INET AF_INET6 AF_UNIX"]
    assert "MemoryDenyWriteExecute" not in unit, "not tried with the compiled modules"


def test_names_stand_once_but_for_lists() -> None:
    assert [name for name, values in settings().items() if len(values) > 1] == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd on this machine")
def test_systemd_knows_every_setting(tmp_path: Path) -> None:
    """The program is another one: /opt/keyway is not on the machine of a test."""
    text = UNIT.read_text(encoding="utf-8")
    copy = tmp_path / UNIT.name
    copy.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.M))
    finished = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    ours = [line for line in finished.stderr.splitlines() if copy.name in line]
    assert ours == [], finished.stderr


def test_the_page_names_what_the_unit_uses() -> None:
    unit = settings()
    (command,) = unit["ExecStart"]
    for place in (command.split()[0], "/etc/keyway/keyway.yaml", unit["WorkingDirectory"][0]):
        assert place in PAGE
    assert "`deploy/keyway.service`" in PAGE
