"""A client that asks for ApiVersions every 10 ms and notes how long each answer took.

`python -m tests.hostile.probe ADDRESS SECONDS FILE` asks for so long, or until SIGTERM, and fills
FILE, pair by pair, with 64-bit numbers: when it asked and how long the answer took, both in ns of
the monotonic clock. A connection that is refused or closed is opened again; the wait until then
counts.
"""

from __future__ import annotations

import signal
import socket
import struct
import sys
import threading
import time
from array import array
from pathlib import Path

EVERY_S = 0.01
ANSWER_S_MAX = 60.0
_BODY = struct.pack(">hhih6s", 18, 0, 7, 6, b"keyway")
ASKED = struct.pack(">i", len(_BODY)) + _BODY


def main(arguments: list[str]) -> None:
    address, seconds, file = arguments
    host, _, port = address.rpartition(":")
    end = time.monotonic() + float(seconds)
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    line: socket.socket | None = None
    found = Path(file).open("wb", buffering=0)  # noqa: SIM115  the process ends with it
    while time.monotonic() < end and not over.is_set():
        asked_ns = time.monotonic_ns()
        while True:
            try:
                line = line or socket.create_connection((host, int(port)), timeout=ANSWER_S_MAX)
                _ask(line)
                break
            except OSError:
                line = None
                if time.monotonic() > end or over.is_set():
                    break
                time.sleep(EVERY_S)
        took_ns = time.monotonic_ns() - asked_ns
        found.write(array("q", (asked_ns, took_ns)).tobytes())
        time.sleep(max(0.0, EVERY_S - took_ns / 1e9))


def _ask(line: socket.socket) -> None:
    """Raises OSError."""
    line.sendall(ASKED)
    left = 4
    data = b""
    while left:
        chunk = line.recv(left)
        if not chunk:
            raise ConnectionError("closed")
        data += chunk
        left -= len(chunk)
        if left == 0 and len(data) == 4:
            left = int.from_bytes(data, "big")


if __name__ == "__main__":
    main(sys.argv[1:])
