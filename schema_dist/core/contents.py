"""The contents of one registry: versions, compatibility levels, modes; as its log or its REST
interface tells them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import assert_never

from schema_dist.core.limits import JOURNAL_MAX
from schema_dist.core.model import SchemaId, SchemaVersion, SubjectVersion, Version
from schema_dist.core.places import PlacesBy
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

SETTINGS = Version(0)  # in place of a version: the subject's compatibility and mode


@dataclass(slots=True)
class Contents:
    """The contents are built by `apply`, in the order of the log.

    `order`: when each version was last written (the log's offset, or a count). `removed`: versions
    whose tombstone was read; `unset`: kinds and subjects of such settings. `more`: what else stands
    in subjects' configs, as JSON; it stays where it is. `recorded`: soft deletes
    are records of a log; if False, a list lacked the version. `reads`: how many times such a list
    was read. `ids`: the places of each id, in all contexts. `users`: for each version, the versions
    that refer to it. `ignored`, `malformed`: how many records changed nothing, by kind.
    """

    subjects: dict[str, dict[Version, SchemaVersion]] = field(default_factory=dict)
    order: dict[SubjectVersion, int] = field(default_factory=dict)
    removed: set[SubjectVersion] = field(default_factory=set)
    compatibility: dict[str, str] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)
    more: dict[str, str] = field(default_factory=dict, compare=False)
    unset: set[tuple[str, str]] = field(default_factory=set, compare=False)
    ignored: Counter[str] = field(default_factory=Counter)
    malformed: Counter[str] = field(default_factory=Counter)
    recorded: bool = field(default=True, compare=False)
    reads: int = field(default=0, compare=False)
    ids: PlacesBy[SchemaId] = field(default_factory=PlacesBy, compare=False)
    users: PlacesBy[SubjectVersion] = field(default_factory=PlacesBy, compare=False)
    _journal: list[SubjectVersion] = field(default_factory=list, compare=False)
    _forgotten: int = field(default=0, compare=False)  # of the journal's beginning

    def apply(self, event: Event, at: int) -> None:
        """Adds one event; `at` is its position in the order."""
        match event:
            case SchemaWritten(written):
                self.put(written, at)
            case SchemaRemoved(subject, version):
                self.remove((subject, version))
            case SubjectDeleted(subject, version):
                self._soft_delete(subject, version, at)
            case SubjectCleared(subject):
                self._clear(subject)
            case CompatibilitySet(subject, level, more):
                self._set("compatibility", subject, level, recorded=True)
                self.more[subject] = more
                if not more:
                    del self.more[subject]
            case ModeSet(subject, mode):
                self._set("mode", subject, mode, recorded=True)
            case Ignored(keytype):
                self.ignored[keytype] += 1
            case Malformed(why):
                self.malformed[why] += 1
            case _:
                assert_never(event)

    def _soft_delete(self, subject: str, up_to: Version, at: int) -> None:
        for version in self.of(subject):
            if version.version <= up_to and not version.deleted:
                self.put(replace(version, deleted=True), at)

    def _clear(self, subject: str) -> None:
        for version in self.of(subject):
            if version.deleted:
                self.remove(version.place)

    def put(self, written: SchemaVersion, at: int) -> None:
        place = written.place
        self._take_out(place)
        self.subjects.setdefault(written.subject, {})[written.version] = written
        self.order[place] = at
        self.removed.discard(place)
        self.ids.add(written.id, place)
        for reference in written.schema.references:
            self.users.add(reference.place, place)
        self._note(place)

    def remove(self, place: SubjectVersion) -> None:
        """The log says that the version is gone."""
        self._note(place)
        self._take_out(place)
        self.removed.add(place)

    def _take_out(self, place: SubjectVersion) -> None:
        subject, version = place
        versions = self.subjects.get(subject, {})
        found = versions.pop(version, None)
        if found is None:
            return
        if not versions:
            del self.subjects[subject]
        del self.order[place]
        self.ids.discard(found.id, place)
        for reference in found.schema.references:
            self.users.discard(reference.place, place)

    def become(self, other: Contents) -> None:
        """Takes over another reading of this registry, and notes the differences as changes. A
        version that the other reading lacks leaves no tombstone.
        """
        for place in [place for place in self.order if place not in other.order]:
            self._take_out(place)
            self._note(place)
        for version in other.versions():
            if self.get(version.place) != version:
                self.put(version, other.order[version.place])
        for kind in ("compatibility", "mode"):
            mine, theirs = self._settings(kind), other._settings(kind)
            for subject in {*mine, *theirs}:
                if mine.get(subject) != theirs.get(subject):
                    self._set(kind, subject, theirs.get(subject), recorded=False)
        self.recorded = other.recorded

    def _settings(self, kind: str) -> dict[str, str]:
        return self.modes if kind == "mode" else self.compatibility

    def _set(self, kind: str, subject: str, value: str | None, *, recorded: bool) -> None:
        self._note((subject, SETTINGS))
        if value is not None:
            self._settings(kind)[subject] = value
            self.unset.discard((kind, subject))
            return
        self._settings(kind).pop(subject, None)
        if recorded:
            self.unset.add((kind, subject))

    def _note(self, place: SubjectVersion) -> None:
        self._journal.append(place)
        if len(self._journal) >= 2 * JOURNAL_MAX:
            del self._journal[:JOURNAL_MAX]
            self._forgotten += JOURNAL_MAX

    @property
    def changes(self) -> int:
        """How many changes there have been so far."""
        return self._forgotten + len(self._journal)

    def changed_since(self, changes: int) -> set[SubjectVersion] | None:
        """The places that changed after the first `changes` changes. A change of a subject's
        settings has SETTINGS as its version. None: there are too many to remember.
        """
        if changes < self._forgotten:
            return None
        return set(self._journal[changes - self._forgotten :])

    def get(self, place: SubjectVersion) -> SchemaVersion | None:
        return self.subjects.get(place[0], {}).get(place[1])

    def of(self, subject: str) -> list[SchemaVersion]:
        """The versions of a subject, ascending."""
        return [version for _, version in sorted(self.subjects.get(subject, {}).items())]

    def places(self) -> list[SubjectVersion]:
        """All places that `changed_since` could name for the present contents."""
        settings = {*self.compatibility, *self.modes, *(subject for _, subject in self.unset)}
        return [*self.order, *self.removed, *((subject, SETTINGS) for subject in settings)]

    def versions(self) -> Iterator[SchemaVersion]:
        for of_subject in self.subjects.values():
            yield from of_subject.values()

    def __len__(self) -> int:
        return len(self.order)
