"""Which answers are a schema registry's own words, by the codes of Confluent's REST interface."""

from __future__ import annotations

from typing import Final

_ABSENT: Final = range(40400, 40500)


def says_absent(body: object) -> bool:
    """Whether the JSON of a 404 has a registry's code for what it does not have. Any other 404 is
    that of a proxy, or of a registry that starts, and says nothing about a schema.
    """
    return isinstance(body, dict) and body.get("error_code") in _ABSENT
