"""The `keyway` command of this checkout as a child process: a fork of a process that has imported
all of it (fork_server.py). Each test process has a server of its own, from its first start on.

Tests of starting itself and of memory, and programs that measure, start it afresh, with
`start_child`.
"""

from __future__ import annotations

import atexit
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import BinaryIO

from gateway.embedded.process import start_child, wait_until
from tests.rig import fork_server

REPOSITORY = Path(__file__).resolve().parents[2]
OF_THE_CHECKOUT = (sys.executable, "-m", "gateway.cli")
READY_S_MAX = 300.0
_allowed = False


def allow() -> None:
    """From now on `started` forks. (tests.bench never asks for it.)"""
    global _allowed
    _allowed = True


class Forked(subprocess.Popen[bytes]):
    """A process that is the server's child: its exit status comes on a line."""

    def __init__(
        self,
        arguments: Sequence[str],
        directory: Path,
        environment: Mapping[str, str],
        out: BinaryIO,
        err: BinaryIO,
    ) -> None:
        self._child_created = False  # The base class has no child of its own to wait for.
        self.args = ["keyway", *arguments]
        self.stdin = self.stdout = self.stderr = None
        self.returncode: int | None = None
        with open(os.devnull, "rb") as nothing:
            streams = (nothing.fileno(), out.fileno(), err.fileno())
            self._line = fork_server.ask(
                server(), list(arguments), str(directory), dict(environment), streams
            )
        self._words = self._line.makefile()
        self.pid = int(self._words.readline())

    def poll(self) -> int | None:
        if self.returncode is None and self._ended_within(0):
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not self._ended_within(timeout):
                assert timeout is not None
                raise subprocess.TimeoutExpired(self.args, timeout)
            self.returncode = int(self._words.readline())
            self._words.close()
            self._line.close()
        return self.returncode

    def _ended_within(self, timeout_s: float | None) -> bool:
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        return bool(poll.poll(None if timeout_s is None else timeout_s * 1_000))


def started(
    arguments: Sequence[str], *, log: Path, cwd: Path, env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """As `start_child`, of `keyway` with these arguments."""
    if not _allowed:
        return start_child([*OF_THE_CHECKOUT, *arguments], log=log, cwd=cwd, env=env)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        return Forked(arguments, cwd, env, out, out)


def ran(
    arguments: Sequence[str],
    *,
    timeout_s: float,
    cwd: Path = REPOSITORY,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """As subprocess.run(): raises TimeoutExpired, after the process has been killed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = Forked(arguments, cwd, os.environ if env is None else env, out, err)
        try:
            status = process.wait(timeout_s)
        finally:
            process.kill()
        written = []
        for stream in (out, err):
            stream.seek(0)
            written.append(stream.read().decode())
    return subprocess.CompletedProcess(process.args, status, *written)


@cache
def server() -> str:
    """Its address. It ends when its stdin does, so with this process at the latest."""
    folder = Path(tempfile.mkdtemp(prefix="keyway-forks-"))
    address, log = folder / "socket", folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, fork_server.__file__, "serve", str(address)],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )

    def end() -> None:
        process.communicate()
        shutil.rmtree(folder, ignore_errors=True)

    def listens() -> bool:
        assert process.poll() is None, log.read_text()
        return address.exists()

    atexit.register(end)
    wait_until(listens, what="the server of quick starts", deadline_s=READY_S_MAX)
    return str(address)
