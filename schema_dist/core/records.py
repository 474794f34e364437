"""Records of `_schemas`, the log that a registry keeps in Kafka, to events and back.

A record's key is a JSON object with `keytype`; a null value is a tombstone. Key types are those of
Confluent's `SchemaRegistryKeyType`, documented only by its source. Karapace writes and reads
SCHEMA, CONFIG, DELETE_SUBJECT and NOOP; its tombstones are empty values, not null. A record that
cannot be understood is Malformed or Ignored, never an exception: others are written behind it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schema_dist.core.compare import canonical_object
from schema_dist.core.model import AVRO, Reference, Schema, SchemaId, SchemaVersion, Version

_LEVEL = "compatibilityLevel"
_EXTRA = ("metadata", "ruleSet", "schemaTags")
INT32_MAX = 2**31 - 1  # ids and versions are Java ints


@dataclass(frozen=True, slots=True)
class SchemaWritten:
    """A version exists, or is soft-deleted by its `deleted`."""

    written: SchemaVersion


@dataclass(frozen=True, slots=True)
class SchemaRemoved:
    """A version is hard-deleted."""

    subject: str
    version: Version


@dataclass(frozen=True, slots=True)
class SubjectDeleted:
    """All versions up to `version` are soft-deleted."""

    subject: str
    version: Version


@dataclass(frozen=True, slots=True)
class SubjectCleared:
    """The soft-deleted versions of the subject are gone."""

    subject: str


@dataclass(frozen=True, slots=True)
class CompatibilitySet:
    """The compatibility of a subject (empty: the registry's); None: it has none of its own. `more`:
    a JSON object with the rest of its config (Confluent's, from 7.4 on), or empty.
    """

    subject: str
    level: str | None
    more: str = ""


@dataclass(frozen=True, slots=True)
class ModeSet:
    """The mode of a subject (empty: the registry's); None: it has none of its own."""

    subject: str
    mode: str | None


@dataclass(frozen=True, slots=True)
class Ignored:
    """A record that changes nothing here: NOOP, CONTEXT, a key type of the future."""

    keytype: str


@dataclass(frozen=True, slots=True)
class Malformed:
    """A record that no registry wrote, and why."""

    why: str


Event = (
    SchemaWritten
    | SchemaRemoved
    | SubjectDeleted
    | SubjectCleared
    | CompatibilitySet
    | ModeSet
    | Ignored
    | Malformed
)


class _FieldError(ValueError):
    """A field that is missing or of another type."""


def decode(key: bytes | None, value: bytes | None) -> Event:
    """The event of one record."""
    try:
        fields = _object(key, "key")
        keytype = _text(fields, "keytype")
        body = _object(value, "value") if value else None
        return _event(keytype, fields, body)
    except _FieldError as error:
        return Malformed(str(error))


def _event(keytype: str, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> Event:
    match keytype:
        case "SCHEMA":
            place = _text(key, "subject"), Version(_number(key, "version"))
            if value is None:
                return SchemaRemoved(*place)
            return SchemaWritten(schema_version(value, *place))
        case "CONFIG":
            return _config(_text_or(key, "subject", ""), value or {})
        case "MODE":
            mode = None if value is None else _text(value, "mode")
            return ModeSet(_text_or(key, "subject", ""), mode)
        case "DELETE_SUBJECT" if value is not None:
            return SubjectDeleted(_text(key, "subject"), Version(_number(value, "version")))
        case "CLEAR_SUBJECT" if value is not None:
            return SubjectCleared(_text(key, "subject"))
        case _:
            return Ignored(keytype)


def _config(subject: str, value: Mapping[str, Any]) -> CompatibilitySet:
    """Confluent's registry leaves out what is not set, the level, too."""
    level = None if value.get(_LEVEL) is None else _text(value, _LEVEL)
    more = {name: value[name] for name in value if name not in (_LEVEL, "subject")}
    return CompatibilitySet(subject, level, canonical_object(more) if more else "")


def schema_version(
    value: Mapping[str, Any], subject: str | None = None, version: Version | None = None
) -> SchemaVersion:
    """A version as `_schemas` and the REST interface write it. Raises ValueError."""
    references = value.get("references") or []
    if not isinstance(references, list) or not all(
        isinstance(reference, dict) for reference in references
    ):
        raise _FieldError("references is no list of objects")
    extra = {name: value[name] for name in _EXTRA if value.get(name)}
    return SchemaVersion(
        subject=_text(value, "subject") if subject is None else subject,
        version=Version(_number(value, "version")) if version is None else version,
        id=SchemaId(_number(value, "id")),
        schema=Schema(
            type=_text_or(value, "schemaType", AVRO),
            text=_text(value, "schema"),
            references=tuple(
                Reference(
                    _text(reference, "name"),
                    _text(reference, "subject"),
                    Version(_number(reference, "version")),
                )
                for reference in references
            ),
            extra=canonical_object(extra) if extra else "",
        ),
        deleted=value.get("deleted") is True,
    )


def _object(data: bytes | None, what: str) -> dict[str, Any]:
    if data is None:
        raise _FieldError(f"no {what}")
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError):
        raise _FieldError(f"the {what} is no JSON") from None
    if not isinstance(parsed, dict):
        raise _FieldError(f"the {what} is no JSON object")
    return parsed


def _text(fields: Mapping[str, Any], name: str) -> str:
    found = fields.get(name)
    if not isinstance(found, str):
        raise _FieldError(f"{name} is {'missing' if found is None else 'no text'}")
    return found


def _text_or(fields: Mapping[str, Any], name: str, absent: str) -> str:
    return _text(fields, name) if fields.get(name) else absent


def _number(fields: Mapping[str, Any], name: str) -> int:
    found = fields.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= INT32_MAX:
        raise _FieldError(f"{name} is {'missing' if found is None else 'no positive integer'}")
    return found


# ------------------------------------------------------------------------------------------ writing


def fields_of(schema: Schema) -> dict[str, Any]:
    """A schema as fields of `_schemas` and of the REST interface; AVRO is left out, as both do."""
    made: dict[str, Any] = {"schema": schema.text}
    if schema.type != AVRO:
        made["schemaType"] = schema.type
    if schema.references:
        made["references"] = [
            {"name": reference.name, "subject": reference.subject, "version": reference.version}
            for reference in schema.references
        ]
    if schema.extra:
        made |= json.loads(schema.extra)
    return made


def schema_record(written: SchemaVersion, *, deleted: bool) -> tuple[bytes, bytes]:
    """The record of a version, live or soft-deleted."""
    value = {"subject": written.subject, "version": written.version, "id": written.id}
    return schema_key(written), _bytes(value | fields_of(written.schema) | {"deleted": deleted})


def schema_key(written: SchemaVersion) -> bytes:
    """The key of a version; with a null value it is the tombstone."""
    named = {"subject": written.subject, "version": written.version}
    return _bytes({"keytype": "SCHEMA", **named, "magic": 1})


def compatibility_record(
    subject: str, level: str | None, more: str = ""
) -> tuple[bytes, bytes | None]:
    """The record of a compatibility level, and of `more` that the subject's config has. Without
    both it is the tombstone.
    """
    config = ({} if level is None else {_LEVEL: level}) | (json.loads(more) if more else {})
    key = _bytes({"keytype": "CONFIG", "subject": subject or None, "magic": 0})
    return key, _bytes(config) if config else None


def mode_record(subject: str, mode: str | None) -> tuple[bytes, bytes | None]:
    """The record of a mode; None is the tombstone."""
    value = None if mode is None else _bytes({"mode": mode})
    return _bytes({"keytype": "MODE", "subject": subject or None, "magic": 0}), value


def _bytes(value: Mapping[str, Any]) -> bytes:
    # As Java's Jackson writes it: a compacted log knows a key by its bytes.
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )
