"""Long values, which are not copied: the system has to clear as much memory for a copy, and of 90
MB that holds the event loop up for 100 ms.

`Stretch` is a long value of a message that was read: a part of its frame. `LongBytes` is a long
value of a message that is written: parts of other bytes, one behind the other.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from gateway.core.limits import LONG_STEP_BYTES


@final
class Stretch:
    """`data[start:end]`, never empty. It holds all of `data`."""

    def __init__(self, data: bytes, start: int, end: int) -> None:
        self.data: Final = data
        self.start: Final[int] = start
        self.end: Final[int] = end

    def __len__(self) -> int:
        return self.end - self.start


@final
class LongBytes:
    """`parts` one behind the other."""

    def __init__(self, parts: list[bytes | memoryview]) -> None:
        self.parts: Final = parts
        size: i64 = 0
        for part in parts:
            size += len(part)
        self.size: Final[int] = int(size)

    def __len__(self) -> int:
        return self.size


def view_of(value: bytes | Stretch) -> memoryview:
    if isinstance(value, Stretch):
        return memoryview(value.data)[value.start : value.end]
    return memoryview(value)


def whole(value: bytes | LongBytes) -> bytes:
    """A long value is copied."""
    if isinstance(value, LongBytes):
        return b"".join(value.parts)
    return value


def together(parts: list[bytes | memoryview]) -> bytes | LongBytes:
    """The parts one behind the other, copied unless they are long."""
    if len(parts) == 1 and isinstance(parts[0], bytes):
        return parts[0]
    size: i64 = 0
    for part in parts:
        size += len(part)
    return LongBytes(parts) if size > LONG_STEP_BYTES else b"".join(parts)
