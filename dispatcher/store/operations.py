"""Changes as the operations of window.lua."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from dispatcher.core.limits import CHUNK_OFFSETS
from dispatcher.core.model import (
    AsideSet,
    BitsSet,
    Change,
    CursorMoved,
    LeaseEnded,
    LeaseExtended,
    LeaseTaken,
    RetriesForgotten,
    RetryNoted,
)
from dispatcher.core.stored.packing import pack_deadline, pack_lease, pack_retry

Argument = bytes | int

FIELDS_MAX = 1_000  # of one HSET or HDEL: Lua's stack takes 8,000
# Operations of many alike items, and the arguments each item has.
WIDTHS = {b"L": 2, b"R": 2, b"A": 2, b"E": 1, b"F": 1, b"X": 1}


def operations(changes: Sequence[Change]) -> list[Argument]:
    """In the order of `changes`; neighbours of a kind share one operation, up to FIELDS_MAX."""
    out: list[Argument] = []
    shared = b""  # the operation `fields` are collected for
    fields: list[Argument] = []
    for change in changes:
        name, arguments = _operation(change)
        if name != shared:
            _close(out, shared, fields)
            shared, fields = name, []
        if name in WIDTHS:
            fields += arguments
        else:
            out.append(name)
            out += arguments
    _close(out, shared, fields)
    return out


def _close(out: list[Argument], name: bytes, fields: list[Argument]) -> None:
    for at in range(0, len(fields), FIELDS_MAX):
        part = fields[at : at + FIELDS_MAX]
        out += (name, len(part) // WIDTHS[name], *part)


def _operation(change: Change) -> tuple[bytes, list[Argument]]:
    match change:
        case LeaseTaken():
            return b"L", [change.lease_id, pack_lease(change)]
        case LeaseEnded():
            return b"E", [change.lease_id]
        case LeaseExtended():
            return b"D", [change.lease_id, pack_deadline(change.deadline_ms)]
        case RetryNoted():
            return b"R", [change.offset, pack_retry(change)]
        case RetriesForgotten():
            return b"F", list(change.offsets)
        case CursorMoved():
            chunk = change.front // CHUNK_OFFSETS
            return b"C", [change.cursor, change.front, chunk, change.aside]
        case AsideSet():
            if change.data:
                return b"A", [change.stretch, change.data]
            return b"X", [change.stretch]
        case BitsSet():
            return b"B", [change.chunk, change.byte_at, change.data]
        case _:
            assert_never(change)
