"""Key filters that a client declares in its own client.id: `orders-1;keys=eu-*|us-*`.

The globs follow the first `;keys=`, with `|` between them; the member takes only keys that match
one of them (dispatcher/core/routing/glob.py). A `|`, `;` or `%` that belongs to a key, and a byte
that is no text, is written as %XX. The part before `;keys=` is the name for the rules of
keyway.yaml and REST; a rule that matches the name wins over the declaration.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote_to_bytes

from gateway.core.limits import FILTER_GLOB_BYTES_MAX, FILTER_GLOBS_MAX, FILTERS_COST_MAX
from gateway.core.share.errors import InvalidRequest

MARK = ";keys="
_GLOB_COST = 32
_SEARCH_COST = 512
_SEARCHED_BYTE_COST = 64
NO_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")


class InvalidKeyFilters(InvalidRequest):
    """The key filters behind `;keys=` in a client.id cannot be read.

    The member may not join: it would take keys it did not ask for.
    """


def client_name(client_id: str) -> str:
    """The client.id without the filters it declares."""
    return client_id.partition(MARK)[0]


def inline_filters(client_id: str) -> tuple[bytes, ...]:
    """The globs a client.id declares; () if it declares none. Raises InvalidKeyFilters."""
    _, mark, text = client_id.partition(MARK)
    if not mark:
        return ()
    if NO_ESCAPE.search(text):
        raise InvalidKeyFilters("A `%` in key filters is followed by two hex digits; `%25` is one.")
    return checked(tuple(unquote_to_bytes(glob) for glob in text.split("|")))


def checked(globs: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The same globs, if they are within the bounds. Raises InvalidKeyFilters."""
    if len(globs) > FILTER_GLOBS_MAX:
        raise InvalidKeyFilters(f"{len(globs)} key filters: at most {FILTER_GLOBS_MAX}.")
    for glob in globs:
        if not glob:
            raise InvalidKeyFilters("A key filter is empty; `*` takes every key.")
        if len(glob) > FILTER_GLOB_BYTES_MAX:
            raise InvalidKeyFilters(
                f"A key filter of {len(glob)} bytes: at most {FILTER_GLOB_BYTES_MAX}."
            )
    return globs


def cost(filters: tuple[bytes, ...]) -> int:
    """The work of matching a key with these globs, roughly: a byte between two stars may be
    compared with each byte of the key, any other one once.
    """
    return sum(_GLOB_COST + len(glob) + _search_cost(glob) for glob in filters)


def check_cost(filters: Iterable[tuple[bytes, ...]]) -> None:
    """`filters`: of all members of a group, or of all its rules. Raises InvalidKeyFilters."""
    wanted = sum(map(cost, set(filters)))
    if wanted > FILTERS_COST_MAX:
        raise InvalidKeyFilters(
            f"The key filters of a group are too many together: {wanted} of at most"
            f" {FILTERS_COST_MAX}. Each glob counts {_GLOB_COST} and its bytes, one with bytes"
            f" between two `*` {_SEARCH_COST} more, and {_SEARCHED_BYTE_COST} for each of these;"
            " equal filters count once."
        )


def _search_cost(glob: bytes) -> int:
    searched = len(glob[glob.find(b"*") : glob.rfind(b"*")].replace(b"*", b""))
    return _SEARCH_COST + _SEARCHED_BYTE_COST * searched if searched else 0
