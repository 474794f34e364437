"""Steps of windows as calls of window.lua, in the bytes of Redis's protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dispatcher.store.operations import Argument

WINDOWS_PER_CALL: Final = 64  # some 0.5 ms of Redis; then others have their turn
_LENGTHS: Final = [b"$%d\r\n" % size for size in range(256)]
_APPLY: Final = b"$5\r\napply\r\n"


def apply_calls(
    sha: bytes, names: Sequence[bytes], steps: Sequence[list[Argument]]
) -> tuple[bytes, list[int]]:
    """EVALSHAs, each with the steps of up to WINDOWS_PER_CALL windows, and how many each has."""
    out: list[bytes] = []
    counts: list[int] = []
    for first in range(0, len(names), WINDOWS_PER_CALL):
        part = steps[first : first + WINDOWS_PER_CALL]
        count = len(part)
        counts.append(count)
        arguments = 4 + 2 * count
        for step in part:
            arguments += len(step)
        out.append(b"*%d\r\n$7\r\nEVALSHA\r\n" % arguments)
        _add(out, sha)
        _add(out, b"%d" % count)
        for name in names[first : first + count]:
            _add(out, name)
        out.append(_APPLY)
        for step in part:
            _add(out, b"%d" % len(step))
            for argument in step:
                _add(out, argument if isinstance(argument, bytes) else b"%d" % argument)
    return b"".join(out), counts


def _add(out: list[bytes], data: bytes) -> None:
    size = len(data)
    out.append(_LENGTHS[size] if size < len(_LENGTHS) else b"$%d\r\n" % size)
    out.append(data)
    out.append(b"\r\n")
