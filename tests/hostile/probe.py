"""A client that asks for ApiVersions every 10 ms and notes how long each answer took.

`python -m tests.hostile.probe ADDRESS SECONDS FILE [NAME PASSWORD]` asks for so long, or until
SIGTERM, and fills FILE, pair by pair, with 64-bit numbers: when it asked and how long the answer
took, both in ns of the monotonic clock. With a name it logs in first (PLAIN). A connection that is
refused or closed is opened again; the wait until then counts.
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
    address, seconds, file, *login = arguments
    logging_in = b""
    if login:
        name, password = (word.encode() for word in login)
        logging_in = shaking("PLAIN") + authenticating(b"\0%b\0%b" % (name, password))
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
                if line is None:
                    line = socket.create_connection((host, int(port)), timeout=ANSWER_S_MAX)
                    if logging_in:
                        line.sendall(logging_in)
                        _answer(line)
                        _answer(line)
                line.sendall(ASKED)
                _answer(line)
                break
            except OSError:
                line = None
                if time.monotonic() > end or over.is_set():
                    break
                time.sleep(EVERY_S)
        took_ns = time.monotonic_ns() - asked_ns
        found.write(array("q", (asked_ns, took_ns)).tobytes())
        time.sleep(max(0.0, EVERY_S - took_ns / 1e9))


def shaking(mechanism: str) -> bytes:
    """SaslHandshake v1."""
    text = mechanism.encode()
    return _framed(17, 1, struct.pack(f">h{len(text)}s", len(text), text))


def authenticating(token: bytes) -> bytes:
    """SaslAuthenticate v1."""
    return _framed(36, 1, struct.pack(f">i{len(token)}s", len(token), token))


def _framed(key: int, version: int, body: bytes) -> bytes:
    head = struct.pack(">hhih6s", key, version, 7, 6, b"keyway")
    return struct.pack(">i", len(head) + len(body)) + head + body


def _answer(line: socket.socket) -> None:
    """Raises OSError."""
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
