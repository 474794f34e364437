"""`keyway group seek`: its places, its dry run, its exit statuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.rig.rest_stand_in import keyway, rows, stand_in

MOVED = {"topic": "orders", "partition": 0, "old": 9, "new": 4, "delta": -5}
STAYS = {"topic": "orders", "partition": 1, "old": 2, "new": None, "delta": None, "error": "away"}
SEEK = "/v1/positions/seek?group=g"


def sought(*rows_: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"group": "g", "executed": False, "shown": "abc", "positions": list(rows_), **more}


@pytest.mark.parametrize(
    ("options", "body"),
    [
        (["--to", "earliest"], {"to": "earliest"}),
        (["--to", "offset", "--offset", "4"], {"to": "offset", "offset": 4}),
        (["--offset", "4", "--topic", "orders"], {"to": "offset", "offset": 4, "topic": "orders"}),
        (["--timestamp", "17"], {"to": "timestamp", "timestamp_ms": 17}),
        (
            ["--timestamp", "1970-01-01T00:01:00.5"],
            {"to": "timestamp", "timestamp_ms": 60_500},
        ),
        (
            ["--timestamp", "1970-01-01T02:00:00+02:00"],
            {"to": "timestamp", "timestamp_ms": 0},
        ),
        (
            ["--to", "latest", "--topic", "orders", "--partition", "0", "--partition", "2"],
            {"to": "latest", "topic": "orders", "partitions": [0, 2]},
        ),
    ],
)
def test_a_seek_shows_the_moves_first(options: list[str], body: dict[str, Any]) -> None:
    with stand_in({SEEK: [sought(MOVED), sought(MOVED, executed=True)]}) as rest:
        code, out, _ = keyway("group", "seek", "g", *options, "--admin", rest.address)
        assert code == 0
        assert rows(out)[1] == ["g", "orders", "0", "9", "4", "-5", "-"]
        assert out.endswith("nothing is done without --execute\n")
        code, out, _ = keyway(
            "group", "seek", "g", *options, "--execute", "--admin", rest.address, "-o", "json"
        )
        assert (code, json.loads(out)["executed"]) == (0, True)
    assert rest.bodies == [{**body, "execute": False}, {**body, "execute": True}]


def test_a_shift_is_made_with_the_positions_that_were_shown() -> None:
    with stand_in({SEEK: [sought(MOVED), sought(MOVED, executed=True)]}) as rest:
        command = ("group", "seek", "g", "--shift", "-5", "--admin", rest.address)
        code, out, _ = keyway(*command)
        assert out.endswith("nothing is done without --execute --shown abc\n")
        code, _, err = keyway(*command, "--execute")
        assert (code, "needs --shown" in err) == (2, True)
        assert keyway(*command, "--execute", "--shown", "abc")[0] == 0
    shift = {"to": "shift", "shift": -5}
    assert rest.bodies == [
        {**shift, "execute": False},
        {**shift, "shown": "abc", "execute": True},
    ]


def test_a_seek_that_fails_has_exit_status_1() -> None:
    active = sought(MOVED, refused="Group g is not empty: it has 1 members.")
    refused = (409, {"title": "Group g is not empty"})
    answers = [active, refused, sought(MOVED, STAYS, executed=True)]
    with stand_in({SEEK: answers}) as rest:
        command = ("group", "seek", "g", "--to", "latest", "--admin", rest.address)
        code, out, err = keyway(*command)
        assert (code, err) == (1, "keyway: Group g is not empty: it has 1 members.\n")
        assert len(rows(out)) == 2, "what it would do is shown"
        assert keyway(*command, "--execute") == (1, "", "keyway: Group g is not empty\n")
        code, out, err = keyway(*command, "--execute")
        assert (code, err) == (1, "keyway: 1 of 2 partitions cannot be moved\n")
        assert rows(out)[2] == ["g", "orders", "1", "2", "-", "-", "away"]


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--to", "offset"],
        ["--to", "earliest", "--offset", "1"],
        ["--offset", "1", "--shift", "1"],
        ["--to", "nowhere"],
        ["--timestamp", "yesterday"],
        ["--to", "earliest", "--partition", "1"],
    ],
)
def test_a_place_that_is_none_asks_no_node(options: list[str]) -> None:
    code, _, err = keyway("group", "seek", "g", *options, "--admin", "127.0.0.1:1")
    assert code == 2
    assert "no node answers" not in err
