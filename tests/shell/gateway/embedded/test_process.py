"""Child processes end as they should, and free ports are free."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from gateway.embedded import process
from gateway.embedded.process import (
    SetupError,
    free_ports,
    kill_child,
    port_is_free,
    require_free,
    start_child,
    stop_child,
    wait_until,
)

SLEEPS = [sys.executable, "-c", "import sys, time; print('up', flush=True); time.sleep(600)"]
DEAF = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    " print('up', flush=True); time.sleep(600)",
]


def start(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    child = start_child(command, log=log)
    wait_until(lambda: log.exists() and "up" in log.read_text(), what="up", deadline_s=20)
    return child


def test_stop_is_a_sigterm(tmp_path: Path) -> None:
    assert stop_child(start(SLEEPS, tmp_path / "log")) == -signal.SIGTERM


def test_stop_kills_what_does_not_listen(tmp_path: Path) -> None:
    assert stop_child(start(DEAF, tmp_path / "log"), grace_s=0.1) == -signal.SIGKILL


def test_kill_and_stop_of_an_ended_child_are_harmless(tmp_path: Path) -> None:
    child = start(SLEEPS, tmp_path / "log")
    kill_child(child)
    kill_child(child)
    assert stop_child(child) == -signal.SIGKILL


def test_child_dies_with_a_killed_parent(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from gateway.embedded.process import start_child\n"
        f"print(start_child({SLEEPS!r}, log=Path(sys.argv[1])).pid, flush=True)\n"
        "sys.stdin.read()"
    )
    log = tmp_path / "log"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(log)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        wait_until(lambda: log.exists() and "up" in log.read_text(), what="up", deadline_s=20)
        parent.kill()
    wait_until(
        lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE,
        what="the child gone",
        deadline_s=20,
    )


def test_free_ports_can_be_listened_on() -> None:
    first = free_ports(3)
    with socket.create_server(("127.0.0.1", first + 1)):
        assert port_is_free(first)
        assert not port_is_free(first + 1)
        require_free(first, "one", "two")
        with pytest.raises(SetupError, match=rf"^port {first + 1} \(the thing\) is taken: .*move$"):
            require_free(first + 1, "the thing", "move")


def test_free_ports_are_handed_out_once_though_nobody_listens_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = free_ports(4)
    process._handed_out.clear()
    monkeypatch.setattr(process, "FREE_PORT_MIN", first)
    monkeypatch.setattr(process, "FREE_PORT_MAX", first + 5)
    assert sorted(free_ports(1) for _ in range(4)) == list(range(first, first + 4))
    with pytest.raises(SetupError, match="no 1 free ports"):
        free_ports(1)


def test_wait_names_what_did_not_come() -> None:
    with pytest.raises(TimeoutError, match="the bus: not within 0 s"):
        wait_until(lambda: False, what="the bus", deadline_s=0)
