"""Name patterns: how one cluster writes the topics, groups and subjects that another writes
differently.

A pattern is literals and fields, such as `{tenant}-{instance}-{topic}` (ksml's PatternResolver; its
literals are `$`, `#` and `-`, ours may hold letters, digits, `.` and `_`, too). Exactly one field
is the *main field*: `topic` unless the caller says otherwise. Every other field is either a
*constant*, with one value on this cluster, or a *variable*, taken from the name.

    pattern := literal? field (literal field)* literal?
    field   := "{" [A-Za-z0-9_.]+ "}"
    literal := [A-Za-z0-9_.$#-]+

A value of the main field is `[A-Za-z0-9_.-]+`, of any other `[A-Za-z0-9_.]+`. A variable therefore
ends where a literal begins with `-`, `$` or `#`. Patterns without such a border are refused,
because a name could be parsed in two ways.

A `Translation` pairs two patterns. It parses a name by one, requires that the constants are equal,
and renders the values by the other, in both directions. It is one to one: a pair that could make
one name of two is refused, with the two names. Names that begin with `_` are internal to Kafka and
its tools; they are the same on every cluster. A name of a foreign tenant does not fit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from keyway.clusters.core.internal import is_internal

TOPIC_CHARS_MAX = 249  # Kafka's own limit of a topic name
NAME_CHARS_MAX = 1_000  # parsing takes the square of it at worst; Kafka's names are far shorter
PATTERN_FIELDS_MAX = 16  # a name is short; more fields are a mistake in the configuration

_FIELD = re.compile(r"\{([A-Za-z0-9_.]+)\}")
_LITERAL = re.compile(r"[A-Za-z0-9_.$#-]+")
_MAIN_VALUE = "[A-Za-z0-9_.-]+"
_VALUE = "[A-Za-z0-9_.]+"
_BORDER = frozenset("-$#")  # cannot stand in a value of a variable


class PatternError(ValueError):
    """A pattern, or a pair of them, that cannot be used; the text names it and says why."""


class CollisionError(PatternError):
    """A pair of patterns that makes one name of two.

    `names`: two names of the source that would become the same name, `made`, on the target.
    """

    def __init__(self, text: str, names: tuple[str, str], made: str) -> None:
        super().__init__(text)
        self.names = names
        self.made = made


class Misfit(Enum):
    """Why a name has no counterpart."""

    SHAPE = "does not fit the pattern"
    FOREIGN = "has another value of a field"
    INTERNAL = "would begin with '_', as internal names do"
    TOO_LONG = "would be too long"
    RECORD_NAME = "is named after a record, not after a topic"


@dataclass(frozen=True, slots=True)
class Unfit:
    """A name that is not translated, and why."""

    name: str
    why: Misfit
    detail: str = ""

    def __str__(self) -> str:
        more = f" ({self.detail})" if self.detail else ""
        return f"{self.name!r} {self.why.value}{more}"


@dataclass(frozen=True, slots=True)
class Pattern:
    """One compiled pattern. Made by `compile_pattern`, which checks it."""

    text: str
    main: str
    pieces: tuple[str, ...]  # literal, field, literal, …, field, literal; literals may be empty
    constants: tuple[tuple[str, str], ...]  # in the order of the pattern
    variables: tuple[str, ...]  # in the order of the pattern; the main field is one of them
    fitting: re.Pattern[str]  # one group for each variable
    shaped: re.Pattern[str] | None  # a group for each field; None where that would be ambiguous

    def parse(self, name: str) -> dict[str, str] | Unfit:
        """The values of all fields of `name`, constants included; Unfit if it is not of this
        pattern. Internal names fit no pattern.
        """
        if is_internal(name):
            return Unfit(name, Misfit.SHAPE, "it is internal")
        if len(name) > NAME_CHARS_MAX:
            return Unfit(name[:NAME_CHARS_MAX], Misfit.TOO_LONG, f"{len(name)} characters")
        found = self.fitting.fullmatch(name)
        if found is None:
            return self._misfit(name)
        return {**dict(self.constants), **dict(zip(self.variables, found.groups(), strict=True))}

    def _misfit(self, name: str) -> Unfit:
        if self.shaped is not None and (found := self.shaped.fullmatch(name)) is not None:
            values = dict(zip(self.pieces[1::2], found.groups(), strict=True))
            for field, value in self.constants:
                if values[field] != value:
                    return Unfit(name, Misfit.FOREIGN, f"{field} is {value!r} here")
        return Unfit(name, Misfit.SHAPE, self.text)

    def render(self, values: Mapping[str, str]) -> str:
        """The name of the variables' `values`. Raises KeyError if one is missing."""
        known = dict(self.constants)
        parts = list(self.pieces)
        for at in range(1, len(parts), 2):
            field = parts[at]
            parts[at] = known[field] if field in known else values[field]
        return "".join(parts)


