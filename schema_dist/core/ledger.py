"""Keyway's own writes to a target, kept in a compacted topic beside it.

An entry is written before the write it stands for, and removed after its removal. So a version on
the target that matches its entry is ours: it may be removed when the source's is gone. A version
without an entry is somebody else's and is never touched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, assert_never

from schema_dist.core.compare import Fingerprint
from schema_dist.core.model import (
    HardDelete,
    Register,
    SchemaId,
    SetCompatibility,
    SetMode,
    SoftDelete,
    SubjectVersion,
    Version,
    Write,
)


@dataclass(frozen=True, slots=True)
class VersionEntry:
    """Keyway registers this version under this id; None: it is removed.

    `source`: the subject that it comes from. Once the configuration names subjects otherwise,
    nothing at the source says what becomes of it.
    """

    place: SubjectVersion
    written: tuple[SchemaId, Fingerprint] | None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class SettingEntry:
    """Keyway sets the subject's compatibility or mode; not `ours`: it is taken back."""

    kind: str  # "compatibility" or "mode"
    subject: str
    ours: bool


Entry = VersionEntry | SettingEntry


@dataclass(slots=True)
class Ledger:
    """All entries of one target."""

    versions: dict[SubjectVersion, tuple[SchemaId, Fingerprint]] = field(default_factory=dict)
    sources: dict[SubjectVersion, str] = field(default_factory=dict)
    compatibility: set[str] = field(default_factory=set)
    modes: set[str] = field(default_factory=set)

    def apply(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            match entry:
                case VersionEntry(place, None):
                    self.versions.pop(place, None)
                    self.sources.pop(place, None)
                case VersionEntry(place, tuple() as written, source):
                    self.versions[place] = written
                    if source is not None:
                        self.sources[place] = source
                case SettingEntry(kind, subject, ours):
                    settings = self.modes if kind == "mode" else self.compatibility
                    if ours:
                        settings.add(subject)
                    else:
                        settings.discard(subject)
                case _:
                    assert_never(entry)  # type: ignore[arg-type]

    def missing(self, entries: Iterable[Entry]) -> list[Entry]:
        """The entries that would change something."""
        return [entry for entry in entries if not self._has(entry)]

    def _has(self, entry: Entry) -> bool:
        if isinstance(entry, VersionEntry):
            named = entry.source in (None, self.sources.get(entry.place))
            return named and self.versions.get(entry.place) == entry.written
        settings = self.modes if entry.kind == "mode" else self.compatibility
        return (entry.subject in settings) == entry.ours


def entries_before(
    write: Write, fingerprint: Fingerprint | None, source: str | None
) -> list[Entry]:
    """The entries before a write. `fingerprint` and `source`: of the version that a Register makes,
    and its subject at the source.
    """
    match write:
        case Register(wanted):
            assert fingerprint is not None
            return [VersionEntry(wanted.place, (wanted.id, fingerprint), source)]
        case SetCompatibility(subject, str()):
            return [SettingEntry("compatibility", subject, ours=True)]
        case SetMode(subject, str()):
            return [SettingEntry("mode", subject, ours=True)]
        case SoftDelete() | HardDelete() | SetCompatibility() | SetMode():
            return []
        case _:
            assert_never(write)


def entries_after(write: Write) -> list[Entry]:
    """The entries after a confirmed write."""
    match write:
        case HardDelete(wanted):
            return [VersionEntry(wanted.place, None)]
        case SetCompatibility(subject, None):
            return [SettingEntry("compatibility", subject, ours=False)]
        case SetMode(subject, None):
            return [SettingEntry("mode", subject, ours=False)]
        case Register() | SoftDelete() | SetCompatibility() | SetMode():
            return []
        case _:
            assert_never(write)


def encode(entry: Entry) -> tuple[bytes, bytes | None]:
    """The record of an entry; a null value is the tombstone."""
    if isinstance(entry, VersionEntry):
        subject, version = entry.place
        key = {"kind": "version", "subject": subject, "version": version}
        if entry.written is None:
            return _bytes(key), None
        written = {"id": entry.written[0], "fingerprint": entry.written[1]}
        return _bytes(key), _bytes(
            written | ({} if entry.source is None else {"source": entry.source})
        )
    key = {"kind": entry.kind, "subject": entry.subject}
    return _bytes(key), _bytes({}) if entry.ours else None


def decode(key: bytes, value: bytes | None) -> Entry | None:
    """The entry of a record; None for a record of another kind. Raises ValueError for one that is
    damaged.
    """
    try:
        fields: dict[str, Any] = json.loads(key)
        kind, subject = fields["kind"], fields["subject"]
        if kind in ("compatibility", "mode"):
            return SettingEntry(kind, str(subject), ours=value is not None)
        if kind != "version":
            return None
        place = str(subject), Version(int(fields["version"]))
        if value is None:
            return VersionEntry(place, None)
        body: dict[str, Any] = json.loads(value)
        written = SchemaId(int(body["id"])), Fingerprint(str(body["fingerprint"]))
        source = body.get("source")
        return VersionEntry(place, written, None if source is None else str(source))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a ledger record lacks {error}") from error


def _bytes(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
