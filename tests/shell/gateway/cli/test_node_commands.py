"""Commands that show a node: their columns and forms, several pages, contexts, --watch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rig.gateway_process import REPOSITORY
from tests.rig.keyway_process import started, until
from tests.rig.rest_stand_in import StandIn, keyway, rows, stand_in

MEMBER = {
    "group": "g",
    "member_id": "m1",
    "client_id": "c\x1b",
    "host": "10.0.0.1",
    "epoch": 2,
    "topics": ["orders"],
    "share": 0.25,
    "ready_keys": 3,
    "in_flight": 2,
    "draining_keys": 0,
    "silent_partitions": 4,
    "connections": 1,
    "last_heartbeat_ms": 0,
}
WINDOW = {
    "topic": "orders",
    "partition": 0,
    "state": "up",
    "leader": 1,
    "cursor": 5,
    "read_position": 9,
    "log_end": 12,
    "lag": 6,
    "span_max": 64,
    "settled": 1,
    "ready": 1,
    "in_flight": 1,
    "backing_off": 0,
    "dead_lettering": 0,
    "parked": 1,
}
KEY = {
    "topic": "orders",
    "partition": 3,
    "key_hash": "0badcafe",
    "key": "eu-1",
    "state": "parked",
    "owner": "m1",
    "holder": None,
    "records": 7,
    "in_flight": 0,
    "first_offset": 40,
    "attempts": 5,
    "reason": "exhausted",
}
TOPIC = {
    "topic": "orders",
    "partitions": 4,
    "leaderless": 1,
    "lag": 9,
    "groups": [{"group": "g", "members": 2, "lag": 9}, {"group": "h", "members": 0, "lag": None}],
}
CONNECTION = {
    "id": 7,
    "client_id": "c1",
    "host": "10.0.0.1",
    "port": 5000,
    "broker": None,
    "since_ms": 0,
    "in_flight": ["SHARE_FETCH"],
    "in_flight_requests": 1,
    "bytes_in": 10,
    "bytes_out": 20,
    "members": ["g/m1"],
}
BROKERS: dict[str, Any] = {
    "bootstrap": "127.0.0.1:9192",
    "bootstrap_connections": 1,
    "brokers": [
        {
            "broker": 1,
            "address": None,
            "upstream": "kafka-1:9092",
            "state": "silent",
            "reason": "refused",
            "connections": 2,
            "partitions": 4,
        }
    ],
}


@pytest.mark.parametrize(
    ("command", "path", "answer", "expected"),
    [
        (
            ("member", "list", "g"),
            "/v1/members?group=g",
            {"group": "g", "members": [MEMBER]},
            ["g", "m1", "10.0.0.1", "c\\x1b", "25.0%", "3", "2", "0", "4", "1"],
        ),
        (
            ("window", "list", "g", "--topic", "orders", "--partition", "0"),
            "/v1/windows?group=g&topic=orders&partition=0&runs=1",
            {"group": "g", "windows": [WINDOW]},
            ["orders", "0", "up", "1", "5", "9", "12", "6", "64", *"111001"],
        ),
        (
            ("key", "list", "g", "--limit", "5"),
            "/v1/keys?group=g&limit=5",
            {"group": "g", "keys": [KEY]},
            ["orders", "3", "eu-1", "0badcafe", "parked", "m1", "-", "7", "0", "40", "5"],
        ),
        (
            ("key", "show", "g", "eu 1&", "--topic", "orders"),
            "/v1/keys?group=g&topic=orders&key=eu+1%26",
            {"group": "g", "keys": [KEY | {"key": None}]},
            ["orders", "3", "-", "0badcafe", "parked", "m1", "-", "7", "0", "40", "5"],
        ),
        (
            ("key", "show", "g", "0badcafe", "--hash"),
            "/v1/keys?group=g&key_hash=0badcafe",
            {"group": "g", "keys": [KEY | {"key": None, "key_base64": "/w=="}]},
            ["orders", "3", "/w==", "0badcafe", "parked", "m1", "-", "7", "0", "40", "5"],
        ),
        (
            ("topic", "list", "--name", "ord"),
            "/v1/topics?name=ord",
            {"topics": [TOPIC]},
            ["orders", "4", "1", "9", "g", "(9),h", "(-)"],
        ),
        (
            ("connection", "list", "--broker", "bootstrap"),
            "/v1/connections?broker=bootstrap",
            {"connections": [CONNECTION], "total": 1},
            ["7", "c1", "10.0.0.1:5000", "bootstrap"],
        ),
        (
            ("broker", "list"),
            "/v1/brokers",
            BROKERS,
            ["1", "-", "kafka-1:9092", "silent", "2", "4", "refused"],
        ),
        (
            ("broker", "list", "--state", "silent"),
            "/v1/brokers?state=silent",
            BROKERS,
            ["1", "-", "kafka-1:9092", "silent", "2", "4", "refused"],
        ),
        (
            ("whoami",),
            "/v1/login",
            {"name": "alice", "role": "viewer", "groups": ["orders-*"], "keys": False}
            | {"values": False},
            ["alice", "viewer", "orders-*", "hashes"],
        ),
    ],
)
def test_lists_as_a_table_as_json_and_as_yaml(
    command: tuple[str, ...], path: str, answer: dict[str, Any], expected: list[str]
) -> None:
    whole = path.replace("&runs=1", "")
    with stand_in({path: answer, whole: answer}) as rest:
        code, out, err = keyway(*command, "--admin", rest.address)
        assert (code, err) == (0, "")
        assert rest.asked == [path]
        assert expected in [row[: len(expected)] for row in rows(out)]
        for form, read in (("json", json.loads), ("yaml", yaml.safe_load)):
            code, out, _ = keyway(*command, "--admin", rest.address, "-o", form)
            assert (code, read(out)) == (0, answer)


def test_all_pages_are_one_list() -> None:
    pages = {
        "/v1/topics": {"topics": [TOPIC], "next": "a&b"},
        "/v1/topics?after=a%26b": {"topics": [TOPIC | {"topic": "z"}], "next": None},
    }
    with stand_in(pages) as rest:
        _, out, _ = keyway("topic", "list", "--admin", rest.address, "-o", "json")
    assert json.loads(out) == {"topics": [TOPIC, TOPIC | {"topic": "z"}]}


def test_the_port_of_first_contact_stands_before_the_brokers_of_all_pages() -> None:
    second = [BROKERS["brokers"][0] | {"broker": 2}]
    pages = {
        "/v1/brokers": BROKERS | {"next": "1"},
        "/v1/brokers?after=1": BROKERS | {"brokers": second, "next": None},
        "/v1/brokers?state=silent": BROKERS,
    }
    with stand_in(pages) as rest:
        _, out, _ = keyway("broker", "list", "--admin", rest.address)
        assert [row[0] for row in rows(out)] == ["BROKER", "bootstrap", "1", "2"]
        _, out, _ = keyway("broker", "list", "--state", "silent", "--admin", rest.address)
        assert [row[0] for row in rows(out)] == ["BROKER", "1"], "it has no state"


def test_a_key_in_many_partitions() -> None:
    pages = {
        "/v1/keys?group=g&key=k": {"group": "g", "keys": [KEY], "next": "orders-3-40"},
        "/v1/keys?group=g&key=k&after=orders-3-40": {"group": "g", "keys": [KEY], "next": None},
    }
    with stand_in(pages) as rest:
        _, out, _ = keyway("key", "show", "g", "k", "--admin", rest.address, "-o", "json")
    assert json.loads(out) == {"group": "g", "keys": [KEY, KEY]}


def test_a_key_is_named_in_one_way() -> None:
    code, _, err = keyway("key", "show", "g", "k", "--hash", "--base64", "--admin", "127.0.0.1:1")
    assert code == 2
    assert "no node answers" not in err


def test_health_has_its_exit_status() -> None:
    well = {"status": "up", "reasons": []}
    warned = {"status": "up", "reasons": [], "warnings": ["group g has no member"]}
    ill = (503, {"status": "not ready", "reasons": ["Redis does not answer: refused\x1b"]})
    with stand_in({"/health": [well, warned, ill]}) as rest:
        assert keyway("health", "--admin", rest.address) == (0, "up\n", "")
        said = "up\nwarning: group g has no member\n"
        assert keyway("health", "--admin", rest.address) == (0, said, "")
        code, out, _ = keyway("health", "--admin", rest.address)
    assert (code, out) == (1, "not ready\nRedis does not answer: refused\\x1b\n")


# ----------------------------------------------------------------------------------------- contexts


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("KEYWAY_TOKEN", raising=False)
    return tmp_path / "keyway" / "contexts.yaml"


def test_a_context_names_a_node_and_its_token(home: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret-east\n")
    groups: dict[str, Any] = {"/v1/groups": {"groups": []}}
    with stand_in(groups) as east, stand_in(groups) as west:
        for name, rest, more in (
            ("east", east, ["--token-file", str(token)]),
            ("west", west, []),
        ):
            assert keyway("context", "set", name, "--admin", rest.address, *more)[0] == 0
        keyway("group", "list")
        keyway("--context", "west", "group", "list")
        keyway("group", "list", env={"KEYWAY_CONTEXT": "west"})
        keyway("group", "list", "--admin", west.address)
        assert (len(east.asked), len(west.asked)) == (1, 3)
        assert east.tokens == ["Bearer secret-east"]
        assert west.tokens == [None] * 3, "the token of a context goes to its node alone"
        keyway("context", "use", "west")
        keyway("group", "list")
        assert len(west.asked) == 4
        keyway("--context", "east", "group", "list", env={"KEYWAY_TOKEN": "mine"})
        assert east.tokens[-1] == "Bearer mine"
    _, out, _ = keyway("context", "list")
    assert rows(out)[1:] == [
        ["east", east.address, str(token), "-"],
        ["*", "west", west.address, "-", "-"],
    ]
    assert "secret" not in home.read_text()
    assert keyway("context", "remove", "west")[0] == 0
    _, out, _ = keyway("context", "list", "-o", "json")
    assert json.loads(out)["current"] is None


def test_options_of_the_node_stand_before_a_command_or_behind_it(
    home: Path,  # noqa: ARG001 - an empty one
    tmp_path: Path,
) -> None:
    """Behind it they win."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("token-1")
    two.write_text("token-2")
    groups: dict[str, Any] = {"/v1/groups": {"groups": []}}
    with stand_in(groups) as east, stand_in(groups) as west:
        keyway("context", "set", "east", "--admin", east.address)
        keyway("context", "set", "west", "--admin", west.address, "--token-file", str(two))
        listed = ("group", "list")
        assert keyway("--admin", west.address, *listed)[0] == 0
        assert keyway(*listed, "--context", "west")[0] == 0
        assert keyway("--context", "east", *listed, "--context", "west")[0] == 0
        assert keyway("--admin", east.address, *listed, "--admin", west.address)[0] == 0
        assert (len(east.asked), len(west.asked)) == (0, 4)
        assert west.tokens == [None, "Bearer token-2", "Bearer token-2", None]
        assert keyway("--token-file", str(one), *listed)[0] == 0
        assert keyway("--token-file", str(one), *listed, "--token-file", str(two))[0] == 0
        assert east.tokens == ["Bearer token-1", "Bearer token-2"]
        for command in (["health"], ["top"], ["key", "list", "g"], ["config", "show"]):
            code, _, err = keyway(*command, "--context", "none")
            assert (code, "no context 'none'" in err) == (2, True), command


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("contexts: {a: {admin: x, tokn_file: y}}", "contexts.a.tokn_file"),
        ("contexts: [", "no YAML"),
        ("- 1", "contexts.yaml"),
        ("current: b\ncontexts: {a: {admin: x}}", "no context 'b'"),
    ],
)
def test_a_wrong_file_of_contexts_is_one_line(home: Path, text: str, says: str) -> None:
    home.parent.mkdir()
    home.write_text(text)
    code, _, err = keyway("group", "list")
    assert code == 2
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "admin",
    [
        *("", "gateway", "ftp://gateway:9180", "http://", "http://a b", "http://h:port", "h:0"),
        *("h:70000", "http://h:99999", "http://ann:secret@h:9180", "h:9180/v1", "http://h?x=1"),
    ],
)
def test_an_address_that_is_none_makes_no_context(home: Path, admin: str) -> None:
    code, out, err = keyway("context", "set", "here", "--admin", admin)
    assert (code, out) == (2, "")
    assert err.startswith("keyway: invalid value for '--admin': no http(s) URL and no host:port")
    assert "secret" not in err
    assert not home.exists()


