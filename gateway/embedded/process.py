"""Child processes that cannot be left behind, and loopback ports for them.

Everything embedded (Kafka, the demo's gateway and consumers) is a child started here. On Linux the
child asks the kernel to be killed when the thread that started it ends (PR_SET_PDEATHSIG), so that
also a SIGKILLed parent leaves nothing running: start children from a thread that lives as long as
they should. Each has a session of its own: Ctrl-C reaches only the parent, which then ends them in
order. Processes are always ended by their own id.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

# Below Linux's ephemeral range (32,768 and up): an outgoing connection can never sit on a port
# found here.
FREE_PORT_MIN = 21_000
FREE_PORT_MAX = 32_000
_handed_out: deque[range] = deque(maxlen=32)

# Runs in the child between fork and exec of the real command: same pid, and no preexec_fn, which is
# unsafe with threads.
_LEASH = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit(0)
os.execvp(sys.argv[2], sys.argv[2:])
"""


class SetupError(Exception):
    """Something this machine lacks or has taken; the text is one line with the remedy."""


def start_child(
    command: Sequence[str],
    *,
    log: Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    pass_fds: tuple[int, ...] = (),
    stdin: int = subprocess.DEVNULL,
) -> subprocess.Popen[bytes]:
    """Starts `command` as a child that dies with this process; stdout and stderr are appended to
    `log` (None: ours); the child inherits `pass_fds`. `stdin`: subprocess.PIPE to write to it.
    """
    leashed = [sys.executable, "-I", "-S", "-c", _LEASH, str(os.getpid()), *command]
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as files:
        out = files.enter_context(log.open("ab")) if log is not None else None
        return subprocess.Popen(
            leashed,
            stdin=stdin,
            stdout=out,
            stderr=out,
            env=env,
            cwd=cwd,
            pass_fds=pass_fds,
            start_new_session=True,
        )


def stop_child(child: subprocess.Popen[bytes], *, grace_s: float = 10.0) -> int:
    """SIGTERM, SIGKILL after `grace_s`; returns the exit status (negative: the signal that ended
    it).
    """
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(grace_s)
        except subprocess.TimeoutExpired:
            child.kill()
    return child.wait()


def kill_child(child: subprocess.Popen[bytes]) -> None:
    """SIGKILL: the child gets no chance to say goodbye."""
    if child.poll() is None:
        child.send_signal(signal.SIGKILL)
    child.wait()


def wait_until(
    done: Callable[[], bool], *, what: str, deadline_s: float, every_s: float = 0.02
) -> None:
    """Polls `done`, with a pause of `every_s`: longer where the question itself costs much. Raises
    TimeoutError naming `what` after `deadline_s`.
    """
    end = time.monotonic() + deadline_s
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {deadline_s:.0f} s")
        time.sleep(every_s)


def port_is_free(port: int, host: str = "127.0.0.1") -> bool:
    """True if a server could listen on `port` now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)  # Linux lets two sockets with SO_REUSEADDR bind; only one may listen.
        except OSError:
            return False
    return True


def free_ports(count: int = 1) -> int:
    """The first of `count` consecutive free loopback ports, none of them among the last that were
    handed out: those may not be bound yet. Raises SetupError if there are none.
    """
    for _ in range(500):
        first = random.randrange(FREE_PORT_MIN, FREE_PORT_MAX - count)
        wanted = range(first, first + count)
        apart = all(wanted.stop <= taken.start or taken.stop <= first for taken in _handed_out)
        if apart and all(port_is_free(port) for port in wanted):
            _handed_out.append(wanted)
            return first
    raise SetupError(
        f"no {count} free ports in {FREE_PORT_MIN}-{FREE_PORT_MAX}: stop the programs that use them"
    )


def require_free(port: int, what: str, how_to_change: str) -> None:
    """Raises SetupError naming `what` if `port` is taken."""
    if not port_is_free(port):
        raise SetupError(f"port {port} ({what}) is taken: stop its program, or {how_to_change}")
