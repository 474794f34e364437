"""The registry's state and rules, without HTTP. Errors carry Confluent's codes."""

from __future__ import annotations

import json
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.errors import AvroException
from avro.schema import parse as parse_avro

JsonObject = dict[str, Any]


class RegistryError(Exception):
    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error_code": code, "message": message}


@dataclass
class Stored:
    subject: str
    version: int
    id: int
    schema: JsonObject  # schema, schemaType, references
    deleted: bool = False

    def shown(self) -> JsonObject:
        named = {"subject": self.subject, "version": self.version, "id": self.id}
        return named | self.schema


def context_of(subject: str) -> str:
    return subject.split(":")[1] if subject.startswith(":.") else "."


@dataclass
class Registry:
    subjects: dict[str, dict[int, Stored]] = field(default_factory=dict)
    ids: dict[tuple[str, int], JsonObject] = field(default_factory=dict)
    config: dict[str, str] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)
    by_text: dict[tuple[str, str], int] = field(default_factory=dict)  # (context, schema) to id
    last_id: dict[str, int] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)  # of subjects, sorted

    # ------------------------------------------------------------------------------------- reading

    def all(self) -> Iterator[Stored]:
        for versions in self.subjects.values():
            yield from versions.values()

    def beginning(self, prefix: str) -> Iterator[Stored]:
        """The versions of subjects that begin so. Of many subjects, looking at all is slow."""
        for at in range(bisect_left(self.names, prefix), len(self.names)):
            if not self.names[at].startswith(prefix):
                return
            yield from self.subjects[self.names[at]].values()

    def of(self, subject: str, *, deleted: bool) -> dict[int, Stored]:
        found = self.subjects.get(subject, {})
        shown = {
            at: stored for at, stored in sorted(found.items()) if deleted or not stored.deleted
        }
        if not shown:
            raise RegistryError(404, 40401, f"Subject '{subject}' not found.")
        return shown

    def get(self, subject: str, version: str, *, deleted: bool) -> Stored:
        if version not in ("latest", "-1") and not (version.isdigit() and int(version) > 0):
            raise RegistryError(
                422,
                42202,
                f"The specified version '{version}' is not a valid version id. Allowed values are"
                ' between [1, 2^31-1] and the string "latest"',
            )
        found = self.of(subject, deleted=deleted)
        number = max(found) if version in ("latest", "-1") else int(version)
        if number not in found:
            raise RegistryError(404, 40402, f"Version {number} not found.")
        return found[number]

    def by_id(self, context: str, number: int) -> JsonObject:
        found = self.ids.get((context, number))
        if found is None:
            raise RegistryError(404, 40403, f"Schema {number} not found")
        return found

    def look_up(self, subject: str, body: JsonObject, *, deleted: bool) -> Stored:
        schema = self.schema_of(body)
        if subject not in self.subjects:
            raise RegistryError(404, 40401, f"Subject '{subject}' not found.")
        for stored in self.subjects[subject].values():
            if stored.schema == schema and (deleted or not stored.deleted):
                return stored
        raise RegistryError(404, 40403, "Schema not found")

    def referenced_by(self, subject: str, version: int) -> list[Stored]:
        return [
            stored
            for stored in self.all()
            if not stored.deleted
            for reference in stored.schema.get("references", ())
            if (reference["subject"], reference["version"]) == (subject, version)
        ]

    # --------------------------------------------------------------------------------- registering

    def mode_of(self, subject: str) -> str:
        return self.modes.get(subject, self.modes.get("", "READWRITE"))

    def schema_of(self, body: JsonObject) -> JsonObject:
        schema: JsonObject = {"schema": body.get("schema")}
        if not isinstance(schema["schema"], str):
            raise RegistryError(422, 42201, "Empty schema")
        if body.get("schemaType", "AVRO") != "AVRO":
            schema["schemaType"] = body["schemaType"]
        if body.get("references"):
            schema["references"] = body["references"]
            for reference in schema["references"]:
                if reference["version"] not in self.subjects.get(reference["subject"], {}):
                    named = f"{reference['subject']} version {reference['version']}"
                    raise RegistryError(422, 42201, f"reference {named} does not exist")
        if "schemaType" not in schema and "references" not in schema:
            try:
                parse_avro(schema["schema"])
            except AvroException as error:
                raise RegistryError(422, 42201, f"Invalid schema: {error}") from error
        return schema

    def register(self, subject: str, body: JsonObject) -> int:
        schema, explicit, version = self.schema_of(body), body.get("id"), body.get("version")
        mode, context = self.mode_of(subject), context_of(subject)
        if mode == "READONLY":
            raise RegistryError(422, 42205, f"Subject {subject} is in read-only mode")
        if explicit is not None and mode != "IMPORT":
            raise RegistryError(422, 42205, f"Subject {subject} is not in import mode")
        if explicit is None and mode == "IMPORT":
            raise RegistryError(422, 42205, f"Subject {subject} is not in read-write mode")
        text = json.dumps(schema, sort_keys=True)
        if explicit is not None:
            if self.ids.get((context, explicit), schema) != schema:
                raise RegistryError(
                    422, 42205, f"Overwrite new schema with id {explicit} is not permitted."
                )
            number = int(explicit)
        else:
            for stored in self.subjects.get(subject, {}).values():
                if stored.schema == schema and not stored.deleted:
                    return stored.id
            self._check_compatible(subject, schema)
            known = self.by_text.get((context, text))
            number = self.last_id.get(context, 0) + 1 if known is None else known
        self.last_id[context] = max(self.last_id.get(context, 0), number)
        self.by_text.setdefault((context, text), number)
        self.ids[context, number] = schema
        if subject not in self.subjects:
            insort(self.names, subject)
        versions = self.subjects.setdefault(subject, {})
        at = int(version) if version is not None else max(versions, default=0) + 1
        versions[at] = Stored(subject, at, number, schema)
        return number

    def _check_compatible(self, subject: str, schema: JsonObject) -> None:
        level = self.config.get(subject, self.config.get("", "BACKWARD"))
        live = [
            stored
            for _, stored in sorted(self.subjects.get(subject, {}).items())
            if not stored.deleted
        ]
        if level != "NONE" and live and not self.compatible(schema, live[-1].schema):
            text = "Schema being registered is incompatible with an earlier schema for subject"
            raise RegistryError(409, 409, f'{text} "{subject}"')

    def compatible(self, schema: JsonObject, with_schema: JsonObject) -> bool:
        """BACKWARD, for Avro without references; others were not measured."""
        if "schemaType" in schema or "references" in schema:
            return True
        reader, writer = parse_avro(schema["schema"]), parse_avro(with_schema["schema"])
        checker = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]
        result = checker.get_compatibility(reader, writer)
        return bool(result.compatibility == SchemaCompatibilityType.compatible)

    # ------------------------------------------------------------------------------------- deleting

    def delete(self, subject: str, version: str, *, permanent: bool) -> int:
        stored = self.get(subject, version, deleted=permanent)
        if self.mode_of(subject) == "READONLY":
            raise RegistryError(422, 42205, f"Subject {subject} is in read-only mode")
        if self.referenced_by(subject, stored.version):
            named = f"{subject} version {stored.version}"
            raise RegistryError(422, 42206, f"One or more references exist to the schema {named}.")
        if not permanent:
            stored.deleted = True
        elif not stored.deleted:
            raise RegistryError(
                404,
                40407,
                f"Subject '{subject}' Version {stored.version} was not deleted first before being"
                " permanently deleted",
            )
        else:
            self._remove(stored)
        return stored.version

    def _remove(self, stored: Stored) -> None:
        del self.subjects[stored.subject][stored.version]
        if not self.subjects[stored.subject]:
            del self.subjects[stored.subject]
            self.names.remove(stored.subject)
        context = context_of(stored.subject)
        if not any(o.id == stored.id and context_of(o.subject) == context for o in self.all()):
            del self.ids[context, stored.id]
            self.by_text.pop((context, json.dumps(stored.schema, sort_keys=True)), None)

    def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        found = self.of(subject, deleted=permanent)
        if permanent and any(not stored.deleted for stored in found.values()):
            raise RegistryError(
                404,
                40405,
                f"Subject '{subject}' was not deleted first before being permanently deleted",
            )
        return [self.delete(subject, str(at), permanent=permanent) for at in sorted(found)]

    # ------------------------------------------------------------------------------------- settings

    def set_mode(self, subject: str, mode: str, *, force: bool) -> None:
        if mode not in ("READWRITE", "READONLY", "IMPORT"):
            raise RegistryError(422, 42204, "Invalid mode")
        taken = self.subjects if not subject else self.subjects.get(subject)
        if mode == "IMPORT" and taken and not force:
            raise RegistryError(422, 42205, "Cannot import since found existing subjects")
        self.modes[subject] = mode