@pytest.mark.parametrize(
    "admin", ["gateway-1.eu:9180", "[::1]:9180", "HTTPS://gateway", "http://[::1]:9180/keyway/"]
)
def test_an_address_makes_a_context(home: Path, admin: str) -> None:
    assert keyway("context", "set", "here", "--admin", admin)[0] == 0
    assert admin in home.read_text()


def test_a_context_that_is_not_there(home: Path) -> None:  # noqa: ARG001 - an empty one
    assert keyway("--context", "none", "group", "list")[0] == 2
    assert keyway("context", "use", "none")[0] == 2
    assert keyway("context", "remove", "none")[0] == 2


# ---------------------------------------------------------------------------------- again and again


def groups_with(lag: int) -> dict[str, Any]:
    line = {"group": "g", "state": "Stable", "members": 1, "topics": ["a"], "windows": 1}
    return {"groups": [{**line, "lag": lag}]}


@pytest.mark.parametrize("watch", [["--watch", "0.1"], ["-w", "0.1"], ["--watch=0.1"]])
def test_a_watched_list_is_shown_until_ctrl_c(watch: list[str]) -> None:
    with stand_in({"/v1/groups": [groups_with(71), groups_with(72), groups_with(73)]}) as rest:
        command = started("group", "list", *watch, "--admin", rest.address, stdout=subprocess.PIPE)
        assert command.stdout is not None
        seen = until(command.stdout.fileno(), "73")
        command.send_signal(signal.SIGINT)
        assert command.wait(120) == 0
        command.stdout.close()
    assert seen.index("71") < seen.index("72") < seen.index("73")


