"""A part of the status of a distribution: some links, groups, topics or targets, and offsets a page
at a time.

A status is the answer of a command (distribution.py), up to STATUS_BYTES_MAX of JSON. Here it is
read row by row, in a thread, which pauses after every portion. Rows that are kept stay as they were
written.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request

from gateway.admin.json_reader import JsonReader
from gateway.admin.limits import STATUS_PAUSE_S
from gateway.admin.pages import limit_of


class Part(NamedTuple):
    """`status`: as JSON. `following`: `after` of the next page."""

    status: str
    following: str | None = None


class RowKey(NamedTuple):
    """The key of a row of offsets. The rows stand in this order."""

    group: str
    topic: str
    partition: int
    cluster: str


PartOf = Callable[[bytes], Part]  # raises ValueError if the text is no such status


def part_asked(request: Request) -> PartOf | None:
    """None: all of it. Raises HTTPException."""
    given = request.query_params
    if not given:
        return None
    if request.url.path == "/v1/links":
        return partial(some_links, link=given.get("link"), topic=given.get("topic"))
    if request.url.path == "/v1/schemas":
        return partial(some_targets, target=given.get("target"))
    names = ("group", "topic", "cluster")
    wanted = {name: given[name] for name in names if name in given}
    return partial(some_offsets, wanted=wanted, after=_after(request), limit=limit_of(request))


def some_links(text: bytes, *, link: str | None, topic: str | None) -> Part:
    """The status of one link or all, with one of their topics or all."""
    reader = _reader(text)
    rows: list[str] = []
    for _ in reader.items():
        kept = True
        fields: dict[str, str] = {}
        for name in reader.names():
            if name == "topics":
                fields[name] = _topics(reader, topic)
            else:
                value, fields[name] = reader.value()
                kept = kept and (name != "link" or link in (None, value))
        if kept:
            rows.append(_object(fields))
    return Part(_list(rows))


def _topics(reader: JsonReader, topic: str | None) -> str:
    fields: dict[str, str] = {}
    for name in reader.names():
        _, shown = reader.value()
        if topic in (None, name):
            fields[name] = shown
    return _object(fields)


def some_offsets(
    text: bytes, *, wanted: Mapping[str, str], after: RowKey | None, limit: int
) -> Part:
    """At most `limit` rows behind `after` that have the `wanted` fields."""
    page: list[RowKey] = []
    more = False

    def kept(row: object) -> bool:
        nonlocal more
        if more or any(_text(row, name) != value for name, value in wanted.items()):
            return False
        place = _place(row)
        if after is not None and place <= after:
            return False
        more = len(page) == limit
        if not more:
            page.append(place)
        return not more

    status = _narrowed(text, "rows", kept)
    return Part(status, _after_text(page[-1]) if more else None)


def some_targets(text: bytes, *, target: str | None) -> Part:
    """The status of one target or all; `ok` speaks of all."""
    return Part(_narrowed(text, "targets", lambda row: target in (None, _text(row, "target"))))


def _narrowed(text: bytes, rows: str, kept: Callable[[object], bool]) -> str:
    """The object, with those of the list `rows` that are kept."""
    reader = _reader(text)
    fields: dict[str, str] = {}
    for name in reader.names():
        if name != rows:
            _, fields[name] = reader.value()
            continue
        shown: list[str] = []
        for _ in reader.items():
            row, written = reader.value()
            if kept(row):
                shown.append(written)
        fields[name] = _list(shown)
    return _object(fields)


def _reader(text: bytes) -> JsonReader:
    return JsonReader(text, pause=partial(time.sleep, STATUS_PAUSE_S))


def _place(row: object) -> RowKey:
    partition = row.get("partition") if isinstance(row, dict) else None
    if not isinstance(partition, int):
        raise ValueError("a row without partition")
    return RowKey(_text(row, "group"), _text(row, "topic"), partition, _text(row, "cluster"))


def _text(row: object, name: str) -> str:
    found = row.get(name) if isinstance(row, dict) else None
    if not isinstance(found, str):
        raise ValueError(f"a row without {name}")
    return found


def _list(rows: Iterable[str]) -> str:
    return f"[{', '.join(rows)}]"


def _object(fields: Mapping[str, str]) -> str:
    return f"{{{', '.join(f'{json.dumps(name)}: {text}' for name, text in fields.items())}}}"


def _after_text(place: RowKey) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def _after(request: Request) -> RowKey | None:
    """Raises HTTPException."""
    text = request.query_params.get("after")
    if not text:
        return None
    try:
        padding = "=" * (-len(text) % 4)
        place = json.loads(base64.b64decode(text + padding, altchars=b"-_", validate=True))
        group, topic, partition, cluster = place
        if [type(part) for part in place] == [str, str, int, str]:
            return RowKey(group, topic, partition, cluster)
    except (ValueError, TypeError, RecursionError):
        pass
    raise HTTPException(400, f"after={text!r} is no `next` of a page of offsets")
