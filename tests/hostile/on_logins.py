"""Attacks through logins, on a listener where the gateway authenticates clients itself."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable

from gateway.core.identity.limits import BEARER_TOKEN_BYTES_MAX
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.frames import request_frame
from tests.hostile.probe import authenticating, shaking
from tests.hostile.target import Target, connected, frame, until

AT_ONCE = 16
STOPPED = 500
ANSWER_S_MAX = 30.0
SCRAM_FIRST = b"n,,n=victim,r=nonce"
METADATA = frame(ApiKey.METADATA, 9, {"Topics": None})
VERSIONS = request_frame(ApiKey.API_VERSIONS, 0, 1, "attacker", b"")


def wrong_passwords(target: Target, seconds: float) -> str:
    """Passwords of a known name and of unknown ones are guessed, sixteen at a time."""

    def guess(at: int) -> bytes:
        name = b"victim" if at % 2 else b"stranger-%d" % at
        return shaking("PLAIN") + authenticating(b"\0%b\0guess-%d" % (name, at))

    return f"{_attempts(target, seconds, guess)} guesses, none right"


def malformed_logins(target: Target, seconds: float) -> str:
    """Messages that are none of their mechanism, as long as they may be, and longer."""
    tries = [
        shaking(mechanism) + authenticating(token)
        for mechanism, token in (
            ("PLAIN", b""),
            ("PLAIN", b"\0" * 4_000),
            ("PLAIN", b"\xff\xfe" * 1_000),
            ("PLAIN", b"\0victim\0" + b"x" * 400_000),
            ("SCRAM-SHA-512", b"n,," + b"a=b," * 1_000),
            ("SCRAM-SHA-512", SCRAM_FIRST + b",x=y" * 900 + b","),
            ("SCRAM-SHA-256", b"p=tls-unique,,n=victim,r=n"),
            ("OAUTHBEARER", b"n,,\x01auth=Bearer a.b.c\x01"),
            ("OAUTHBEARER", b"n,,\x01auth=Bearer a.b.c\x01\x01"),
            ("GSSAPI", b""),
            ("x" * 2_000, b""),
        )
    ]
    count = _attempts(target, seconds, lambda at: tries[at % len(tries)])
    return f"{count} malformed logins, all refused"


def long_bearer_messages(target: Target, seconds: float) -> str:
    """Messages of OAUTHBEARER as long as they may be, of what is dear to read or looks like it."""
    longest = BEARER_TOKEN_BYTES_MAX - 100

    def filled(head: bytes, part: bytes, end: bytes) -> bytes:
        message = b"n," + head + part * (longest // len(part)) + end
        return shaking("OAUTHBEARER") + authenticating(message)

    tries = (
        filled(b",\x01", b"\x01", b""),
        filled(b",\x01", b"a=b\x01", b"\x01"),
        filled(b",\x01", b"auth=bearer x\x01", b"!"),
        filled(b",\x01auth=Bearer ", b" ", b"\x01\x01"),
        filled(b",\x01auth=Bearer ", b"a", b"\x01\x01"),
        filled(b",\x01auth=Bearer ", b"a.b.", b"\x01\x01"),
        filled(b",\x01auth=Bearer W1tb", b"W1tb", b".a.b\x01\x01"),  # a header of brackets
        filled(b"a=", b"=2C", b",\x01\x01"),
    )
    count = _attempts(target, seconds, lambda at: tries[at % len(tries)])
    return f"{count} long messages, all refused"


def logins_that_stop(target: Target, seconds: float) -> str:
    """500 clients each stop at another place of their login, and stay."""
    scram = shaking("SCRAM-SHA-512")
    half = authenticating(b"x" * 60_000)[:30_000]
    places = (
        b"",
        VERSIONS,
        VERSIONS + scram,
        scram + authenticating(SCRAM_FIRST),
        scram + half,
        scram[: len(scram) // 2],
    )
    lines = [connected(target.broker) for _ in range(STOPPED)]
    for at, line in enumerate(lines):
        line.sendall(places[at % len(places)])
    time.sleep(seconds)
    cut = sum(_is_closed(line) for line in lines)
    for line in lines:
        line.close()
    assert not cut, f"{cut} of {STOPPED} were closed, within {seconds:.0f} s"
    return f"{STOPPED} clients in the middle of a login"


def wrong_order(target: Target, seconds: float) -> str:
    """Requests before the login, in the middle of one, and behind one that fails."""
    scram = shaking("SCRAM-SHA-512")
    orders: tuple[Callable[[], bytes], ...] = (
        lambda: METADATA,
        lambda: VERSIONS + METADATA,
        lambda: VERSIONS + VERSIONS,
        lambda: scram + METADATA,
        lambda: scram + scram,
        lambda: authenticating(b"\0victim\0guess"),
        lambda: shaking("PLAIN") + authenticating(b"\0victim\0guess") + METADATA * 50,
        lambda: scram + authenticating(SCRAM_FIRST) * 2,
        lambda: shaking("PLAIN") + os.urandom(64),
    )
    count = _attempts(target, seconds, lambda at: orders[at % len(orders)]())
    return f"{count} connections, none let in"


def _attempts(target: Target, seconds: float, sent: Callable[[int], bytes]) -> int:
    """How many clients sent theirs, AT_ONCE at a time; each is cut off by the node."""
    count = 0
    for _ in until(seconds):
        lines = [connected(target.broker) for _ in range(AT_ONCE)]
        for line in lines:
            with contextlib.suppress(ConnectionError):
                line.sendall(sent(count))
            count += 1
        for line in lines:
            _until_closed(line)
    return count


def _until_closed(line: socket.socket) -> None:
    """Reads what comes; fails if it is no refusal."""
    line.settimeout(ANSWER_S_MAX)
    came = b""
    with contextlib.suppress(ConnectionError):
        while chunk := line.recv(65_536):
            came += chunk
    line.close()
    assert b"attacked" not in came, "the name of a topic, without a login"


def _is_closed(line: socket.socket) -> bool:
    line.setblocking(False)
    try:
        while chunk := line.recv(65_536):
            assert b"attacked" not in chunk, "the name of a topic, without a login"
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    return True
