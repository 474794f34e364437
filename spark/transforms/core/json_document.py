"""A JSON text taken apart only where a path leads, and put together again byte for byte.

An object or array on a path becomes a `Container`: its items with the blanks around them. Every
other value stays the slice of text it was. So a value that no step touches keeps digits, escapes,
blanks, order, and names that occur twice. A path to such a name leads to each of them: a mask that
took only one would show the other.

Not done by `json.loads` and `json.dumps`: a round trip rewrites numbers, escapes and blanks and
drops the first of two equal names.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Literal, NoReturn

from spark.transforms.core.paths import EVERY, Path, Segment
from spark.transforms.core.values import Number, Scalar, Shape, UnreadableRecord, Value, described

# Possessive quantifiers (`*+`, `++`): a text without its closing quote fails in linear time.
_BLANK = r"[ \t\n\r]*+"
_STRING = r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"'
_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
_SCALAR = rf"{_STRING}|{_NUMBER}|true|false|null"
_MEMBER = re.compile(rf"({_BLANK}({_STRING}){_BLANK}:{_BLANK})(?:({_SCALAR})({_BLANK})([,}}]))?")
_FLAT = re.compile(rf"({_BLANK}({_STRING}){_BLANK}:{_BLANK})({_SCALAR})({_BLANK})([,}}])")
_BRACKET = re.compile(r"[\[{]")
_ELEMENT = re.compile(rf"({_BLANK})(?:({_SCALAR})({_BLANK})([,\]]))?")
_BLANKS = re.compile(_BLANK)
_EMPTY = {"{": re.compile(rf"({_BLANK})\}}"), "[": re.compile(rf"({_BLANK})\]")}
_CLOSING = {"{": "}", "[": "]"}


def _no_number(word: str) -> NoReturn:
    raise ValueError(word)


# Finds the end of a nested value. Numbers stay text: int() refuses those of 4,300 digits.
_DECODER = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=_no_number)


class Container:
    """An object (`{`) or array (`[`); `""` is the document around its one value.

    Item i is written leads[i] + values[i] + trails[i]; the lead of a member ends with its colon.
    """

    __slots__ = ("blank", "bracket", "leads", "names", "trails", "values")

    def __init__(self, bracket: Literal["{", "[", ""]) -> None:
        self.bracket = bracket
        self.names: list[str] = []
        self.leads: list[str] = []
        self.values: list[str | Container] = []
        self.trails: list[str] = []
        self.blank = ""  # inside the brackets when there is no item

    def add(self, name: str, lead: str, value: str, trail: str) -> None:
        self.names.append(name)
        self.leads.append(lead)
        self.values.append(value)
        self.trails.append(trail)

    def text(self) -> str:
        items = [
            lead + (value if isinstance(value, str) else value.text()) + trail
            for lead, value, trail in zip(self.leads, self.values, self.trails, strict=True)
        ]
        inside = ",".join(items) if items else self.blank
        return f"{self.bracket}{inside}{_CLOSING.get(self.bracket, '')}"

    def opened(self, index: int) -> Container | Scalar:
        """The item's container, taken apart now if it was not yet, or the scalar it is."""
        value = self.values[index]
        if isinstance(value, Container):
            return value
        if value[0] not in "{[":
            return _scalar(value)
        inside, _ = _take_apart(value, 0)
        self.values[index] = inside
        return inside


@dataclass(slots=True, eq=False)  # not frozen: made for each field of each record
class JsonLocation:
    document: JsonDocument
    holder: Container
    index: int

    @property
    def value(self) -> Value:
        value = self.holder.values[self.index]
        if isinstance(value, Container):
            return _SHAPES[value.bracket]
        return _SHAPES.get(value[0]) or _scalar(value)

    def replace(self, value: Scalar) -> None:
        self.holder.values[self.index] = _written(value)
        self.document.changed = True

    def retype(self, value: Scalar, kind: Literal["long", "string"]) -> None:  # noqa: ARG002
        self.replace(value)

    def rename(self, name: str) -> None:
        holder = self.holder
        if name in holder.names:
            raise UnreadableRecord("an object has a field of the new name already")
        blank = _BLANKS.match(holder.leads[self.index])
        assert blank is not None
        member = re.compile(_STRING).match(holder.leads[self.index], blank.end())
        assert member is not None, "a lead is blanks, a name, a colon"
        holder.leads[self.index] = (
            blank[0] + _written(name) + holder.leads[self.index][member.end() :]
        )
        holder.names[self.index] = name
        self.document.changed = True

    def remove(self) -> None:
        holder = self.holder
        for parts in (holder.names, holder.leads, holder.values, holder.trails):
            del parts[self.index]
        self.document.changed = True


_SHAPES = {"{": Shape.OBJECT, "[": Shape.ARRAY}


class JsonDocument:
    """One JSON text in UTF-8."""

    __slots__ = ("_data", "_root", "changed", "lacking")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._root: Container | None = None
        self.changed = False
        self.lacking = False

    def encode(self) -> bytes:
        if not self.changed or self._root is None:
            return self._data
        return self._root.text().encode("utf-8")

    def places(self, path: Path) -> list[JsonLocation]:
        if self._root is None:
            self._root = _whole(self._data)
        found = [(self._root, 0)]
        self.lacking = False
        for segment in path.segments:
            below: list[tuple[Container, int]] = []
            for holder, index in found:
                there = _below(holder.opened(index), segment, path)
                self.lacking |= not there and segment is not EVERY
                below += there
            found = below
        return [JsonLocation(self, holder, index) for holder, index in found]


