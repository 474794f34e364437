"""The gateway as its users run it: a child process with a keyway.yaml of its own."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import yaml

from gateway.embedded.process import free_ports, kill_child, start_child, stop_child
from tests.rig.patience import patient_s, wait_until
from tests.rig.quick_start import OF_THE_CHECKOUT, started
from tests.rig.quick_start import REPOSITORY as REPOSITORY

READY_S_MAX = 60.0
BROKER_IDS_MAX = 4  # ports kept free for virtual brokers 1..4

# See conftest.py: stock clients against the broker itself.
DIRECT = os.environ.get("KEYWAY_TESTS_DIRECT") == "1"

Settings = dict[str, Any]


class GatewayProcess:
    """One `keyway serve`. Ports, config and state directory stay the same over restarts."""

    def __init__(
        self,
        directory: Path,
        upstream: str,
        *,
        groups: Sequence[Settings] = (),
        redis_url: str | None = None,
        listen: Mapping[str, Any] | None = None,
        listeners: Sequence[Settings] = (),
        state: Mapping[str, Any] | None = None,
        admin: Mapping[str, Any] | None = None,
        nodes: Mapping[str, Any] | None = None,
        limits: Sequence[Settings] = (),
        sasl: Mapping[str, Any] | None = None,
        repartition: Mapping[str, Any] | None = None,
        open_files_max: int | None = None,
        stderr: str | None = None,
        command: Sequence[str] = OF_THE_CHECKOUT,
        afresh: bool = False,
        workers: int = 1,
    ) -> None:
        """`listeners`: beside the plain one. `sasl`: the node's own identity. `stderr`: where bash
        leads it, such as ">/dev/full"; None: to the log. `command`: of another Keyway than the
        checkout's, which then is not the working directory either.
        `afresh`: a Python of its own, not a fork of one that has imported Keyway.
        """
        directory.mkdir(parents=True, exist_ok=True)
        first = free_ports(BROKER_IDS_MAX * workers + 3)
        self.bootstrap = f"127.0.0.1:{first}"
        self.admin = f"127.0.0.1:{first + 1}"
        self.port_base = first + 2
        self.log = directory / "gateway.log"
        self.state_directory = directory / "state"
        self.config = directory / "keyway.yaml"
        where: Settings = (
            {"directory": str(self.state_directory)}
            if redis_url is None
            else {"redis_url": redis_url}
        )
        plain = {"host": "127.0.0.1", "bootstrap_port": first, "port_base": self.port_base}
        settings: Settings = {
            "upstream": {
                "bootstrap_servers": upstream,
                **({} if sasl is None else {"sasl": dict(sasl)}),
            },
            "listen": {**plain, **(listen or {})}
            if not listeners
            else {"listeners": [{"name": "plain", **plain}, *listeners], **(listen or {})},
            "admin": {"host": "127.0.0.1", "port": first + 1, **(admin or {})},
            "state": {**where, **(state or {})},
            "nodes": dict(nodes or {}),
            "limits": list(limits),
            "repartition": dict(repartition or {}),
            # Members of a test join together, and none of them waits for its partitions.
            "groups": [{"assignment_interval_ms": 0, **group} for group in groups],
        }
        self.config.write_text(yaml.safe_dump(settings, sort_keys=False))
        self.open_files_max = open_files_max
        self.stderr = stderr
        self.command = command
        self.afresh = afresh or command is not OF_THE_CHECKOUT
        self.workers = workers
        self.directory = REPOSITORY if command is OF_THE_CHECKOUT else directory
        self.child: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self.child is not None and self.child.poll() is None

    @property
    def pid(self) -> int:
        assert self.child is not None, "started"
        return self.child.pid

    def address_of(self, broker_id: int) -> str:
        """The virtual broker's address."""
        return f"127.0.0.1:{self.port_base + broker_id}"

    def serves(self, port: int) -> bool:
        """One of its virtual brokers is at this port."""
        return self.port_base < port <= self.port_base + BROKER_IDS_MAX * self.workers

    def start(self) -> Self:
        """Starts it and waits until the bootstrap port answers ApiVersions. Raises AssertionError
        with its log.
        """
        self.spawn()
        self.wait_ready()
        return self

    def spawn(self) -> None:
        """Starts it and returns at once."""
        assert not self.running, "runs already"
        words = ["serve", "--config", str(self.config)]
        if self.workers > 1:
            words += ["--workers", str(self.workers)]
        env = dict(os.environ)
        if self.open_files_max is None and self.stderr is None and not self.afresh:
            self.child = started(words, log=self.log, cwd=self.directory, env=env)
            return
        command = [*self.command, *words]
        if self.open_files_max is not None:
            limited = f'ulimit -n {self.open_files_max}; exec "$@"'
            command = ["sh", "-c", limited, "sh", *command]
        if self.stderr is not None:
            command = ["bash", "-c", f'exec "$@" 2{self.stderr}', "bash", *command]
        self.child = start_child(command, log=self.log, cwd=self.directory, env=env)

    def wait_ready(self) -> None:
        """Until the bootstrap port answers ApiVersions; REST listens by then. Raises AssertionError
        with its log.
        """

        def ready() -> bool:
            assert self.running, f"the gateway ended while starting:\n{self.log_tail()}"
            return answers_api_versions(self.bootstrap)

        try:
            wait_until(ready, what="gateway ready", deadline_s=READY_S_MAX)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        return 0 if self.child is None else stop_child(self.child, grace_s=patient_s(20))

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        if self.child is not None:
            kill_child(self.child)

    def restart(self) -> None:
        self.stop()
        self.start()

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.log_text().splitlines()[-lines:])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def answers_api_versions(address: str) -> bool:
    """True if a Kafka server answers ApiVersions v0 there, with any offer."""
    host, _, port = address.rpartition(":")
    body = struct.pack(">hhih6s", 18, 0, 7, 6, b"keyway")
    try:
        with socket.create_connection((host, int(port)), timeout=2) as line:
            line.sendall(struct.pack(">i", len(body)) + body)
            answer = line.makefile("rb").read(10)
    except OSError:
        return False
    return len(answer) == 10 and struct.unpack(">iih", answer)[1:] == (7, 0)
