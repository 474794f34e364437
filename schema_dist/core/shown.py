"""A registry's contents as a view shows them: under logical subjects, found by subject, id or
schema. Answers are JSON values of Confluent's REST interface, errors carry its codes.

Subjects that have no logical name (another tenant's, internal ones) are not shown.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

from keyway.clusters.core.internal import is_internal
from keyway.clusters.core.names import Unfit
from keyway.clusters.core.subjects import SubjectTranslation, split_subject
from schema_dist.core.compare import Fingerprint, SchemaTextError, computed_fingerprint
from schema_dist.core.contents import SETTINGS, Contents
from schema_dist.core.limits import ANSWER_TEXT_CHARS_MAX, SCHEMAS_LISTED_MAX
from schema_dist.core.model import (
    GLOBAL,
    Schema,
    SchemaId,
    SchemaVersion,
    SubjectVersion,
    Version,
    context_of,
)
from schema_dist.core.records import INT32_MAX, fields_of

Json = Any  # a value of a JSON body
T = TypeVar("T")
K = TypeVar("K")
DEFAULT_COMPATIBILITY = "BACKWARD"
DEFAULT_MODE = "READWRITE"


class ViewError(Exception):
    """An answer that is an error: HTTP's status, the registry's code, its message."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The part of a list that was asked for. `limit` -1: all of it."""

    prefix: str = ""
    deleted: bool = False  # live and soft-deleted
    deleted_only: bool = False
    latest_only: bool = False
    offset: int = 0
    limit: int = -1

    def page(self, found: Sequence[T]) -> list[T]:
        end = None if self.limit < 0 else self.offset + self.limit
        return list(found[self.offset : end])

    def takes(self, version: SchemaVersion) -> bool:
        return version.deleted if self.deleted_only else self.deleted or not version.deleted