def _below(inside: Container | Scalar, segment: Segment, path: Path) -> list[tuple[Container, int]]:
    if inside is None:
        return []
    bracket = inside.bracket if isinstance(inside, Container) else ""
    if bracket != ("[" if segment is EVERY else "{"):
        is_there = _SHAPES[bracket] if isinstance(inside, Container) else inside
        wanted = Shape.ARRAY if segment is EVERY else Shape.OBJECT
        raise UnreadableRecord(f"on path {path} is {described(is_there)}, not {wanted.value}")
    assert isinstance(inside, Container)
    if segment is EVERY:
        return [(inside, index) for index in range(len(inside.values))]
    count = inside.names.count(segment)
    if count <= 1:  # as good as always, and twice as fast
        return [(inside, inside.names.index(segment))] if count else []
    return [(inside, index) for index, name in enumerate(inside.names) if name == segment]


def _whole(data: bytes) -> Container:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableRecord(f"not UTF-8 at byte {error.start}") from None
    root = Container("")
    blank = _BLANKS.match(text)
    assert blank is not None
    start = blank.end()
    if text[start : start + 1] in _CLOSING:
        inside, end = _take_apart(text, start)
        root.add("", blank[0], "", text[end:])
        root.values[0] = inside
    else:
        scalar = re.compile(_SCALAR).match(text, start)
        if scalar is None:
            raise _not_json(start)
        end = scalar.end()
        root.add("", blank[0], scalar[0], text[end:])
    if text[end:].strip(" \t\n\r"):
        raise _not_json(end)
    return root


def _take_apart(text: str, at: int) -> tuple[Container, int]:
    """The object or array that begins at `at`, and where it ends. Raises UnreadableRecord."""
    bracket: Literal["{", "["] = "{" if text[at] == "{" else "["
    container = Container(bracket)
    at += 1
    if empty := _EMPTY[bracket].match(text, at):
        container.blank = empty[1]
        return container, empty.end()
    if bracket == "{" and (end := _flat(container, text, at)):
        return container, end
    separator = ","
    while separator == ",":
        if bracket == "{":
            item = _MEMBER.match(text, at)
            if item is None:
                raise _not_json(at)
            lead, quoted, value, trail, separator = item.groups()
            name = quoted[1:-1] if "\\" not in quoted else json.loads(quoted)
        else:
            item = _ELEMENT.match(text, at)
            assert item is not None, "blanks may be none"
            lead, value, trail, separator = item.groups()
            name = ""
        at = item.end()
        if value is None:
            value, trail, separator, at = _nested(text, at, _CLOSING[bracket])
        container.add(name, lead, value, trail)
    return container, at


def _flat(container: Container, text: str, at: int) -> int | None:
    """Fills `container` in one call of the regular expression, a third of the time, if it holds
    scalars only; else returns None and leaves it as it was.
    """
    if "\\" in text or _BRACKET.search(text, at) is not None:
        return None
    end = text.find("}", at) + 1
    members = _FLAT.findall(text, at, end)
    if not members:
        return None
    leads, quoted, values, trails, separators = zip(*members, strict=True)
    # findall skips text that does not match: then the lengths do not add up.
    taken = sum(map(len, leads)) + sum(map(len, values)) + sum(map(len, trails)) + len(values)
    if taken != end - at or separators[-1] != "}":
        return None
    container.names = [name[1:-1] for name in quoted]
    container.leads = list(leads)
    container.values = list(values)
    container.trails = list(trails)
    return end


def _nested(text: str, start: int, closing: str) -> tuple[str, str, str, int]:
    """A value with others inside: its text, the blanks and the separator behind it, its end."""
    try:
        _, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        if isinstance(error, RecursionError):
            raise UnreadableRecord("nested too deeply") from None
        raise _not_json(getattr(error, "pos", start)) from None
    blank = _BLANKS.match(text, end)
    assert blank is not None
    at = blank.end()
    separator = text[at : at + 1]
    if separator != "," and separator != closing:
        raise _not_json(at)
    return text[start:end], blank[0], separator, at + 1


def _not_json(at: int) -> UnreadableRecord:
    return UnreadableRecord(f"not JSON at character {at + 1}")


def _scalar(text: str) -> Scalar:
    if text[0] == '"':
        return text[1:-1] if "\\" not in text else str(json.loads(text))
    words: dict[str, Scalar] = {"true": True, "false": False, "null": None}
    return words[text] if text in words else Number(text)


def _written(value: Scalar) -> str:
    match value:
        case Number():
            return value.text
        case bytes():
            raise UnreadableRecord("JSON has no bytes")
        case str():
            text = encode_basestring(value)
            # Half of a surrogate pair has no bytes in UTF-8; escaped it may stay.
            return text if text.isascii() or _is_utf8(text) else json.dumps(value)
        case _:
            return json.dumps(value)


def _is_utf8(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
