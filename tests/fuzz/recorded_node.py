"""`python -m tests.fuzz.recorded_node FILE keyway-arguments...`: a node that writes down the bytes
of its clients, of upstream, and of its own answers, per connection.

Each entry of the file: connection (4 bytes), direction (1 byte), length (4 bytes), the bytes.
"""

from __future__ import annotations

import itertools
import struct
import sys
from pathlib import Path
from typing import Any, BinaryIO

from gateway.cli.main import app
from gateway.core.forwarding.connection_state import ConnectionState
from gateway.core.forwarding.effects import Effect
from gateway.listen import connection

ENTRY = struct.Struct(">IcI")
CLIENT, UPSTREAM, ANSWER = b"c", b"u", b"a"


class RecordedState:
    """A ConnectionState and its notes."""

    numbers = itertools.count()
    file: BinaryIO

    def __init__(self, *arguments: Any) -> None:
        self._state = ConnectionState(*arguments)
        self._number = next(self.numbers)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)

    def from_client(self, data: bytes, now_ns: int) -> list[Effect]:
        self._note(CLIENT, data)
        return self._state.from_client(data, now_ns)

    def from_upstream(self, data: bytes, now_ns: int) -> list[Effect]:
        self._note(UPSTREAM, data)
        return self._state.from_upstream(data, now_ns)

    def answered(self, frame: bytes, now_ns: int) -> list[Effect]:
        self._note(ANSWER, frame)
        return self._state.answered(frame, now_ns)

    def _note(self, direction: bytes, data: bytes) -> None:
        self.file.write(ENTRY.pack(self._number, direction, len(data)) + bytes(data))


def main() -> None:
    with Path(sys.argv[1]).open("wb") as file:
        RecordedState.file = file
        setattr(connection, "ConnectionState", RecordedState)  # noqa: B010 - not exported
        app(sys.argv[2:])


if __name__ == "__main__":
    main()