class Shown:
    """Contents under logical names. `update` follows the contents, change by change."""

    def __init__(self, names: SubjectTranslation) -> None:
        """`names`: from the registry's subjects (there) to logical ones."""
        self._names = names
        self._logical: dict[str, str | None] = {GLOBAL: GLOBAL}
        self._sorted: list[str] = []  # the subjects
        self.subjects: dict[str, list[SchemaVersion]] = {}  # versions ascending
        self.ids: dict[tuple[str, SchemaId], dict[SubjectVersion, SchemaVersion]] = {}
        self._users: dict[
            SubjectVersion, set[SubjectVersion]
        ] = {}  # by the version that they refer to
        # Of those that were looked up. A thread may add one while its version is replaced.
        self._meanings: dict[SubjectVersion, tuple[SchemaVersion, Fingerprint | None]] = {}
        self.compatibility: dict[str, str] = {}
        self.modes: dict[str, str] = {}

    # ------------------------------------------------------------------------------------ following

    def update(self, contents: Contents, places: Iterable[SubjectVersion]) -> None:
        """`places`: the changed places, as `Contents.changed_since` tells them."""
        for subject, version in places:
            there = self._name(subject)
            if there is None:
                continue
            if version == SETTINGS:
                _copy(contents.compatibility, subject, self.compatibility, there)
                _copy(contents.modes, subject, self.modes, there)
                continue
            found = contents.get((subject, version))
            self._forget((there, version))
            if found is not None:
                self._add(_named(found, there, self._name))

    def _name(self, subject: str) -> str | None:
        if subject not in self._logical:
            made = self._names.there(subject)
            hidden = isinstance(made, Unfit) or is_internal(split_subject(subject).name)
            self._logical[subject] = None if hidden else str(made)
        return self._logical[subject]

    def _forget(self, place: SubjectVersion) -> None:
        subject, number = place
        versions = self.subjects.get(subject, [])
        at = bisect_left(versions, number, key=_number)
        if at == len(versions) or versions[at].version != number:
            return
        version = versions.pop(at)
        self._meanings.pop(place, None)
        _discard(self.ids, (context_of(subject), version.id), place)
        for used in {reference.place for reference in version.schema.references}:
            _discard(self._users, used, place)
        if not versions:
            del self.subjects[subject]
            self._sorted.pop(bisect_left(self._sorted, subject))

    def _add(self, version: SchemaVersion) -> None:
        versions = self.subjects.get(version.subject)
        if versions is None:
            versions = self.subjects[version.subject] = []
            insort(self._sorted, version.subject)
        insort(versions, version, key=_number)
        self.ids.setdefault((context_of(version.subject), version.id), {})[version.place] = version
        for reference in version.schema.references:
            self._users.setdefault(reference.place, set()).add(version.place)

    # --------------------------------------------------------------------------------- by subject

    def list_subjects(self, listing: Listing) -> list[str]:
        found = [
            subject
            for subject in self._beginning(listing.prefix)
            if any(map(listing.takes, self.subjects[subject]))
        ]
        return listing.page(found)

    def _beginning(self, prefix: str) -> Iterator[str]:
        for at in range(bisect_left(self._sorted, prefix), len(self._sorted)):
            if not self._sorted[at].startswith(prefix):
                return
            yield self._sorted[at]

    def list_versions(self, subject: str, listing: Listing) -> list[Version]:
        """Raises ViewError 40401."""
        found = [version.version for version in self._of(subject) if listing.takes(version)]
        if not found:
            raise ViewError(404, 40401, f"Subject '{subject}' not found.")
        return listing.page(found)

    def version(self, subject: str, text: str, *, deleted: bool) -> SchemaVersion:
        """The version by its number, `latest` or -1. Raises ViewError 40401, 40402, 42202."""
        found = [version for version in self._of(subject) if deleted or not version.deleted]
        if text in ("latest", "-1"):
            if not found:
                raise ViewError(404, 40401, f"Subject '{subject}' not found.")
            return found[-1]
        if not (text.isascii() and text.isdigit() and 0 < int(text) <= INT32_MAX):
            raise ViewError(
                422,
                42202,
                f"The specified version '{text}' is not a valid version id. Allowed values are"
                ' between [1, 2^31-1] and the string "latest"',
            )
        for version in found:
            if version.version == int(text):
                return version
        if not found:
            raise ViewError(404, 40401, f"Subject '{subject}' not found.")
        raise ViewError(404, 40402, f"Version {text} not found.")

    def referenced_by(self, subject: str, text: str) -> list[SchemaId]:
        """The ids of the live schemas that refer to a version."""
        place = self.version(subject, text, deleted=True).place
        users = (self._at(user) for user in self._users.get(place, ()))
        return sorted({user.id for user in users if not user.deleted})

    def _at(self, place: SubjectVersion) -> SchemaVersion:
        versions = self.subjects[place[0]]
        return versions[bisect_left(versions, place[1], key=_number)]

    def look_up(self, subject: str, schema: Schema, *, deleted: bool) -> SchemaVersion:
        """The newest version of the subject that means the same as the schema. Raises ViewError
        40401, 40403, 42201.
        """
        try:
            wanted = computed_fingerprint(schema)
        except SchemaTextError as error:
            raise ViewError(422, 42201, f"Invalid schema: {error}") from None
        for version in reversed(tuple(self._of(subject))):
            if (deleted or not version.deleted) and self._meaning(version) == wanted:
                return version
        raise ViewError(404, 40403, "Schema not found")

    @property
    def count(self) -> int:
        """How many versions there are."""
        return sum(map(len, self.ids.values()))

    def longest_of(self, subject: str) -> int:
        """How many characters of texts a look-up in `subject` may have to parse."""
        versions = self.subjects.get(subject, ())
        return sum(
            len(version.schema.text) for version in versions if version.place not in self._meanings
        )

    def _meaning(self, version: SchemaVersion) -> Fingerprint | None:
        known = self._meanings.get(version.place)
        if known is None or known[0] is not version:
            try:
                known = version, computed_fingerprint(version.schema)
            except SchemaTextError:
                known = version, None
            self._meanings[version.place] = known
        return known[1]

    def _of(self, subject: str) -> list[SchemaVersion]:
        found = self.subjects.get(subject)
        if not found:
            raise ViewError(404, 40401, f"Subject '{subject}' not found.")
        return found

    # -------------------------------------------------------------------------------------- by id

    def by_id(self, number: SchemaId, subject: str) -> list[SchemaVersion]:
        """All versions of an id, in the context of `subject` (empty: the default one). Raises
        ViewError 40403.
        """
        found = self.ids.get((context_of(subject), number))
        if not found:
            raise ViewError(404, 40403, f"Schema {number} not found")
        return list(found.values())

    def list_schemas(self, listing: Listing) -> list[SchemaVersion]:
        limit = min(listing.limit, SCHEMAS_LISTED_MAX) if listing.limit >= 0 else SCHEMAS_LISTED_MAX
        first = listing.offset
        found = list(islice(self._taken(listing), first, first + limit))
        if sum(len(version.schema.text) for version in found) > ANSWER_TEXT_CHARS_MAX:
            raise ViewError(413, 413, "the list is too large: ask for fewer schemas with `limit`")
        return found

    def _taken(self, listing: Listing) -> Iterator[SchemaVersion]:
        for subject in self._beginning(listing.prefix):
            taken = [version for version in self.subjects[subject] if listing.takes(version)]
            yield from taken[-1:] if listing.latest_only else taken

    # ----------------------------------------------------------------------------------- settings

    def compatibility_of(self, subject: str, *, default_to_global: bool) -> str:
        """Raises ViewError 40408."""
        text = f"Subject '{subject}' does not have subject-level compatibility configured"
        return _setting(
            self.compatibility,
            subject,
            DEFAULT_COMPATIBILITY,
            default_to_global=default_to_global,
            absent=ViewError(404, 40408, text),
        )

    def mode_of(self, subject: str, *, default_to_global: bool) -> str:
        """Raises ViewError 40409."""
        text = f"Subject '{subject}' does not have subject-level mode configured"
        return _setting(
            self.modes,
            subject,
            DEFAULT_MODE,
            default_to_global=default_to_global,
            absent=ViewError(404, 40409, text),
        )

    def contexts(self) -> list[str]:
        return sorted({".", *(context_of(subject) for subject in self.subjects)})


