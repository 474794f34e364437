"""The records of the topic `_keyway-offsets`, compacted, one partition, on every cluster.

    key                                             value
    ["entry", group, topic, partition, source]      where a group stands on `source`: an Entry
    ["applied", group, topic, partition]            the offset committed here for it: an Applied
    ["row", group, topic, partition, source]        the decision of the committer here: see status
    ["both", group, "", 0]                          the group works here and elsewhere at once
    ["beat", "", "", 0]                             a sign of life of this cluster's service
    ["cut", "", topic, partition]                   the log here has lost its end: a Cut

    ["switch", cluster, "", level, source]          a link with another target: switches.py

Keys and values are JSON. Names are logical ones, without the clusters' name patterns. Entries and
switches travel along the tree like records: with copy flags, from a cluster to the targets of its
levels. The other records stay on their cluster.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from keyway.commit_metadata.core import metadata as settled_metadata
from offsets.core.model import Cut, Progress, Range, Stream
from offsets.core.translate import Unsafe

VERSION: Final = 2
ENTRY, APPLIED, ROW, BOTH, BEAT, CUT = "entry", "applied", "row", "both", "beat", "cut"

GroupPartition = tuple[str, str, int]  # group, topic, partition


class MalformedEntry(ValueError):
    """A record of the topic that is not of this form or of another version."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A group's position in one partition of its source, in terms that hold on every cluster.

    `offset`, `log_start`, `log_end`, `partitions`: as on the source, `partitions` being how many
    the topic has. `timestamp_ms`: the first record at or after it is where to go on by timestamp;
    None: the source has no record. `progress` None: no record has an origin that is known.
    `replay`: records that come again by timestamp, as counted on the source. `deleted`: the source
    has no such commit any more.
    """

    group: str
    topic: str
    partition: int
    source: str
    committed_ms: int
    offset: int = -1
    log_start: int = 0
    log_end: int = 0
    partitions: int = 0
    timestamp_ms: int | None = None
    margin_ms: int = 0
    replay: int = 0
    unsafe: tuple[Unsafe, ...] = ()
    create_time: bool = True
    exact: bool = False
    progress: Progress | None = None
    metadata: str = ""
    key_shared: bool = False
    flags: int = 0
    deleted: bool = False

    @property
    def place(self) -> GroupPartition:
        return self.group, self.topic, self.partition

    def natives(self, streams: Iterable[Stream]) -> set[str]:
        """The clusters that records of these streams come from; the entry's source is one of them.
        If no record has an origin, all count as the source's.
        """
        found = {stream.cluster for stream in streams}
        return found | {self.source} if len(found) > 1 else {self.source}

    def with_flags(self, flags: int) -> Entry:
        return replace(self, flags=flags)


@dataclass(frozen=True, slots=True)
class Applied:
    """The last commit that the committer made here for a group. `source`, `committed_ms`: those of
    the entry that the commit came from. `before`, `before_ms`: the position that the commit was to
    replace, and its time; None: there was none, or it is not known.
    """

    offset: int
    metadata: str
    source: str
    committed_ms: int
    flags: int = 0
    before: int | None = None
    before_ms: int | None = None

    def made(self, offset: int, metadata: str) -> bool:
        """Whether a commit is this one. A gateway may write the metadata anew, but the settled
        records stay the same. Other settled records are work of the group here, beyond a cursor
        that has not moved.
        """
        if self.offset != offset:
            return False
        return self.metadata == metadata or _settled(offset, self.metadata) == _settled(
            offset, metadata
        )

    def outstanding(self, offset: int, committed_ms: int | None) -> bool:
        """Whether the position here is still the one from before, so that the commit failed or was
        never tried. A later commit of the same offset is a reset. With `committed_ms` None the
        offset alone decides.
        """
        if self.before != offset:
            return False
        if committed_ms is None:
            return True
        return self.before_ms is not None and committed_ms <= self.before_ms


# ------------------------------------------------------------------------------------------ keys


def key_of(kind: str, place: GroupPartition, source: str | None = None) -> bytes:
    parts: list[str | int] = [kind, *place]
    if source is not None:
        parts.append(source)
    return json.dumps(parts, separators=(",", ":")).encode()


def read_key(key: bytes | None) -> tuple[str, GroupPartition, str]:
    """Kind, place and source ("" without one). Raises MalformedEntry."""
    try:
        parts = json.loads(key or b"")
        kind, group, topic, partition = parts[:4]
        source = parts[4] if len(parts) > 4 else ""
    except (ValueError, TypeError) as error:
        raise MalformedEntry(f"key {key!r:.80}") from error
    if not all(isinstance(part, str) for part in (kind, group, topic, source)):
        raise MalformedEntry(f"key {key!r:.80}")
    if not isinstance(partition, int):
        raise MalformedEntry(f"key {key!r:.80}")
    return kind, (group, topic, partition), source


# ---------------------------------------------------------------------------------------- entries

_PLAIN = (
    "offset",
    "log_start",
    "log_end",
    "partitions",
    "timestamp_ms",
    "margin_ms",
    "replay",
    "create_time",
    "exact",
    "metadata",
    "key_shared",
    "flags",
    "deleted",
)


def encode_entry(entry: Entry) -> bytes:
    """The entry's value; its names are in the key."""
    body: dict[str, Any] = {"version": VERSION, "committed_ms": entry.committed_ms}
    body |= {name: getattr(entry, name) for name in _PLAIN}
    body["unsafe"] = list(entry.unsafe)
    if entry.progress is not None:
        body["vector"] = _written(entry.progress.vector)
        body["new"] = _written(entry.progress.new)
        settled = entry.progress.settled
        body["settled"] = [[*stream, _gaps(ranges)] for stream, ranges in settled.items() if ranges]
    return json.dumps(body, separators=(",", ":")).encode()


