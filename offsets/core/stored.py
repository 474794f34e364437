"""A partition's index as bytes, to be kept over a restart: a head in JSON, then its columns, 64-bit
numbers, little-endian. What can be computed again is left out.
"""

from __future__ import annotations

import json
import sys
from array import array
from itertools import accumulate
from typing import Any, Final

from offsets.core.index import EPOCH_NOT_KNOWN, PartitionIndex, Spans
from offsets.core.model import Cut, Stream

VERSION: Final = 1
_HEAD_BYTES: Final = 4
_COLUMNS: Final = ("firsts", "lasts", "earliest", "latest", "last_ms", "late", "records")
_SPANS: Final = ("low", "high", "records")
_PLAIN: Final = (
    "start",
    "end",
    "whole",
    "passed_last_ms",
    "copies",
    "former_end",
    "latest_ms",
    "segment_records",
)


class Unusable(ValueError):
    """The bytes are not an index of this version."""


def packed(index: PartitionIndex) -> bytes:
    head: dict[str, Any] = {name: getattr(index, name) for name in _PLAIN}
    head |= {"version": VERSION, "own": index.own, "segments": len(index), "epoch": index.epoch}
    if index.cut is not None:
        head["cut"] = [index.cut.life, index.cut.end, index.cut.epoch, index.cut_at]
    head["passed"] = [[*stream, origin] for stream, origin in index.passed.items()]
    head["streams"] = list(index.spans)
    text = json.dumps(head, separators=(",", ":")).encode()
    columns = [getattr(index, name) for name in _COLUMNS]
    for spans in index.spans.values():
        columns += [getattr(spans, name) for name in _SPANS]
    return b"".join([len(text).to_bytes(_HEAD_BYTES, "little"), text, *map(_bytes, columns)])


def unpacked(data: bytes) -> PartitionIndex:
    """Raises Unusable."""
    try:
        return _unpacked(data)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise Unusable(f"an index that cannot be read: {error!r}") from error


def _unpacked(data: bytes) -> PartitionIndex:
    at = _HEAD_BYTES + int.from_bytes(data[:_HEAD_BYTES], "little")
    head = json.loads(data[_HEAD_BYTES:at])
    if head["version"] != VERSION:
        raise ValueError(f"version {head['version']}")
    index = PartitionIndex(_stream(head["own"]), head["start"])
    for name in _PLAIN:
        setattr(index, name, head[name])
    index.epoch = int(head.get("epoch", EPOCH_NOT_KNOWN))  # earlier versions do not know it
    if "cut" in head:
        *cut, index.cut_at = head["cut"]
        index.cut = Cut(*cut)
    index.passed = {_stream(row[:4]): int(row[4]) for row in head["passed"]}
    size = 8 * int(head["segments"])
    for name in _COLUMNS:
        setattr(index, name, _numbers(data[at : at + size]))
        at += size
    for parts in head["streams"]:
        spans = index.spans[_stream(parts)] = Spans(0)
        for name in _SPANS:
            setattr(spans, name, _numbers(data[at : at + size]))
            at += size
        spans.upto = array("q", accumulate(spans.high, max))
    if at != len(data):
        raise ValueError(f"{len(data)} bytes where {at} are due")
    return index


def _stream(parts: list[Any]) -> Stream:
    cluster, topic, partition, life = parts
    return Stream(str(cluster), str(topic), int(partition), str(life))


def _bytes(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()


def _numbers(data: bytes) -> array[int]:
    column = array("q")
    column.frombytes(data)
    if sys.byteorder == "big":
        column.byteswap()
    return column
