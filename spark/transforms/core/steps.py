"""The steps of a pipeline and their options, as they are written in YAML or built in Python.

    Mask(paths=("tailnum",), hmac=Hmac(key_env="MASK_KEY"))

Unknown options and bad paths are errors when a step is built. `part: key` addresses the record's
key. `missing` is the rule for a field that a record does not have: `pass`, nothing to do in that
record, but an error of `check` and `run` if no sampled record has it; `ignore`, nothing to do,
however rare; `quarantine`, a record that the step cannot read.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    field_validator,
    model_validator,
)

from spark.transforms.core.limits import (
    HMAC_DIGITS_MAX,
    HMAC_DIGITS_MIN,
    PATHS_MAX,
    RULES_MAX,
)
from spark.transforms.core.paths import WHOLE, Path, parse_path
from spark.transforms.core.times import EPOCH_UNITS, ISO, Ambiguous

Given = Any  # the value in the YAML, or the caller's
Part = Literal["value", "key"]


def _path(given: Given) -> Path:
    if isinstance(given, Path):
        return given
    if not isinstance(given, str):
        raise ValueError("a path is a text, for example address.street")
    return parse_path(given)


def _exactly_one(model: BaseModel, names: tuple[str, ...]) -> None:
    given = [name for name in names if name in model.model_fields_set]
    if len(given) != 1:
        raise ValueError(f"exactly one of {', '.join(names)} is needed")


FieldPath = Annotated[Path, BeforeValidator(_path), PlainSerializer(str)]
Paths = Annotated[tuple[FieldPath, ...], Field(min_length=1, max_length=PATHS_MAX)]
Topic = Annotated[str, Field(pattern=r"^(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}\Z")]  # Kafka's own rule
Plain = str | bool | int | float | None


class Section(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        arbitrary_types_allowed=True,
        allow_inf_nan=False,
        regex_engine="python-re",
    )

    @field_validator("*", mode="before")
    @classmethod
    def _lists_are_tuples(cls, given: Given) -> Given:
        return tuple(given) if isinstance(given, list) else given


class _Step(Section):
    part: Part = "value"
    missing: Literal["pass", "ignore", "quarantine"] = "pass"


class Redact(Section):
    replacement: Plain = "***"


class Hmac(Section):
    """`key_env`: the environment variable that has the key, at least 16 bytes."""

    key_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\Z")]
    digits: Annotated[int, Field(ge=HMAC_DIGITS_MIN, le=HMAC_DIGITS_MAX, multiple_of=2)] = 32


class KeepLast(Section):
    characters: Annotated[int, Field(ge=0, le=1_000)]
    filler: Annotated[str, Field(min_length=1, max_length=1)] = "*"


class Mask(_Step):
    paths: Paths = (WHOLE,)
    redact: Redact | None = None
    hmac: Hmac | None = None
    keep_last: KeepLast | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        _exactly_one(self, ("redact", "hmac", "keep_last"))
        return self


class Rename(_Step):
    """`to` is a name, not a path: a field stays in its object."""

    path: FieldPath
    to: Annotated[str, Field(min_length=1)]

    @field_validator("path")
    @classmethod
    def _a_field(cls, path: Path) -> Path:
        return _field(path)


class Drop(_Step):
    paths: Paths

    @field_validator("paths")
    @classmethod
    def _fields(cls, paths: tuple[Path, ...]) -> tuple[Path, ...]:
        return tuple(_field(path) for path in paths)


def _field(path: Path) -> Path:
    if path.field is None:
        raise ValueError(f"path {str(path)!r} must end with the name of a field")
    return path


class TimeFormat(Section):
    """`zone`: the time zone of input texts without an offset, or that of the output."""

    format: Annotated[str, Field(min_length=1)]
    zone: str = "UTC"

    @field_validator("format")
    @classmethod
    def _known(cls, text: str) -> str:
        if text not in EPOCH_UNITS and text != ISO and "%" not in text:
            known = ", ".join([*EPOCH_UNITS, ISO])
            raise ValueError(f"{text!r} is neither one of {known} nor a pattern such as %Y-%m-%d")
        return text

    @field_validator("zone")
    @classmethod
    def _zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError):
            raise ValueError(f"no time zone {name!r}; an example is America/New_York") from None
        return name


class Timestamp(_Step):
    paths: Paths
    input: TimeFormat
    output: TimeFormat
    ambiguous: Ambiguous = "earlier"


class Condition(_Step):
    """True if the field has one of the given values; of several elements, if one has. A field that
    is missing or null fits only `present: false` (and null also `equals: null`). Comparing texts
    with `at_least` or `at_most` is an error of the record.
    """

    path: FieldPath
    equals: Plain = None
    one_of: Annotated[tuple[Plain, ...], Field(min_length=1, max_length=RULES_MAX)] | None = None
    matches: str | None = None
    present: bool | None = None
    at_least: int | float | None = None
    at_most: int | float | None = None

    @field_validator("matches")
    @classmethod
    def _expression(cls, text: str | None) -> str | None:
        try:
            re.compile(text or "")
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return text

    @model_validator(mode="after")
    def _one_test(self) -> Self:
        _exactly_one(self, ("equals", "one_of", "matches", "present", "at_least", "at_most"))
        return self


class Filter(Section):
    """`keep`: only records that fit every condition stay. `drop`: they go."""

    keep: Annotated[tuple[Condition, ...], Field(min_length=1)] | None = None
    drop: Annotated[tuple[Condition, ...], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        _exactly_one(self, ("keep", "drop"))
        return self

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return self.keep or self.drop or ()


class Rule(Condition):
    topic: Topic


class Route(Section):
    """The topic of the first rule that fits, else `otherwise`; without it the topic stays."""

    rules: Annotated[tuple[Rule, ...], Field(min_length=1, max_length=RULES_MAX)]
    otherwise: Topic | None = None


Step = Mask | Rename | Drop | Timestamp | Filter | Route


def topics_of(steps: tuple[Step, ...]) -> set[str]:
    """Every topic that a route may name."""
    routes = [step for step in steps if isinstance(step, Route)]
    named = {rule.topic for route in routes for rule in route.rules}
    return named | {route.otherwise for route in routes if route.otherwise is not None}
