"""No test below tests/unit opens a socket or starts a process: such tests are in tests/shell."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

OUTSIDE = {"socket.bind", "socket.connect", "subprocess.Popen", "os.fork", "os.posix_spawn"}
_seen: list[str] | None = None  # of the unit test that runs


def note(event: str, arguments: tuple[Any, ...]) -> None:
    if _seen is not None and event in OUTSIDE:
        _seen.append(f"{event}{arguments[1:] if event.startswith('socket') else arguments[:2]}")


sys.addaudithook(note)


@pytest.fixture(autouse=True)
def nothing_outside_this_process() -> Iterator[None]:
    global _seen
    seen: list[str] = []
    _seen = seen
    yield
    _seen = None
    assert seen == [], "tests/unit is pure"
