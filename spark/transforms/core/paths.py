"""Paths into a record: `tailnum`, `address.street`, `legs[].tail`, `"a.b".c`, `[].id`.

A dot leads into an object, `[]` to every element of an array. A name that holds a dot, a bracket, a
quote or a blank is written in double quotes, with `\\"` and `\\\\` inside. The empty path is the
whole key or value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from spark.transforms.core.limits import PATH_CHARACTERS_MAX, PATH_SEGMENTS_MAX

_QUOTED = re.compile(r'"((?:[^"\\]|\\["\\])*)"')
_BARE = re.compile(r'[^.\[\]"\s]+')


class _Every(Enum):
    ELEMENT = "[]"


EVERY: Literal[_Every.ELEMENT] = _Every.ELEMENT
Segment = str | Literal[_Every.ELEMENT]


class InvalidPath(ValueError):
    """The text is no path; says at which character and why."""


@dataclass(frozen=True, slots=True)
class Path:
    segments: tuple[Segment, ...]

    def __str__(self) -> str:
        text = ""
        for segment in self.segments:
            if segment is EVERY:
                text += "[]"
            else:
                text += ("." if text else "") + _written(segment)
        return text

    @property
    def field(self) -> str | None:
        """The name at the end; None for the whole record and for elements of an array."""
        last = self.segments[-1] if self.segments else EVERY
        return None if last is EVERY else last


WHOLE = Path(())


def _written(name: str) -> str:
    if _BARE.fullmatch(name):
        return name
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def parse_path(text: str) -> Path:
    """Raises InvalidPath."""
    if len(text) > PATH_CHARACTERS_MAX:
        raise InvalidPath(f"a path has at most {PATH_CHARACTERS_MAX} characters")
    segments: list[Segment] = []
    at = 0
    while at < len(text):
        if text.startswith("[]", at):
            segments.append(EVERY)
            at += 2
            continue
        if segments:
            if text[at] != ".":
                raise InvalidPath(f"path {text!r}: `.` or `[]` expected at character {at + 1}")
            at += 1
        name, at = _name(text, at)
        segments.append(name)
    if len(segments) > PATH_SEGMENTS_MAX:
        raise InvalidPath(f"a path has at most {PATH_SEGMENTS_MAX} parts")
    return Path(tuple(segments))


def _name(text: str, at: int) -> tuple[str, int]:
    if quoted := _QUOTED.match(text, at):
        return re.sub(r"\\(.)", r"\1", quoted[1]), quoted.end()
    if bare := _BARE.match(text, at):
        return bare[0], bare.end()
    if text.startswith("[", at):
        raise InvalidPath(f"path {text!r}: only `[]`, every element, may follow at {at + 1}")
    raise InvalidPath(f"path {text!r}: a name expected at character {at + 1}")
