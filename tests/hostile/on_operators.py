"""Attacks through REST, from somebody who reaches its port."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request

from tests.hostile.target import Target, until


def _asked(target: Target, method: str, path: str, body: object | None = None) -> int:
    """The status; 0 without an answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{target.admin}{path}", data=data, method=method)
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def rules_without_end(target: Target, seconds: float) -> str:
    """Finding 16: key filters of many groups, as long as they may be."""
    rules = [{"client_id": "c" * 200, "keys": ["k" * 200 + "*"] * 8} for _ in range(140)]
    taken = refused = 0
    for at in until(seconds):
        group = urllib.parse.quote(f"filters-{at}")
        code = _asked(target, "PUT", f"/v1/filters?group={group}", {"rules": rules})
        taken += code in (200, 204)
        refused += code not in (200, 204)
    return f"{taken} sets of 140 rules taken, {refused} refused"


def names_that_are_none(target: Target, seconds: float) -> str:
    """Finding 16: group names with a newline, a lone surrogate, 100,000 characters."""
    codes: dict[int, int] = {}
    half = {"group": "\ud800", "topic": "t", "partition": 0, "offsets": "all", "action": "retry"}
    names = ["a\nb", "x" * 60_000, "%00", "../..", "ä" * 1_000]
    for at in until(seconds):
        name = urllib.parse.quote(names[at % len(names)], safe="")
        for code in (
            _asked(target, "GET", f"/v1/groups/{name}"),
            _asked(target, "GET", f"/v1/parked?group={name}"),
            _asked(target, "POST", "/v1/parked/release", half),
        ):
            codes[code] = codes.get(code, 0) + 1
    said = ", ".join(f"{count:,} x {code}" for code, count in sorted(codes.items()))
    assert 500 not in codes, said
    return said
