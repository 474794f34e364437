"""A registry's contents as a view shows them: under logical subjects, found by subject, id or
schema. Answers are JSON values of Confluent's REST interface, errors carry its codes.

Subjects that have no logical name (another tenant's, internal ones) are not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from clusters.core.internal import is_internal
from clusters.core.names import Unfit
from clusters.core.subjects import SubjectTranslation, split_subject
from schema_dist.core.compare import SchemaTextError, fingerprint
from schema_dist.core.contents import Contents
from schema_dist.core.model import (
    GLOBAL,
    Schema,
    SchemaId,
    SchemaVersion,
    Version,
    context_of,
)
from schema_dist.core.records import INT32_MAX, fields_of

Json = Any  # a value of a JSON body
T = TypeVar("T")
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
    """The asked part of a list. `limit` -1: all."""

    prefix: str = ""
    deleted: bool = False  # live and soft-deleted
    deleted_only: bool = False
    latest_only: bool = False
    offset: int = 0
    limit: int = -1

    def page(self, found: Sequence[T]) -> list[T]:
        end = None if self.limit < 0 else self.offset + self.limit
        return list(found[self.offset : end])

    def takes(self, it: SchemaVersion) -> bool:
        return it.deleted if self.deleted_only else self.deleted or not it.deleted


@dataclass(slots=True)
class Shown:
    """Contents under logical names. Made by `under_logical_names`; it does not change."""

    subjects: dict[str, list[SchemaVersion]] = field(default_factory=dict)  # versions ascending
    ids: dict[tuple[str, SchemaId], list[SchemaVersion]] = field(default_factory=dict)
    compatibility: dict[str, str] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)

    # --------------------------------------------------------------------------------- by subject

    def list_subjects(self, listing: Listing) -> list[str]:
        found = [
            subject
            for subject, versions in sorted(self.subjects.items())
            if subject.startswith(listing.prefix) and any(map(listing.takes, versions))
        ]
        return listing.page(found)

    def list_versions(self, subject: str, listing: Listing) -> list[Version]:
        """Raises ViewError 40401."""
        found = [it.version for it in self._of(subject) if listing.takes(it)]
        if not found:
            raise ViewError(404, 40401, f"Subject '{subject}' not found.")
        return listing.page(found)

    def version(self, subject: str, text: str, *, deleted: bool) -> SchemaVersion:
        """By number, `latest` or -1. Raises ViewError 40401, 40402, 42202."""
        found = [it for it in self._of(subject) if deleted or not it.deleted]
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
        for it in found:
            if it.version == int(text):
                return it
        if not found:
            raise ViewError(404, 40401, f"Subject '{subject}' not found.")
        raise ViewError(404, 40402, f"Version {text} not found.")

    def referenced_by(self, subject: str, text: str) -> list[SchemaId]:
        """The ids of the live schemas that refer to a version."""
        place = self.version(subject, text, deleted=True).place
        users = {
            it.id
            for versions in self.subjects.values()
            for it in versions
            if not it.deleted and any(ref.place == place for ref in it.schema.references)
        }
        return sorted(users)

    def look_up(self, subject: str, schema: Schema, *, deleted: bool) -> SchemaVersion:
        """The newest version of the subject that means the same. Raises ViewError 40401, 40403,
        42201.
        """
        try:
            wanted = fingerprint(schema)
        except SchemaTextError as error:
            raise ViewError(422, 42201, f"Invalid schema: {error}") from None
        for it in reversed(self._of(subject)):
            if (deleted or not it.deleted) and _means(it, wanted):
                return it
        raise ViewError(404, 40403, "Schema not found")

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
        return found

    def list_schemas(self, listing: Listing) -> list[SchemaVersion]:
        found: list[SchemaVersion] = []
        for subject, versions in sorted(self.subjects.items()):
            if subject.startswith(listing.prefix):
                taken = [it for it in versions if listing.takes(it)]
                found += taken[-1:] if listing.latest_only else taken
        return listing.page(found)

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


def _means(it: SchemaVersion, wanted: str) -> bool:
    try:
        return fingerprint(it.schema) == wanted
    except SchemaTextError:
        return False


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
    """`names`: from the registry's subjects (there) to logical ones."""
    logical: dict[str, str | None] = {GLOBAL: GLOBAL}

    def name(subject: str) -> str | None:
        if subject not in logical:
            made = names.there(subject)
            hidden = isinstance(made, Unfit) or is_internal(split_subject(subject).name)
            logical[subject] = None if hidden else str(made)
        return logical[subject]

    made = Shown()
    for subject in contents.subjects:
        there = name(subject)
        if there is not None:
            made.subjects[there] = [_named(it, there, name) for it in contents.of(subject)]
    for versions in made.subjects.values():
        for it in versions:
            made.ids.setdefault((context_of(it.subject), it.id), []).append(it)
    for settings, shown in (
        (contents.compatibility, made.compatibility),
        (contents.modes, made.modes),
    ):
        for subject, value in settings.items():
            there = name(subject)
            if there is not None:
                shown[there] = value
    return made


def _named(it: SchemaVersion, subject: str, name: Callable[[str], str | None]) -> SchemaVersion:
    references = tuple(
        replace(ref, subject=name(ref.subject) or ref.subject) for ref in it.schema.references
    )
    return replace(it, subject=subject, schema=replace(it.schema, references=references))


def version_body(it: SchemaVersion) -> dict[str, Json]:
    """A version as the REST interface shows it."""
    named = {"subject": it.subject, "version": it.version, "id": it.id}
    return named | fields_of(it.schema)


def places(versions: Iterable[SchemaVersion], *, deleted: bool) -> list[dict[str, Json]]:
    """Subjects and versions, as `/schemas/ids/{id}/versions` lists them."""
    return [
        {"subject": it.subject, "version": it.version}
        for it in versions
        if deleted or not it.deleted
    ]
