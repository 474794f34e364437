"""`keyway config` and `keyway audit`."""

from __future__ import annotations

import json
from typing import Any

import yaml

from tests.rig.rest_stand_in import keyway, rows, stand_in

DIFFERENCES = [
    {"option": "groups.0.deliveries_max", "running": 5, "file": None, "reload": True},
    {"option": "admin.port", "running": 9180, "file": 9181, "reload": False},
]
CONFIG: dict[str, Any] = {
    "file": "keyway.yaml",
    "config": {"admin": {"port": 9180}, "upstream": {"sasl": {"password": "***"}}},
    "differences": DIFFERENCES,
}


def test_the_configuration_that_runs_is_shown_as_a_file_would_have_it() -> None:
    with stand_in({"/v1/config": CONFIG}) as rest:
        code, out, _ = keyway("config", "show", "--admin", rest.address)
        assert (code, yaml.safe_load(out)) == (0, CONFIG["config"])
        _, out, _ = keyway("config", "show", "--admin", rest.address, "-o", "json")
        assert json.loads(out) == CONFIG["config"]


def test_a_reload_shows_the_differences_first() -> None:
    done = {"reloaded": ["groups.0.deliveries_max"], "restart": ["admin.port"]}
    with stand_in({"/v1/config": CONFIG, "/v1/config/reload": done}) as rest:
        code, out, _ = keyway("config", "reload", "--admin", rest.address)
        assert code == 0
        assert rest.asked == ["/v1/config"], "nothing is changed"
        assert rows(out)[1:3] == [
            ["groups.0.deliveries_max", "5", "null", "by", "a", "reload"],
            ["admin.port", "9180", "9181", "by", "a", "restart"],
        ]
        assert out.endswith("nothing is done without --execute\n")
        assert rows(keyway("config", "diff", "--admin", rest.address)[1]) == rows(out)[:-1]
        code, out, _ = keyway("config", "reload", "--execute", "--admin", rest.address)
        assert rest.asked[-1] == "/v1/config/reload"
        assert out == "reloaded: groups.0.deliveries_max\nneeds a restart: admin.port\n"


def test_a_file_that_cannot_be_compared_is_one_line() -> None:
    with stand_in({"/v1/config": CONFIG | {"problem": "keyway.yaml: no\x1bYAML"}}) as rest:
        for command in ("show", "diff", "reload"):
            code, out, err = keyway("config", command, "--admin", rest.address)
            assert (code, out, err) == (1, "", "keyway: keyway.yaml: no\\x1bYAML\n")


def test_the_audit() -> None:
    line = {
        "id": 7,
        "at_ms": 60_000,
        "who": "alice",
        "role": "operator",
        "address": "10.0.0.1",
        "action": "parked.release",
        "group": "g",
        "topic": "orders",
        "partition": 3,
        "offsets": "7-9",
        "outcome": "done",
    }
    refusal = {
        "id": 8,
        "at_ms": 61_000,
        "who": None,
        "role": None,
        "address": "10.0.0.2",
        "action": "login",
        "outcome": "refused: 401",
        "count": 12,
    }
    order = line | {"action": "nodes.move", "target": "1 to b"}
    order |= dict.fromkeys(("group", "topic", "partition", "offsets"))
    answers = {
        "/v1/audit?group=g&limit=5": {"audit": [line]},
        "/v1/audit": {"audit": [order, refusal]},
    }
    with stand_in(answers) as rest:
        command = ("audit", "--group", "g", "--limit", "5", "--admin", rest.address)
        code, out, _ = keyway(*command)
        assert code == 0
        assert rows(out)[1][:7] == [
            *("1970-01-01", "00:01:00", "alice", "operator", "10.0.0.1", "parked.release", "g")
        ]
        _, out, _ = keyway("audit", "--admin", rest.address)
        assert rows(out)[1][-5:] == ["1", "to", "b", "done", "1"]
        assert rows(out)[2][-3:] == ["refused:", "401", "12"]


def test_the_audit_is_read_to_its_end_or_to_the_limit() -> None:
    line = {"at_ms": 1, "who": "a", "role": "admin", "address": "h", "action": "x", "outcome": "y"}
    lines = [line | {"id": at} for at in range(1_500, 0, -1)]
    answers = {
        f"/v1/audit{more}": {"audit": part, "next": after}
        for limit in ("", "limit=1000")
        for more, part, after in (
            (f"?{limit}".rstrip("?"), lines[:1_000], "501"),
            (f"?{limit}&after=501".replace("?&", "?"), lines[1_000:], None),
        )
    }
    with stand_in(answers) as rest:
        for more, expected in (([], lines), (["--limit", "1200"], lines[:1_200])):
            _, out, _ = keyway("audit", "--admin", rest.address, "-o", "json", *more)
            assert json.loads(out) == {"audit": expected}
        assert keyway("audit", "--admin", rest.address, "-o", "json", "--limit", "1000")[0] == 0
        assert rest.asked[4:] == ["/v1/audit?limit=1000"], "no page too many"
