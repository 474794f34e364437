"""Lists of REST, a page at a time: `limit`, and `after`, the last row of the page before.

Lists may be long, and the node has one event loop: a walk gives way to other work every
ROWS_AT_ONCE rows, whether or not they are kept.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

from gateway.admin.limits import PAGE_ROWS_MAX, ROWS_AT_ONCE

Item = TypeVar("Item")


def limit_of(request: Request, most: int = PAGE_ROWS_MAX) -> int:
    """Raises HTTPException."""
    return number(request, "limit", 1, most, default=most)


def number(
    request: Request, name: str, least: int, most: int, *, default: int | None = None
) -> int:
    """A parameter of the query, which must be there if it has no default. Raises HTTPException."""
    text = request.query_params.get(name)
    if text is None:
        if default is None:
            raise HTTPException(400, f"the parameter {name} is missing")
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and least <= int(text) <= most):
        raise HTTPException(400, f"{name}={text!r} is not between {least} and {most}")
    return int(text)


def flag(request: Request, name: str) -> bool:
    """A parameter of the query; false without it. Raises HTTPException."""
    text = request.query_params.get(name, "false")
    if text not in ("true", "false"):
        raise HTTPException(400, f"{name}={text!r} is not true or false")
    return text == "true"


def one_of(request: Request, name: str, words: Sequence[str]) -> str | None:
    """A parameter of the query. Raises HTTPException."""
    text = request.query_params.get(name)
    if text is not None and text not in words:
        raise HTTPException(400, f"{name}={text!r} is not one of {', '.join(words)}")
    return text


async def page_of(
    items: Sequence[Item], first: int, limit: int, kept: Callable[[Item], bool]
) -> tuple[list[Item], bool]:
    """At most `limit` of the items that are `kept`, from index `first` on, and whether there are
    more.
    """
    found: list[Item] = []
    for at in range(first, len(items)):
        if kept(items[at]):
            if len(found) == limit:
                return found, True
            found.append(items[at])
        if at % ROWS_AT_ONCE == 0:
            await asyncio.sleep(0)
    return found, False


async def names_page(
    request: Request, names: Sequence[str], kept: Callable[[str], bool]
) -> tuple[list[str], str | None]:
    """One page of ascending names, and the `after` of the next one. `name` in the query: only
    names that hold it. Raises HTTPException.
    """
    limit = limit_of(request)
    part = request.query_params.get("name", "")
    first = bisect_right(names, request.query_params.get("after", ""))
    page, more = await page_of(names, first, limit, lambda name: part in name and kept(name))
    return page, page[-1] if more else None


def place_text(*place: object) -> str:
    """The `after` of the next page of places: `place_after` and `record_after` read it."""
    return "-".join(map(str, place))


def place_after(request: Request) -> tuple[str, int]:
    """`after` as topic and partition: `orders-3`. Raises HTTPException."""
    topic, (partition,) = _place(request, "TOPIC-PARTITION", 1)
    return topic, partition


def record_after(request: Request) -> tuple[str, int, int]:
    """`after` as topic, partition and offset: `orders-3-17`. Raises HTTPException."""
    topic, (partition, offset) = _place(request, "TOPIC-PARTITION-OFFSET", 2)
    return topic, partition, offset


def _place(request: Request, form: str, count: int) -> tuple[str, list[int]]:
    """The text before `count` numbers. Raises HTTPException."""
    text = request.query_params.get("after", "")
    if not text:
        return "", [-1] * count
    topic, *numbers = text.rsplit("-", count)
    fit = all(digits.isascii() and digits.isdecimal() and len(digits) < 20 for digits in numbers)
    if not topic or len(numbers) < count or not fit:
        raise HTTPException(400, f"after={text!r} is no {form}")
    return topic, [int(digits) for digits in numbers]
