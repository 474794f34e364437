"""Field tables in text, parsed at import; per version a plan of the bytes on the wire.

A table is one message, in wire order, nested by two spaces:

    Metadata request
      Topics []?1+
        TopicId uuid 10+
        Name string?10+
      AllowAutoTopicCreation bool 4+ =true

A field line is `Name type[?[nullable versions]] [versions] [#tag] [=default]`.
  types:    bool i8 i16 u16 i32 i64 uuid string bytes records; `[]T` arrays of i8, i16, i32
            or string; `[]` an array of the structs that follow, `{}` one such struct;
            `ackbatches` and `acquired`: the two columns of decode.py
  versions: `3`, `1-7`, `2+`; none = all versions the enclosing struct is in
  `?`       may be null in all its versions, `?7+` only in those
  #tag      in flexible versions a tagged field; such a field exists in those versions only
  =default  a number, `true`, `null`; none = 0, false, empty

In Python a struct is a dict, an array a list (of i8: bytes), a uuid 16 bytes, records bytes.
"""

from __future__ import annotations

import re
from typing import Any, Final

from mypy_extensions import i64

from gateway.core.wire.errors import UnsupportedVersion

Message = dict[str, Any]  # a decoded request or response, or a part, by Kafka's field names
Value = Any  # of one field; only its Op knows the type

VERSION_MAX: Final = 32_767
TAGS: Final = "_tags"  # the key of unknown tagged fields in a message
COLUMN_TAGS: Final = "._tags"  # appended to a column's name: unknown tags of its elements

# Kinds of fields, the frequent ones first: decode.py and encode.py go through them in this order.
I32: Final = 1
STRING: Final = 2
I64: Final = 3
I16: Final = 4
STRUCTS: Final = 5
UUID: Final = 6
I32S: Final = 7
BOOL: Final = 8
I8: Final = 9
BYTES: Final = 10
STRINGS: Final = 11
STRUCT: Final = 12
U16: Final = 13
I8S: Final = 14
I16S: Final = 15
ACK_BATCHES: Final = 16  # this and the following: columns
ACQUIRED: Final = 17

_KINDS: Final = {
    "bool": BOOL,
    "i8": I8,
    "i16": I16,
    "u16": U16,
    "i32": I32,
    "i64": I64,
    "uuid": UUID,
    "string": STRING,
    "bytes": BYTES,
    "records": BYTES,
    "[]i8": I8S,
    "[]i16": I16S,
    "[]i32": I32S,
    "[]string": STRINGS,
    "[]": STRUCTS,
    "{}": STRUCT,
    "ackbatches": ACK_BATCHES,
    "acquired": ACQUIRED,
}
_ZEROS: Final[dict[int, object]] = {
    BOOL: False,
    UUID: bytes(16),
    STRING: "",
    BYTES: b"",
    I8S: b"",
}
_LISTS: Final = frozenset({I16S, I32S, STRINGS, STRUCTS, ACK_BATCHES, ACQUIRED})
# Bytes an element takes at least; anything else takes at least 1.
_SIZE_MIN: Final = {I16: 2, U16: 2, I32: 4, I64: 8, UUID: 16}

_LINE: Final = re.compile(
    r"(?P<name>\w+) (?P<type>[a-z0-9]+|\[\][a-z0-9]*|\{\})(?P<null>\?\S*)?"
    r"(?: (?P<versions>\d+(?:-\d+|\+)?))?(?: #(?P<tag>\d+))?(?: =(?P<default>\S+))?"
)


class Versions:
    """An inclusive range; empty when `last` < `first`."""

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last

    def has(self, version: int) -> bool:
        return self.first <= version <= self.last


def parse_versions(text: str) -> Versions:
    """`3`, `1-7` or `2+`."""
    if text.endswith("+"):
        return Versions(int(text[:-1]), VERSION_MAX)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


class Field:
    """One line of a table."""

    def __init__(
        self,
        name: str,
        kind: int,
        versions: Versions,
        nullable: Versions,
        tag: int,  # -1 = none
        default: str | None,
    ) -> None:
        self.name = name
        self.kind = kind
        self.versions = versions
        self.nullable = nullable
        self.tag = tag
        self.default = default
        self.fields: list[Field] = []

    def default_value(self) -> object:
        """A fresh one where it can be changed."""
        if self.default == "null":
            return None
        if self.kind in _LISTS:
            return []
        if self.kind == STRUCT:
            return {field.name: field.default_value() for field in self.fields}
        if self.default is None:
            return _ZEROS.get(self.kind, 0)
        if self.kind == BOOL:  # No conditional expression: compiled, its two types would be one.
            return self.default == "true"
        return int(self.default)