def compile_pattern(
    text: str, constants: Mapping[str, str] | None = None, *, main: str = "topic"
) -> Pattern:
    """Compiles a pattern. `constants`: values of this cluster by field; fields that the pattern
    does not have are ignored, and those without a value are variables.

    Raises PatternError for a pattern that is malformed or could be parsed in two ways.
    """
    pieces = _pieces(text)
    fields = pieces[1::2]
    if fields.count(main) != 1:
        raise PatternError(f"pattern {text!r}: the field {{{main}}} must stand in it once")
    for field in fields:
        if fields.count(field) > 1:
            raise PatternError(f"pattern {text!r}: the field {{{field}}} stands in it twice")
    given = {} if constants is None else constants
    if main in given:
        raise PatternError(f"pattern {text!r}: the field {{{main}}} cannot have a fixed value")
    fixed = {field: given[field] for field in fields if field in given}
    for field, value in fixed.items():
        if not re.fullmatch(_VALUE, value):
            raise PatternError(f"pattern {text!r}: {field} = {value!r} is not of {_VALUE}")
    _check_borders(text, pieces, main, fixed)
    first = pieces[0] or fixed.get(fields[0], "")
    if is_internal(first):
        raise PatternError(f"pattern {text!r}: its names would begin with '_', as internal ones do")
    groups = {field: f"({_MAIN_VALUE if field == main else _VALUE})" for field in fields}
    known = {field: re.escape(value) for field, value in fixed.items()}
    return Pattern(
        text=text,
        main=main,
        pieces=pieces,
        constants=tuple(fixed.items()),
        variables=tuple(field for field in fields if field not in fixed),
        fitting=_expression(pieces, {**groups, **known}),
        shaped=None if _without_border(pieces, main) else _expression(pieces, groups),
    )


def _pieces(text: str) -> tuple[str, ...]:
    """The literals and fields of a pattern in turn; begins and ends with a literal."""
    pieces: list[str] = []
    at = 0
    while True:
        literal = _LITERAL.match(text, at)
        if literal is not None:
            at = literal.end()
        pieces.append(literal[0] if literal is not None else "")
        if at == len(text):
            break
        field = _FIELD.match(text, at)
        if field is None:
            raise PatternError(f"pattern {text!r}: unexpected {text[at:]!r} at position {at}")
        if len(pieces) > 1 and not pieces[-1]:
            raise PatternError(f"pattern {text!r}: nothing stands before {field[0]} to separate it")
        pieces.append(field[1])
        at = field.end()
    if not 1 <= len(pieces) // 2 <= PATTERN_FIELDS_MAX:
        raise PatternError(f"pattern {text!r}: 1 to {PATTERN_FIELDS_MAX} fields are expected")
    return tuple(pieces)


def _check_borders(text: str, pieces: tuple[str, ...], main: str, fixed: Mapping[str, str]) -> None:
    """A variable before the main field ends at the first `-`, `$` or `#`, so its literal must begin
    with one. A variable behind the main field begins after the last one, so its literal must end
    with one.
    """
    for field, side in _without_border(pieces, main):
        if field not in fixed:
            raise PatternError(
                f"pattern {text!r}: {{{field}}} has no value here, so one of '-', '$', '#' must"
                f" stand {side} it; otherwise a name could be read in two ways"
            )