def _number(version: SchemaVersion) -> Version:
    return version.version


def _copy(of: Mapping[str, str], subject: str, to: dict[str, str], there: str) -> None:
    if subject in of:
        to[there] = of[subject]
    else:
        to.pop(there, None)


def _discard(index: dict[K, Any], key: K, place: SubjectVersion) -> None:
    held = index[key]
    if isinstance(held, dict):
        held.pop(place, None)
    else:
        held.discard(place)
    if not held:
        del index[key]


def _setting(
    settings: dict[str, str],
    subject: str,
    default: str,
    *,
    default_to_global: bool,
    absent: ViewError,
) -> str:
    if subject == GLOBAL or (default_to_global and subject not in settings):
        return settings.get(GLOBAL, default)
    if subject not in settings:
        raise absent
    return settings[subject]


def under_logical_names(contents: Contents, names: SubjectTranslation) -> Shown:
    """The whole contents under logical names."""
    made = Shown(names)
    made.update(contents, (version.place for version in contents.versions()))
    settings = {*contents.compatibility, *contents.modes}
    made.update(contents, ((subject, SETTINGS) for subject in settings))
    return made


def _named(
    version: SchemaVersion, subject: str, name: Callable[[str], str | None]
) -> SchemaVersion:
    references = tuple(
        replace(ref, subject=name(ref.subject) or ref.subject) for ref in version.schema.references
    )
    return replace(version, subject=subject, schema=replace(version.schema, references=references))


def version_body(version: SchemaVersion) -> dict[str, Json]:
    """A version as the REST interface shows it."""
    named = {"subject": version.subject, "version": version.version, "id": version.id}
    return named | fields_of(version.schema)


def places(versions: Iterable[SchemaVersion], *, deleted: bool) -> list[dict[str, Json]]:
    """Subjects and versions, as `/schemas/ids/{id}/versions` lists them."""
    return [
        {"subject": version.subject, "version": version.version}
        for version in versions
        if deleted or not version.deleted
    ]
