"""The command, without a node: its output, and that every trouble is one line."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gateway.embedded.redis import EmbeddedRedis
from tests.rig.rest_stand_in import keyway, stand_in

Node = Callable[[dict[str, Any]], str]
GROUPS = {
    "groups": [
        {
            "group": "[red]g[/x]",
            "state": "Stable",
            "members": 2,
            "topics": ["a"],
            "windows": 3,
            "lag": 1_234,
            "lag_seconds": 61.46,
            "parked": 5,
        }
    ]
}
GROUP = {
    "group": "g/1\x1b[31m",
    "state": "Stable",
    "members": 1,
    "topics": ["a", "b"],
    "windows": 2,
    "lag": 80,
    "epoch": 4,
    "policies": {"rejected": "drop", "exhausted": "dead_letter"},
    "memberships": [
        {
            "member_id": "m1",
            "client_id": "[/bold]\x07",
            "host": "10.0.0.1",
            "epoch": 2,
            "topics": ["a", "b"],
        }
    ],
    "partitions": [
        {
            "topic": "a",
            "partition": 0,
            "state": "up",
            "cursor": 17,
            "log_end": 99,
            "lag": 80,
            "parked_records": 1,
            "parked": [
                {
                    "offset": 17,
                    "key_hash": "0a",
                    "deliveries": 5,
                    "reason": "exhausted",
                    "member_id": "m1",
                    "since_ms": 1_000,
                    "behind": 2,
                }
            ],
            "members": [
                {
                    "member_id": "m1",
                    "ready_keys": 3,
                    "in_flight": 2,
                    "draining_keys": 1,
                    "draining_in_flight": 1,
                    "draining_blocked": 4,
                    "draining_attempts": 31,
                    "draining_cleared": 32,
                    "last_sent_position_when_joining": None,
                    "dropped": 0,
                },
                {
                    "member_id": "idle",
                    "ready_keys": 0,
                    "in_flight": 0,
                    "draining_keys": 0,
                    "draining_in_flight": 0,
                    "draining_blocked": 0,
                    "draining_attempts": 0,
                    "draining_cleared": 0,
                    "last_sent_position_when_joining": None,
                    "dropped": 0,
                },
            ],
            "consumers_after_mark_delete_position": [
                {
                    "name": "late\x1b",
                    "id": "m2",
                    "address": "10.0.0.2",
                    "last_sent_position_when_joining": 21,
                }
            ],
            "dead_letter_trouble": "no\x1btopic",
            "read_trouble": "offset 17: wrong\x1bCRC",
            "open_transaction": {"offset": 17, "seconds": 75.4},
            "span_max": 64,
            "full_span": {
                "limit": "span_max",
                "offset": 17,
                "key_hash": "0a",
                "records": 9,
                "member_id": "m1",
            },
        },
        {"topic": "b", "partition": 1, "state": "loading", "trouble": "no\x1bRedis"},
    ],
}


@pytest.fixture
def node() -> Iterator[Node]:
    """Serves the test's answers by path, on loopback; returns its address."""
    with ExitStack() as running:
        yield lambda answers: running.enter_context(stand_in(answers)).address


def test_groups_as_a_table_and_as_json(node: Node) -> None:
    address = node({"/v1/groups": GROUPS})
    for admin in (address, f"http://{address}", f"http://{address}/"):
        code, out, _ = keyway("group", "list", "--admin", admin)
        assert code == 0
        assert out.split() == [
            *(
                "GROUP",
                "STATE",
                "MEMBERS",
                "TOPICS",
                "WINDOWS",
                "TOTAL-LAG",
                "LAG-SECONDS",
                "PARKED",
            ),
            *("[red]g[/x]", "Stable", "2", "a", "3", "1234", "61.5", "5"),
        ]
    code, out, _ = keyway("group", "list", "--admin", address, "-o", "json")
    assert (code, json.loads(out)) == (0, GROUPS)


def test_a_group_without_topics_has_no_empty_cell(node: Node) -> None:
    empty = {
        **GROUPS["groups"][0],
        "parked": None,
        "group": "g",
        "state": "Empty",
        "members": 0,
        "topics": [],
    }
    _, out, _ = keyway("group", "list", "--admin", node({"/v1/groups": {"groups": [empty]}}))
    assert out.splitlines()[1].split() == ["g", "Empty", "0", "-", "3", "1234", "61.5", "-"]


def test_groups_of_several_pages_are_one_list(node: Node) -> None:
    more = [{**GROUPS["groups"][0], "group": name} for name in ("b&c", "d")]
    pages = {
        "/v1/groups": {**GROUPS, "next": "[red]g[/x]"},
        "/v1/groups?after=%5Bred%5Dg%5B%2Fx%5D": {"groups": more[:1], "next": "b&c"},
        "/v1/groups?after=b%26c": {"groups": more[1:], "next": None},
    }
    code, out, _ = keyway("group", "list", "--admin", node(pages), "-o", "json")
    assert (code, json.loads(out)) == (0, {"groups": [*GROUPS["groups"], *more]})