def _without_border(pieces: tuple[str, ...], main: str) -> list[tuple[str, str]]:
    """Each field that has to be a constant, and the side on which it lacks a border."""
    middle = 2 * pieces[1::2].index(main) + 1
    before = [at for at in range(1, middle, 2) if pieces[at + 1][0] not in _BORDER]
    behind = [at for at in range(middle + 2, len(pieces), 2) if pieces[at - 1][-1] not in _BORDER]
    return [(pieces[at], "behind") for at in before] + [(pieces[at], "before") for at in behind]


def _expression(pieces: tuple[str, ...], by_field: Mapping[str, str]) -> re.Pattern[str]:
    return re.compile(
        "".join(by_field[piece] if at % 2 else re.escape(piece) for at, piece in enumerate(pieces))
    )


@dataclass(frozen=True, slots=True)
class Translation:
    """Two patterns that name the same things. Made by `pair`, which checks that it is one to one.

    `shared`: (field, value) that a name must have although one of the two patterns leaves the field
    open: the other has a constant there.
    """

    source: Pattern
    target: Pattern
    shared: tuple[tuple[str, str], ...]
    chars_max: int

    def there(self, name: str) -> str | Unfit:
        """The target's name of the source's `name`."""
        return self._translated(name, self.source, self.target)

    def back(self, name: str) -> str | Unfit:
        """The source's name of the target's `name`."""
        return self._translated(name, self.target, self.source)

    def _translated(self, name: str, parsed: Pattern, rendered: Pattern) -> str | Unfit:
        if is_internal(name):
            return name
        values = parsed.parse(name)
        if isinstance(values, Unfit):
            return values
        for field, value in self.shared:
            if field in parsed.variables and values[field] != value:
                return Unfit(name, Misfit.FOREIGN, f"{field} is {value!r} on the other side")
        made = rendered.render(values)
        if is_internal(made):
            return Unfit(name, Misfit.INTERNAL, made)
        if len(made) > self.chars_max:
            return Unfit(name, Misfit.TOO_LONG, f"{len(made)} characters of {self.chars_max}")
        return made


def pair(source: Pattern, target: Pattern, *, chars_max: int = TOPIC_CHARS_MAX) -> Translation:
    """The translation between two patterns; names longer than `chars_max` are not made.

    Raises CollisionError if two names of one side could become one on the other, PatternError if
    the two name different things.
    """
    if source.main != target.main:
        raise PatternError(
            f"patterns {source.text!r} and {target.text!r}:"
            f" {{{source.main}}} is not {{{target.main}}}"
        )
    _check_kept(source, target)
    _check_kept(target, source)
    here, there = dict(source.constants), dict(target.constants)
    shared = [(field, there[field]) for field in source.variables if field in there]
    shared += [(field, here[field]) for field in target.variables if field in here]
    return Translation(source, target, tuple(shared), chars_max)


def _check_kept(source: Pattern, target: Pattern) -> None:
    """Every variable of the source must stand in the target, or two names become one."""
    kept = set(target.pieces[1::2])
    for lost in source.variables:
        if lost in kept:
            continue
        sample = {field: f"{field.replace('.', '_')}1" for field in source.variables}
        sample |= dict(source.constants)
        sample[source.main] = "orders"
        other = {**sample, lost: "other"}
        names = (source.render(sample), source.render(other))
        lacking = [variable for variable in target.variables if variable not in sample]
        made = target.render({**sample, **{field: f"{{{field}}}" for field in lacking}})
        raise CollisionError(
            f"patterns {source.text!r} and {target.text!r}: {{{lost}}} is lost, so that"
            f" {names[0]!r} and {names[1]!r} would both be {made!r}",
            names,
            made,
        )
