"""The contents of one registry: versions, compatibility levels, modes; as its log or its REST
interface tells them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import assert_never

from schema_dist.core.model import Place, SchemaVersion, Version
from schema_dist.core.records import (
    CompatibilitySet,
    Event,
    Ignored,
    Malformed,
    ModeSet,
    SchemaRemoved,
    SchemaWritten,
    SubjectCleared,
    SubjectDeleted,
)


@dataclass(slots=True)
class Contents:
    """Built by `apply`, in the order of the log.

    `order`: when each version was last written (the log's offset, or a count). `removed`: versions
    whose tombstone was read. `recorded`: soft deletes are records of a log; otherwise a list lacked
    the version. `ignored`, `malformed`: how many records changed nothing, by kind.
    """

    subjects: dict[str, dict[Version, SchemaVersion]] = field(default_factory=dict)
    order: dict[Place, int] = field(default_factory=dict)
    removed: set[Place] = field(default_factory=set)
    compatibility: dict[str, str] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)
    ignored: Counter[str] = field(default_factory=Counter)
    malformed: Counter[str] = field(default_factory=Counter)
    changes: int = field(default=0, compare=False)
    recorded: bool = field(default=True, compare=False)

    def apply(self, event: Event, at: int) -> None:
        """Adds one event; `at` is its place in the order."""
        self.changes += 1
        match event:
            case SchemaWritten(written):
                self.put(written, at)
            case SchemaRemoved(subject, version):
                self.remove((subject, version))
            case SubjectDeleted(subject, version):
                self._soft_delete(subject, version, at)
            case SubjectCleared(subject):
                self._clear(subject)
            case CompatibilitySet(subject, level):
                _set(self.compatibility, subject, level)
            case ModeSet(subject, mode):
                _set(self.modes, subject, mode)
            case Ignored(keytype):
                self.ignored[keytype] += 1
            case Malformed(why):
                self.malformed[why] += 1
            case _:
                assert_never(event)

    def _soft_delete(self, subject: str, up_to: Version, at: int) -> None:
        for it in self.of(subject):
            if it.version <= up_to and not it.deleted:
                self.put(replace(it, deleted=True), at)

    def _clear(self, subject: str) -> None:
        for it in self.of(subject):
            if it.deleted:
                self.remove(it.place)

    def put(self, written: SchemaVersion, at: int) -> None:
        self.subjects.setdefault(written.subject, {})[written.version] = written
        self.order[written.place] = at
        self.removed.discard(written.place)

    def remove(self, place: Place) -> None:
        subject, version = place
        versions = self.subjects.get(subject, {})
        versions.pop(version, None)
        if not versions:
            self.subjects.pop(subject, None)
        self.order.pop(place, None)
        self.removed.add(place)

    def get(self, place: Place) -> SchemaVersion | None:
        return self.subjects.get(place[0], {}).get(place[1])

    def of(self, subject: str) -> list[SchemaVersion]:
        """The versions of a subject, ascending."""
        return [it for _, it in sorted(self.subjects.get(subject, {}).items())]

    def versions(self) -> Iterator[SchemaVersion]:
        for of_subject in self.subjects.values():
            yield from of_subject.values()

    def __len__(self) -> int:
        return len(self.order)


def _set(settings: dict[str, str], subject: str, value: str | None) -> None:
    if value is None:
        settings.pop(subject, None)
    else:
        settings[subject] = value