def test_watched_json_is_a_line_for_each_look() -> None:
    with stand_in({"/v1/groups": [groups_with(71), groups_with(72)]}) as rest:
        arguments = ("group", "list", "--admin", rest.address, "-o", "json", "--watch", "0.1")
        command = started(*arguments, stdout=subprocess.PIPE)
        assert command.stdout is not None
        lines = until(command.stdout.fileno(), "72}]}\n").splitlines()
        command.send_signal(signal.SIGINT)
        assert command.wait(120) == 0
        command.stdout.close()
    assert [json.loads(line)["groups"][0]["lag"] for line in lines[:2]] == [71, 72]


def test_a_watch_that_is_no_time() -> None:
    for seconds in ("0", "-1"):
        assert keyway("group", "list", "--watch", seconds, "--admin", "127.0.0.1:1")[0] == 2


# --------------------------------------------------------------------------------------- completion


@pytest.mark.deep
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    """The script for each shell, and the words that the shell then gets from the command."""
    words = {
        "bash": {"COMP_WORDS": "keyway gro", "COMP_CWORD": "1"},
        "zsh": {"_TYPER_COMPLETE_ARGS": "keyway gro"},
        "fish": {"_TYPER_COMPLETE_ARGS": "keyway gro", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    script = completion(f"source_{shell}", {})
    assert "_KEYWAY_COMPLETE" in script
    assert "keyway" in script
    completed = completion(f"complete_{shell}", words)
    assert "group" in completed
    assert "serve" not in completed


@pytest.mark.parametrize("line", ["--context we", "context use we"])
def test_names_of_contexts_are_completed(home: Path, line: str) -> None:
    for name in ("east", "west", "wether"):
        assert keyway("context", "set", name)[0] == 0
    words = {"COMP_WORDS": f"keyway {line}", "COMP_CWORD": str(len(line.split()))}
    assert completion("complete_bash", words).split() == ["west", "wether"]
    home.write_text("contexts: [")
    assert completion("complete_bash", words).split() == [], "the command itself says what is wrong"


def completion(instruction: str, words: dict[str, str]) -> str:
    code = "import sys; sys.argv[0] = 'keyway'; from gateway.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        env=os.environ | words | {"_KEYWAY_COMPLETE": instruction},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.stdout


def test_the_stand_in_says_no() -> None:
    """An unknown path is a refusal, so a wrong path cannot pass for an empty list."""
    with stand_in({}) as rest:
        assert isinstance(rest, StandIn)
        assert keyway("topic", "list", "--admin", rest.address)[0] == 1


def nodes_row(a: list[int], b: list[int], **changes: Any) -> dict[str, Any]:
    """`/v1/nodes` with what each owns."""
    row = {"state": "up", "admin": "127.0.0.1:9180", "moving": [], "heard_ms": 3}
    nodes = [{"node": "a", "owns": a, **row, **changes}, {"node": "b", "owns": b, **row}]
    return {"node": "a", "generation": 3, "nodes": nodes}


def test_an_order_waits_until_the_virtual_brokers_have_moved() -> None:
    asked = nodes_row([1, 2], [3], moving=[1, 2])
    answers = {
        "/v1/nodes": [nodes_row([1, 2], [3]), nodes_row([2], [1, 3]), nodes_row([], [1, 2, 3])],
        "/v1/nodes/drain": asked,
    }
    with stand_in(answers) as rest:
        code, out, err = keyway("node", "drain", "a", "--admin", rest.address)
        assert (code, err) == (0, "")
        assert out == "virtual broker 1: a to b\nvirtual broker 2: a to b\n"
        assert rest.bodies == [{"node": "a"}]


def test_an_order_that_takes_too_long_is_told_with_what_moved() -> None:
    answers = {
        "/v1/nodes": [nodes_row([1, 2], [3]), nodes_row([2], [1, 3], moving=[2])],
        "/v1/nodes/drain": nodes_row([1, 2], [3], moving=[1, 2]),
    }
    with stand_in(answers) as rest:
        code, out, err = keyway("node", "drain", "a", "--seconds", "0.5", "--admin", rest.address)
    assert (code, out) == (1, "virtual broker 1: a to b\n")
    assert err == "keyway: not done after 0.5 s, but ordered: a has 2; b has 1, 3\n"


def test_an_order_need_not_be_waited_for() -> None:
    answers = {
        "/v1/nodes": nodes_row([1, 2], [3]),
        "/v1/nodes/move": nodes_row([1, 2], [3], moving=[1]),
        "/v1/nodes/undrain": (404, {"title": "no live node is named 'c'; alive: a, b"}),
    }
    with stand_in(answers) as rest:
        at = ("--admin", rest.address)
        assert keyway("node", "move", "1", "b", "--no-wait", *at) == (0, "ordered\n", "")
        assert keyway("node", "move", "1", "--no-wait", *at)[0] == 0
        assert rest.bodies == [{"broker": 1, "node": "b"}, {"broker": 1, "node": None}]
        code, out, err = keyway("node", "undrain", "c", *at)
        assert (code, out, err) == (1, "", "keyway: no live node is named 'c'; alive: a, b\n")
        _, out, _ = keyway("node", "move", "1", "b", "--no-wait", "-o", "json", *at)
        assert json.loads(out)["moved"] == []
