"""The start of Spark's JVM without its remarks about incubator modules, host names and native
libraries: they tell a reader of a command's output nothing. They are shown if the start fails.

The JVM inherits stderr and keeps it, so a pipe stands in its place for as long as the JVM lives.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

_STARTED, _FAILED = b"\0started\0", b"\0failed\0"
_CHUNK_BYTES = 65_536


@contextmanager
def quiet_start() -> Iterator[None]:
    """Around the start."""
    reads, writes = os.pipe()
    sys.stderr.flush()
    stderr, over = os.dup(2), Event()
    os.dup2(writes, 2)
    os.close(writes)
    Thread(target=_relay, args=(reads, stderr, over), daemon=True).start()
    word = _FAILED
    try:
        yield
        word = _STARTED
    finally:
        sys.stderr.flush()
        os.write(2, word)  # behind all that was said before
        os.dup2(stderr, 2)
        over.wait()


def _relay(reads: int, stderr: int, over: Event) -> None:
    said = b""
    while not over.is_set():
        said += os.read(reads, _CHUNK_BYTES)
        for word in (_STARTED, _FAILED):
            before, found, behind = said.partition(word)
            if found:
                shown = before if word == _FAILED else _errors(before)
                os.write(stderr, shown + behind)
                over.set()
    while chunk := os.read(reads, _CHUNK_BYTES):
        os.write(stderr, chunk)


def _errors(said: bytes) -> bytes:
    lines = said.splitlines(keepends=True)
    return b"".join(line for line in lines if b" ERROR " in line)
