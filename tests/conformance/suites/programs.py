"""Programs that a suite runs: to their end, within a bound, with their last words if they fail."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from rich import print as show

from gateway.embedded.process import kill_child
from tests.conformance.suites.compared import PASSED
from tests.rig.patience import patient_s

PROGRAM_S_MAX = 60.0
WORDS_MAX = 300


def ran(
    command: Sequence[str],
    *,
    stdin: str = "",
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    seconds_max: float = PROGRAM_S_MAX,
    check: bool = True,
) -> str:
    """Its standard output. Raises AssertionError with its last words."""
    try:
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=patient_s(seconds_max),
            cwd=cwd,
            env={**os.environ, **(environment or {})},
        )
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"no end after {error.timeout:.0f} s") from error
    words = (done.stdout[-WORDS_MAX:] + done.stderr[:WORDS_MAX]).strip()
    assert not check or done.returncode == 0, f"ended with {done.returncode}: {words}"
    return done.stdout


@contextmanager
def ended(child: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Killed at the end, if it runs then."""
    try:
        yield child
    finally:
        kill_child(child)


def verdicts(
    checks: Iterable[tuple[str, Callable[[], None]]], failures: tuple[type[Exception], ...] = ()
) -> dict[str, str]:
    """Each check by its name: passed, or the words of what it raised: AssertionError, an error of
    the machine or of librdkafka, or one of `failures`.
    """
    known: tuple[type[Exception], ...] = (AssertionError, OSError, ValueError, KafkaException)
    found = {}
    for name, check in checks:
        began = time.monotonic()
        try:
            check()
            found[name] = PASSED
        except (*known, *failures) as error:
            found[name] = f"failed: {' '.join(str(error).split())[:WORDS_MAX]}"
        show(f"    {name}: {time.monotonic() - began:.1f} s")
    return found
