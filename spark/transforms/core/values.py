"""The value of a record's field, and operations on it, in any format of the record.

A number is kept as the text it was written in: neither 1.10 nor 12345678901234567890 survives a
trip through a float.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Literal, Protocol

from spark.transforms.core.limits import NUMBER_CHARACTERS_MAX
from spark.transforms.core.paths import Path


class UnreadableRecord(Exception):
    """A step cannot read the record, which goes to quarantine. The text is the reason. It never
    quotes the record: the field may be one that is to be masked.
    """


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it is written, `1.10` for example."""

    text: str

    def exact(self) -> Decimal:
        """Raises UnreadableRecord for a number too long to calculate with."""
        if len(self.text) > NUMBER_CHARACTERS_MAX:
            raise UnreadableRecord(f"a number has more than {NUMBER_CHARACTERS_MAX} characters")
        try:
            return Decimal(self.text)
        except InvalidOperation:  # an exponent of 20 digits
            raise UnreadableRecord("a number is out of range") from None


class Shape(Enum):
    """A value that has others inside. The texts complete "the field is ..."."""

    OBJECT = "an object"
    ARRAY = "an array"


Scalar = str | bytes | bool | Number | None
Value = Scalar | Shape


def described(value: Value) -> str:
    """Completes "the field is ..." without showing the value."""
    match value:
        case Shape():
            return value.value
        case bool():
            return "true or false"
        case str():
            return "a text"
        case bytes():
            return "bytes"
        case Number():
            return "a number"
        case None:
            return "null"


class Location(Protocol):
    """Where a path led: one field of an object or one element of an array."""

    @property
    def value(self) -> Value: ...

    def replace(self, value: Scalar) -> None:
        """Writes `value`. Raises UnreadableRecord where the field's type cannot hold it."""

    def retype(self, value: Scalar, kind: Literal["long", "string"]) -> None:
        """Writes `value` into a field that is to be of type `kind` (or null) from now on."""

    def rename(self, name: str) -> None:
        """Gives the field another name. Raises UnreadableRecord if the object has that one."""

    def remove(self) -> None:
        """Takes the field out of its object. Positions behind it move: remove the last first."""


class Document(Protocol):
    """A record's key or value, opened."""

    lacking: bool
    """The last path led nowhere in some object: no such field, or null on the way. An array
    without elements lacks nothing."""

    def places(self, path: Path) -> Sequence[Location]:
        """Where `path` leads, in the order of the record; nowhere if a field on the way is missing
        or null. Raises UnreadableRecord if the record is damaged, or if a field on the way has
        another shape than the path says.
        """

    def encode(self) -> bytes:
        """The record with all changes. Without any, the bytes it was opened with."""
