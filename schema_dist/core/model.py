"""The words of schema distribution: schemas, subjects' versions, and the writes to a target.

A *subject* holds numbered *versions*; each version is a *schema* under an *id*. The same schema in
two subjects has one id. A *soft-deleted* version can no longer be found by its subject but still by
its id; a *hard-deleted* one is gone. The *source* is the primary cluster's registry; a *target* is
another cluster's. Names and codes are those of Confluent's Schema Registry.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NewType

SchemaId = NewType("SchemaId", int)
Version = NewType("Version", int)
SubjectVersion = tuple[str, Version]  # a subject and one of its versions

AVRO = "AVRO"
PROTOBUF = "PROTOBUF"
JSON = "JSON"
GLOBAL = ""  # in place of a subject: the setting of the whole registry
IMPORT: Final = "IMPORT"  # the mode in which explicit ids and versions count


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema's use of another one: `name` is the other's name in its text."""

    name: str
    subject: str
    version: Version

    @property
    def place(self) -> SubjectVersion:
        return self.subject, self.version


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as its registry stores it. `extra`: a JSON object with Confluent's metadata, rules
    and tags, or empty; `extra` travels along but takes no part in comparisons.
    """

    type: str
    text: str
    references: tuple[Reference, ...] = ()
    extra: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersion:
    """One version of one subject."""

    subject: str
    version: Version
    id: SchemaId
    schema: Schema
    deleted: bool = False

    @property
    def place(self) -> SubjectVersion:
        return self.subject, self.version


def context_of(subject: str) -> str:
    """The context of a qualified subject (`:.context:subject`), else `.`; ids are unique in it."""
    if subject.startswith(":."):
        end = subject.find(":", 2)
        if end > 0:
            return subject[1:end]
    return "."


# ------------------------------------------------------------------------------------------- writes


@dataclass(frozen=True, slots=True)
class Register:
    """Make this version exist, under this id, not deleted. `needs`: the versions it refers to."""

    wanted: SchemaVersion

    @property
    def place(self) -> SubjectVersion:
        return self.wanted.place

    @property
    def needs(self) -> tuple[SubjectVersion, ...]:
        return tuple(reference.place for reference in self.wanted.schema.references)


@dataclass(frozen=True, slots=True)
class SoftDelete:
    """Mark the version as deleted. It can still be found by its id."""

    wanted: SchemaVersion

    @property
    def place(self) -> SubjectVersion:
        return self.wanted.place


@dataclass(frozen=True, slots=True)
class HardDelete:
    """Remove a version that is soft-deleted."""

    wanted: SchemaVersion

    @property
    def place(self) -> SubjectVersion:
        return self.wanted.place


@dataclass(frozen=True, slots=True)
class SetCompatibility:
    """The compatibility level of a subject (or GLOBAL); None removes it."""

    subject: str
    level: str | None


@dataclass(frozen=True, slots=True)
class SetMode:
    """The mode of a subject (or GLOBAL); None removes it."""

    subject: str
    mode: str | None


Write = Register | SoftDelete | HardDelete | SetCompatibility | SetMode


# ----------------------------------------------------------------------------------------- refusals


class Reason(Enum):
    """Why a version is not on a target. The values are labels of metrics and of JSON."""

    SUBJECT = "subject_fits_no_pattern"
    SCHEMA = "schema_does_not_parse"
    REFERENCE = "reference_missing"
    ID_TAKEN = "id_taken"
    VERSION_TAKEN = "version_taken"
    NOT_OURS = "version_not_from_source"
    REMOVALS = "too_many_removals"
    UNPROVEN = "removal_not_proven"
    HARD_DELETES_OFF = "hard_deletes_are_off"
    ID_IGNORED = "registry_ignores_ids"
    REGISTRY = "registry_refuses"
    READ_BACK = "read_back_differs"


COLLISIONS = frozenset({Reason.ID_TAKEN, Reason.VERSION_TAKEN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A version that is not distributed, and why. `subject` is the target's subject if there is
    one, else the source's. Version and id are 0 for a setting.
    """

    reason: Reason
    subject: str
    version: Version
    id: SchemaId
    detail: str

    @classmethod
    def of(cls, version: SchemaVersion, reason: Reason, detail: str) -> Refusal:
        return cls(
            reason=reason,
            subject=version.subject,
            version=version.version,
            id=version.id,
            detail=detail,
        )

    @classmethod
    def of_setting(cls, subject: str, reason: Reason, detail: str) -> Refusal:
        return cls(
            reason=reason, subject=subject, version=Version(0), id=SchemaId(0), detail=detail
        )

    def __str__(self) -> str:
        return (
            f"{self.subject} version {self.version} (id {self.id}): {self.reason.value}:"
            f" {self.detail}"
        )
