"""The value of a record as REST shows it to those who may see values: as JSON where it can be taken
apart into fields, else as text or base64. Fields that a rule names are masked.

Where a rule names fields of the topic, a value that has no fields to mask is not shown: the rule
would let through what it is there to hide.
"""

from __future__ import annotations

import base64
import fnmatch
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.admin.rows import ValueFormat, ValueRow
from gateway.config.admin import MaskRule
from gateway.core.wire.records import RecordStart

MASKED: Final = "***"


@dataclass(frozen=True, slots=True)
class Decoded:
    """A value that a schema has taken apart. `document`: anything that JSON has."""

    document: object
    format: ValueFormat
    schema_id: int


def globs_of(rules: Iterable[MaskRule], topic: str) -> list[str]:
    """The fields to mask in values of the topic."""
    return [
        glob for rule in rules if fnmatch.fnmatchcase(topic, rule.topic) for glob in rule.fields
    ]


def shown_value(
    start: RecordStart, globs: Sequence[str], decoded: Decoded | None = None
) -> ValueRow:
    """`decoded`: by its schema, if it has one that is known."""
    row = ValueRow(
        format="null",
        value_bytes=max(start.value_bytes, 0),
        timestamp_ms=None if start.timestamp < 0 else start.timestamp,
    )
    if start.value_bytes < 0:
        return row
    if decoded is not None:
        shown = {"format": decoded.format, "schema_id": decoded.schema_id}
        return row.model_copy(update=shown | _masked(decoded.document, globs))
    cut = start.value_bytes > len(start.value)
    row = row.model_copy(update={"cut": cut})
    document = None if cut else _document(start.value)
    if document is not None:
        return row.model_copy(update={"format": "json", **_masked(document, globs)})
    if globs:
        return row.model_copy(update={"format": "masked", "masked": ["*"]})
    text = _text(start.value)
    if text is not None:
        return row.model_copy(update={"format": "text", "value": text})
    value_base64 = base64.b64encode(start.value).decode()
    return row.model_copy(update={"format": "bytes", "value_base64": value_base64})


def _document(value: bytes) -> dict[str, Any] | list[Any] | None:
    """The value as JSON with fields. None: it is something else."""
    if value[:1] not in (b"{", b"["):
        return None
    try:
        document: dict[str, Any] | list[Any] = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return document


def _text(value: bytes) -> str | None:
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data":
            return None
        text = value[: error.start].decode()  # a character that the cut has parted
    return text if all(char.isprintable() or char in "\t\r\n" for char in text) else None


def _masked(document: object, globs: Sequence[str]) -> dict[str, Any]:
    """Fields of ValueRow."""
    masked: list[str] = []
    if any(fnmatch.fnmatchcase("", glob) for glob in globs):
        return {"value": MASKED, "masked": ["*"]}
    if globs and not isinstance(document, dict | list):
        return {"value": MASKED, "masked": ["*"]}
    return {"value": _without(document, "", globs, masked), "masked": sorted(set(masked))}


def _without(document: object, path: str, globs: Sequence[str], masked: list[str]) -> object:
    """A list is no part of a path: all of its entries have that of the list."""
    if isinstance(document, list):
        return [_without(entry, path, globs, masked) for entry in document]
    if not isinstance(document, dict):
        return document
    shown: dict[str, Any] = {}
    for name, field in document.items():
        place = f"{path}.{name}" if path else str(name)
        if any(fnmatch.fnmatchcase(place, glob) for glob in globs):
            masked.append(place)
            shown[name] = MASKED
        else:
            shown[name] = _without(field, place, globs, masked)
    return shown