def test_a_group_whose_names_are_hostile(node: Node) -> None:
    address = node({"/v1/groups/g%2F1%1B%5B31m": GROUP})
    code, out, _ = keyway("group", "describe", GROUP["group"], "--admin", address)  # type: ignore[arg-type]
    assert code == 0
    assert "\x1b" not in out
    assert "\x07" not in out
    head = "group g/1\\x1b[31m  state Stable  epoch 4  rejected drop  exhausted dead_letter"
    assert head in out.splitlines()
    assert "[/bold]\\x07" in out
    rows = [line.split() for line in out.splitlines()]
    assert rows[3][:6] == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    name = "g/1\\x1b[31m"
    assert [name, "a", "0", "17", "99", "80", "-", "up", *("-" * 5), "1"] in rows
    assert [name, "b", "1", *("-" * 4), "loading", *("-" * 6)] in rows
    assert ["a", "0", "m1", "3", "2", "1", "1", "4", "31", "32", "-", "0"] in rows
    assert "idle" not in out
    assert out.splitlines()[-6:] == [
        "a-0: the span of 64 offsets is full: offset 17 is not settled (key hash 0a, 9 records of"
        " its key are read, at member m1). No key goes on. `keyway group parked` and `keyway group"
        " release` end it for parked records",
        "a-0: late\\x1b (m2, 10.0.0.2) joined behind offset 21, which is not settled",
        "a-0: nothing more can be read: offset 17: wrong\\x1bCRC",
        "a-0: waits for an open transaction at offset 17, for 75 s or longer: no member that reads"
        " committed records gets beyond it. `kafka-transactions.sh find-hanging` names its"
        " producer",
        "a-0: dead letters are not written: no\\x1btopic",
        "b-1: waits: no\\x1bRedis",
    ]


def test_what_a_node_refuses_is_its_own_words(node: Node) -> None:
    address = node({"/v1/groups": (500, b"<html>")})
    code, out, err = keyway("group", "describe", "none", "--admin", address)
    assert (code, out, err) == (1, "", "keyway: no /v1/groups/none\n")
    code, _, err = keyway("group", "list", "--admin", address)
    assert (code, err) == (1, "keyway: 500 Internal Server Error\n")


def test_what_answers_is_no_node(node: Node) -> None:
    address = node({"/v1/groups": b"no json"})
    assert keyway("group", "list", "--admin", address)[0] == 3


@pytest.mark.parametrize(
    "admin", ["127.0.0.1:1", "nonsense://x", "http://", "http://[", "http://a b", "http://h:port"]
)
def test_an_address_where_nobody_is(admin: str) -> None:
    code, out, err = keyway("group", "list", "--admin", admin)
    assert (code, out) == (3, "")
    assert err.startswith("keyway: no node answers at ")
    assert err.count("\n") == 1


def test_a_port_that_speaks_something_else() -> None:
    with socket_that_says(b"\0\0\0\4Kafka\r\n") as address:
        code, _, err = keyway("group", "list", "--admin", address)
    assert code == 3
    assert err.count("\n") == 1


class socket_that_says:
    def __init__(self, answer: bytes) -> None:
        import socket

        self.answer = answer
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        line, _ = self.listener.accept()
        with line:
            line.recv(65_536)
            line.sendall(self.answer)

    def __enter__(self) -> str:
        self.thread.start()
        return f"127.0.0.1:{self.listener.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self.thread.join(5)
        self.listener.close()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("upstream: {nonsense: 1}", "upstream.nonsense: unknown field"),
        ("upstream: {bootstrap_servers: nowhere}", "upstream.bootstrap_servers: "),
        ("upstream: {tls: {ca_file: /none}}", "upstream.tls: "),
        ("upstream: {bootstrap_servers: 'u:hunter2@h:1'}", "upstream.bootstrap_servers: holds"),
        ("state: {redis_url: 'http://u:hunter2@h'}", "state.redis_url: "),
        ("state: {redis_url: 'redis://:hunter2/x@h'}", "state.redis_url: "),
    ],
)
def test_a_wrong_configuration_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    config = tmp_path / "keyway.yaml"
    config.write_text(f"{text}\n")
    if "state" not in text:
        config.write_text(f"{text}\nstate: {{redis_url: 'redis://127.0.0.1:1'}}\n")
    code, _, err = keyway("serve", "--config", str(config))
    assert code == 2
    assert err.startswith("keyway: ")
    assert says in err
    assert err.count("\n") == 1
    assert "hunter2" not in err


