"""`keyway limit list`: its columns, its forms, several pages, and only accounts at a limit."""

from __future__ import annotations

import json
from typing import Any

import yaml

from tests.rig.rest_stand_in import keyway, rows, stand_in

SLOW: dict[str, Any] = {
    "rule": "tenants",
    "per": "principal",
    "who": "tenant-7",
    "connections": 3,
    "connections_max": 5,
    "requests": 120,
    "requests_per_s": None,
    "bytes_in": 9_000,
    "bytes_in_per_s": 1_000,
    "bytes_out": 800,
    "bytes_out_per_s": None,
    "share_sessions": 2,
    "share_sessions_max": 2,
    "throttled_ms": 4_500,
    "muted": 6,
    "refused": 1,
    "wait_ms": 250,
    "reached": ["bytes_in_per_s", "share_sessions"],
}
FREE = SLOW | {
    "rule": "others",
    "who": None,
    "share_sessions_max": None,
    "wait_ms": 0,
    "reached": [],
}
HEADS = (
    *("RULE", "WHO", "CONNECTIONS", "REQUESTS", "REQUESTS/S", "IN", "IN/S", "OUT", "OUT/S"),
    *("SHARE-SESSIONS", "THROTTLED-MS", "MUTED", "REFUSED", "WAIT-MS", "REACHED"),
)


def test_what_each_account_has_used_and_may_use() -> None:
    with stand_in({"/v1/limits": {"limits": [SLOW, FREE], "total": 2}}) as rest:
        code, out, err = keyway("limit", "list", "--admin", rest.address)
    assert (code, err) == (0, "")
    heads, slow, free = rows(out)
    assert tuple(heads) == HEADS
    used = ["120", "-", "9000", "1000", "800", "-"]
    reached = "bytes_in_per_s,share_sessions"
    assert slow == [
        *("tenants", "tenant-7", "3", "of", "5", *used, "2", "of", "2"),
        *("4500", "6", "1", "250", reached),
    ]
    assert free == ["others", "-", "3", "of", "5", *used, "2", "4500", "6", "1", "0", "-"]


def test_only_accounts_that_have_reached_a_limit_from_all_pages() -> None:
    pages = {
        "/v1/limits?reached=true": {"limits": [SLOW], "total": 900, "next": "7"},
        "/v1/limits?reached=true&after=7": {"limits": [SLOW | {"who": "z"}], "total": 900},
    }
    for form, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        with stand_in(pages) as rest:
            arguments = ("--reached", "--admin", rest.address, "-o", form)
            code, out, _ = keyway("limit", "list", *arguments)
        assert code == 0
        assert read(out) == {"limits": [SLOW, SLOW | {"who": "z"}], "total": 900}
