"""The `keyway` command as a process, and its output as it comes."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from typing import Any

from tests.rig.gateway_process import REPOSITORY
from tests.rig.patience import patient_s


def until(read: int, wanted: str, within_s: float = 30.0) -> str:
    """The output of a command up to and with `wanted`."""
    seen = ""
    deadline = time.monotonic() + patient_s(within_s)
    while wanted not in seen:
        left = deadline - time.monotonic()
        assert left > 0, f"no {wanted!r} in {seen!r}"
        if select.select([read], [], [], left)[0]:
            seen += os.read(read, 65_536).decode()
    return seen


def started(*arguments: str, **streams: Any) -> subprocess.Popen[bytes]:
    """Takes SIGINT, also where the tests run in the background of a shell, which ignores it."""
    command = [sys.executable, "-m", "gateway.cli", *arguments]
    return subprocess.Popen(command, cwd=REPOSITORY, preexec_fn=_interruptible, **streams)


def _interruptible() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