def test_a_data_directory_in_use_is_one_line(tmp_path: Path) -> None:
    config = tmp_path / "keyway.yaml"
    config.write_text(f"state: {{directory: {tmp_path / 'data'}}}\n")
    with EmbeddedRedis(tmp_path / "data"):
        code, _, err = keyway("serve", "--config", str(config))
    assert code == 2
    assert "is in use by another Keyway" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("rule", ["a-*", ";keys=x", "a-*;keys=", "a-*;keys=%FF", "a-*;keys=x|"])
def test_a_filter_rule_that_is_none_asks_no_node(rule: str) -> None:
    command = ("filter", "set", "g", "--rule", rule, "--execute", "--admin", "127.0.0.1:1")
    code, _, err = keyway(*command)
    assert code == 2
    assert "no node answers" not in err


def test_one_rule_is_no_rules(node: Node) -> None:
    one = {"group": "g", "members": [], "keys": {"known": 1, "moved": 1, "dropped": 0}}
    answers = {
        "/v1/filters?group=g": {"group": "g", "source": "config", "rules": []},
        "/v1/filters/preview?group=g": one,
    }
    for rules, says in ((1, "1 rule;"), (2, "2 rules;")):
        given = ("--rule", "a;keys=x") * rules
        code, out, _ = keyway("filter", "set", "g", *given, "--admin", node(answers))
        assert code == 0
        assert "of 1 key with unsettled records 1 would change hands" in out
        assert f"would be replaced by {says} nothing is done" in out


@pytest.mark.parametrize("options", [["--log-level", "loud"], ["--log-format", "xml"], ["--no"]])
def test_wrong_options(options: list[str]) -> None:
    assert keyway("serve", *options)[0] == 2


@pytest.mark.parametrize("command", [("group", "list"), ("group", "describe", "g")])
def test_a_form_of_output_that_is_none_asks_no_node(command: tuple[str, ...]) -> None:
    code, _, err = keyway(*command, "-o", "xml", "--admin", "127.0.0.1:1")
    assert code == 2
    assert "'table', 'json', 'yaml'" in err
    assert "no node answers" not in err


def test_version_says_how_it_runs() -> None:
    code, out, _ = keyway("--version")
    assert code == 0
    assert out.startswith("keyway ")
    assert "compiled" in out or "interpreted" in out


PARKED = {
    "topic": "a",
    "partition": 0,
    "offset": 17,
    "key_hash": "0a",
    "deliveries": 5,
    "reason": "exhausted",
    "member_id": "m1",
    "since_ms": 1_000,
    "behind": 2,
}


def test_headers_of_parked_records_are_one_column(node: Node) -> None:
    row = PARKED
    headers = [
        {"name": "trace", "value": "abc", "value_bytes": 3},
        {"name": "evil\x1b", "value": "line\nline", "value_bytes": 9},
        {"name": "raw", "value_base64": "/w==", "value_bytes": 1},
        {"name": "long", "value": "ü", "value_bytes": 300},
        {"name": "blob", "value_base64": "/w==", "value_bytes": 300},
        {"name": "none", "value": None, "value_bytes": None},
    ]
    rows = [
        {**row, "headers": headers, "headers_count": 8},
        {**row, "headers": [], "headers_count": 0},
        row,
    ]
    address = node(
        {
            "/v1/parked?group=g": {"group": "g", "parked": [row]},
            "/v1/parked?group=g&headers=true": {"group": "g", "parked": rows},
        }
    )
    code, out, _ = keyway("group", "parked", "g", "--headers", "--admin", address)
    assert code == 0
    head, first, *others = [re.split(r"  +", line.strip()) for line in out.splitlines()]
    assert (head[-1], [line[-1] for line in others]) == ("HEADERS", ["-", "-"])
    assert first[-1] == (
        "trace=abc, evil\\x1b=line\\x0aline, raw=base64:/w==, long=ü... (300 bytes),"
        " blob=base64:/w==... (300 bytes), none=null, ... (8 headers)"
    )
    code, out, _ = keyway("group", "parked", "g", "--headers", "--admin", address, "-o", "json")
    assert (code, json.loads(out)["parked"]) == (0, rows)
    code, out, _ = keyway("group", "parked", "g", "--admin", address)
    assert (code, "HEADERS" in out) == (0, False)


def test_parked_records_have_their_keys_for_those_who_may_see_them(node: Node) -> None:
    row = PARKED | {"partition": 3}
    parked = [row | {"key": "account-7"}, row | {"key_base64": "/w=="}, row]
    address = node({"/v1/parked?group=g&topic=a&partition=3": {"group": "g", "parked": parked}})
    place = ("--topic", "a", "--partition", "3")
    code, out, _ = keyway("group", "parked", "g", *place, "--admin", address)
    head, *lines = [line.split() for line in out.splitlines()]
    at = head.index("KEY")
    assert (code, [line[at] for line in lines]) == (0, ["account-7", "/w==", "-"])