class Op:
    """One field of one version: its operation on the wire, and its name."""

    def __init__(self, field: Field, version: int) -> None:
        self.name: str = field.name
        self.kind: i64 = field.kind
        self.nullable: bool = field.nullable.has(version)
        self.tag: i64 = field.tag
        self.default: object = field.default_value()  # never changed: encode.py only reads it
        self.plan: Plan | None = None  # of a struct or of each struct of an array
        self.item: Op | None = None  # each string of an array


class Plan:
    """One struct in one version."""

    def __init__(self, *, flexible: bool, names: frozenset[str]) -> None:
        self.flexible: bool = flexible
        self.names: frozenset[str] = names  # all fields of a message, of any version
        self.ops: list[Op] = []  # in wire order, without the tagged ones
        self.tagged: list[Op] = []  # by tag
        self.constants: list[tuple[str, object]] = []  # not on the wire, or tagged: their defaults
        self.copied: list[tuple[str, dict[str, object]]] = []  # ... structs of plain values
        self.fresh: list[Field] = []  # ... those whose default must be made anew each time
        self.size_min: i64 = 1 if flexible else 0


class Schema:
    """One message in all its versions."""

    def __init__(
        self, name: str, versions: Versions, flexible_from: int | None, fields: list[Field]
    ) -> None:
        self.name = name  # e.g. "Metadata request"
        self.versions = versions
        self.flexible_from = flexible_from
        self.fields = fields
        self._plans: dict[int, Plan] = {}

    def plan(self, version: int) -> Plan:
        """Raises UnsupportedVersion."""
        plan = self._plans.get(version)
        if plan is not None:
            return plan
        if not self.versions.has(version):
            raise UnsupportedVersion(f"{self.name} has no version {version}")
        flexible = self.flexible_from is not None and version >= self.flexible_from
        plan = self._plans[version] = _compile(self.fields, version, flexible=flexible)
        return plan

    def __repr__(self) -> str:
        return f"Schema({self.name!r}, {self.versions.first}-{self.versions.last})"


def _compile(fields: list[Field], version: int, *, flexible: bool) -> Plan:
    names = {TAGS}
    for field in fields:
        assert field.name not in names, f"two fields named {field.name}"
        names.add(field.name)
        if field.kind >= ACK_BATCHES:
            names.add(field.name + COLUMN_TAGS)
    plan = Plan(flexible=flexible, names=frozenset(names))
    for field in fields:
        present = field.versions.has(version)
        if present:
            op = Op(field, version)
            if field.kind == STRINGS:
                op.item = Op(
                    Field(field.name, STRING, field.versions, Versions(0, -1), -1, None), version
                )
            elif field.kind in (STRUCT, STRUCTS):
                op.plan = _compile(field.fields, version, flexible=flexible)
            if field.tag < 0:
                plan.ops.append(op)
                plan.size_min += _SIZE_MIN.get(field.kind, 1)
                continue
            assert flexible, f"{field.name} is tagged in a version that is not flexible"
            plan.tagged.append(op)
        if field.default == "null" or not _is_compound(field):
            plan.constants.append((field.name, field.default_value()))
        elif field.kind == STRUCT and not any(_is_compound(one) for one in field.fields):
            values = {one.name: one.default_value() for one in field.fields}
            plan.copied.append((field.name, values))
        else:
            plan.fresh.append(field)
    plan.tagged.sort(key=_tag)
    return plan


def _is_compound(field: Field) -> bool:
    return field.kind in _LISTS or field.kind == STRUCT


def _tag(op: Op) -> int:
    return int(op.tag)


def parse_tables(text: str) -> dict[str, list[Field]]:
    """Message names ("Metadata request") to their fields. Asserts that it can read each line."""
    tables: dict[str, list[Field]] = {}
    levels: list[tuple[list[Field], Versions]] = []
    for line in text.splitlines():
        content = line.lstrip(" ")
        depth = (len(line) - len(content)) // 2
        if not content:
            continue
        if depth == 0:
            assert content not in tables, f"two tables for {content}"
            tables[content] = []
            levels = [(tables[content], Versions(0, VERSION_MAX))]
            continue
        del levels[depth:]
        siblings, versions = levels[-1]
        field = _parse_field(content, versions)
        siblings.append(field)
        levels.append((field.fields, field.versions))
    return tables


def _parse_field(text: str, enclosing: Versions) -> Field:
    match = _LINE.fullmatch(text)
    assert match is not None, f"cannot read the field {text!r}"
    versions = parse_versions(match["versions"]) if match["versions"] else enclosing
    nullable = Versions(0, -1)
    if match["null"] is not None:
        nullable = parse_versions(match["null"][1:]) if match["null"] != "?" else versions
    tag = int(match["tag"]) if match["tag"] else -1
    return Field(match["name"], _KINDS[match["type"]], versions, nullable, tag, match["default"])