def decode_entry(place: GroupPartition, source: str, value: bytes) -> Entry:
    """Raises MalformedEntry."""
    body = read_body(value)
    try:
        progress = None
        if "vector" in body:
            settled = {_stream(row[:4]): _ranges(row[4]) for row in body["settled"]}
            progress = Progress(_read(body["vector"]), _read(body["new"]), settled)
        return Entry(
            *place,
            source,
            int(body["committed_ms"]),
            unsafe=tuple(Unsafe(reason) for reason in body["unsafe"]),
            progress=progress,
            **{name: body[name] for name in _PLAIN},
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise MalformedEntry(f"entry of {place}: {error!r}") from error


def _written(vector: Mapping[Stream, int]) -> list[list[str | int]]:
    return [[*stream, origin] for stream, origin in sorted(vector.items())]


def _read(rows: Iterable[Sequence[Any]]) -> dict[Stream, int]:
    return {_stream(row[:4]): int(row[4]) for row in rows}


def _stream(parts: Sequence[Any]) -> Stream:
    cluster, topic, partition, life = parts
    return Stream(str(cluster), str(topic), int(partition), str(life))


def _gaps(ranges: Sequence[Range]) -> list[int]:
    """The ranges as lengths of gaps and ranges in turn, from 0 on: shorter than offsets."""
    out: list[int] = []
    end = 0
    for low, high in ranges:
        out += [low - end, high + 1 - low]
        end = high + 1
    return out


def _ranges(gaps: Sequence[int]) -> list[Range]:
    ranges: list[Range] = []
    end = 0
    for gap, length in zip(gaps[::2], gaps[1::2], strict=True):
        ranges.append((end + gap, end + gap + length - 1))
        end += gap + length
    return ranges


# ---------------------------------------------------------------------------------------- applied


def encode_applied(applied: Applied) -> bytes:
    names = ("offset", "metadata", "source", "committed_ms", "flags", "before", "before_ms")
    body: dict[str, Any] = {"version": VERSION} | {name: getattr(applied, name) for name in names}
    return json.dumps(body, separators=(",", ":")).encode()


def decode_applied(value: bytes) -> Applied:
    """Raises MalformedEntry."""
    body = read_body(value)
    try:
        return Applied(
            int(body["offset"]),
            str(body["metadata"]),
            str(body["source"]),
            int(body["committed_ms"]),
            int(body["flags"]),
            before=body["before"],
            before_ms=body["before_ms"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedEntry(f"applied: {error!r}") from error


def encode_cut(cut: Cut) -> bytes:
    body = {"version": VERSION, "life": cut.life, "end": cut.end, "epoch": cut.epoch}
    return json.dumps(body, separators=(",", ":")).encode()


def decode_cut(value: bytes) -> Cut:
    """Raises MalformedEntry."""
    body = read_body(value)
    try:
        return Cut(str(body["life"]), int(body["end"]), int(body["epoch"]))
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedEntry(f"cut: {error!r}") from error


def read_body(value: bytes, versions: Sequence[int] = (VERSION,)) -> dict[str, Any]:
    """Raises MalformedEntry."""
    try:
        body = json.loads(value)
    except ValueError as error:
        raise MalformedEntry(f"not JSON: {value!r:.80}") from error
    if not isinstance(body, dict) or body.get("version") not in versions:
        raise MalformedEntry(f"not of version {versions[-1]}: {value!r:.80}")
    return body


# ------------------------------------------------------------------- flags in commit metadata

_FLAGGED: Final = "keyway-flags="
_FLAGGED_CHARS: Final = len(_FLAGGED) + 9


def with_flags(metadata: str, flags: int) -> str:
    """Commit metadata that carries copy flags, as the first distribution model has it."""
    return f"{_FLAGGED}{flags:08x};{metadata}"


def without_flags(metadata: str) -> str:
    """The metadata as the group wrote it."""
    marked = metadata.startswith(_FLAGGED) and metadata[_FLAGGED_CHARS - 1 :][:1] == ";"
    return metadata[_FLAGGED_CHARS:] if marked else metadata


# ------------------------------------------------------------------------------- time of a commit


def work_told_ms(offset: int, metadata: str) -> int | None:
    """When a Key-Shared group had done the work that a commit tells of; None: the metadata does not
    say. Its gateway commits late if Kafka was away, so the time of the commit in Kafka says
    nothing.
    """
    return settled_metadata.read_times(offset, without_flags(metadata)).settled_ms or None


def _settled(offset: int, metadata: str) -> list[Range]:
    """The settled records beyond the cursor of a Key-Shared group; none for any other group."""
    return settled_metadata.decode(offset, without_flags(metadata)) or []
