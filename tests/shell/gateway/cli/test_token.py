"""`keyway token`, and the token that commands send: from the environment or from a file."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from gateway.admin.tokens import Tokens, sha256_of
from gateway.cli.main import app
from gateway.config.admin import Role
from gateway.config.file import Config


def keyway(*arguments: str, **env: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(arguments), env={"KEYWAY_TOKEN_FILE": None, **env})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def test_a_token_and_its_entry_belong_together() -> None:
    arguments = ("ann", "--role", "operator", "--group", "orders-*", "--group", "b")
    code, out, _ = keyway("token", *arguments)
    assert code == 0
    made, _, rest = out.partition("\n")
    assert made not in rest
    config = Config.model_validate(yaml.safe_load(rest[rest.index("admin:") :]))
    (entry,) = config.admin.tokens
    assert (entry.name, entry.role, entry.groups) == ("ann", Role.OPERATOR, ("orders-*", "b"))
    caller = Tokens(config.admin.tokens).caller(bytes.fromhex(sha256_of(made)))
    assert caller is not None
    assert (caller.name, caller.keys) == ("ann", True)


def test_as_json() -> None:
    code, out, _ = keyway("token", "ann", "--role", "viewer", "--keys", "--values", "-o", "json")
    assert code == 0
    answer = json.loads(out)
    sha256 = sha256_of(answer["token"])
    assert answer["entry"] == {
        "name": "ann",
        "role": "viewer",
        "sha256": sha256,
        "keys": True,
        "values": True,
    }


@pytest.mark.parametrize(
    "arguments", [("a b", "--role", "viewer"), ("a", "--role", "root"), ("a",)]
)
def test_entries_that_the_node_would_refuse(arguments: tuple[str, ...]) -> None:
    code, out, err = keyway("token", *arguments)
    assert (code, out) == (2, "")
    assert err


@pytest.fixture
def shown() -> Iterator[tuple[str, list[str | None]]]:
    """A node's address, and the Authorization headers that it got."""
    headers: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            headers.append(self.headers["Authorization"])
            self.send_response(401 if headers[-1] is None else 200)
            self.end_headers()
            self.wfile.write(b'{"groups": [], "title": "a token is needed"}')

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"127.0.0.1:{server.server_port}", headers
        server.shutdown()


def test_a_command_sends_its_token(shown: tuple[str, list[str | None]], tmp_path: Path) -> None:
    admin, headers = shown
    groups = ("group", "list", "--admin", admin)
    code, _, err = keyway(*groups, KEYWAY_TOKEN="")
    assert (code, err) == (1, "keyway: a token is needed (--token-file or KEYWAY_TOKEN)\n")
    assert keyway(*groups, KEYWAY_TOKEN=" t1\n")[0] == 0
    file = tmp_path / "token"
    file.write_text("t2\n")
    assert keyway("--token-file", str(file), *groups, KEYWAY_TOKEN="t1")[0] == 0
    assert keyway(*groups, KEYWAY_TOKEN="t1", KEYWAY_TOKEN_FILE=str(file))[0] == 0
    assert headers == [None, "Bearer t1", "Bearer t2", "Bearer t2"]


def test_a_token_that_cannot_be_read(shown: tuple[str, list[str | None]], tmp_path: Path) -> None:
    admin, headers = shown
    groups = ("group", "list", "--admin", admin)
    bad = tmp_path / "bad"
    for data, says in ((b"secret\nsecret", "holds no token"), (b"\xffsecret", "not UTF-8")):
        bad.write_bytes(data)
        code, _, err = keyway("--token-file", str(bad), *groups)
        assert code == 2
        assert says in err
        assert "secret" not in err
    code, _, err = keyway("--token-file", str(tmp_path / "none"), *groups)
    assert (code, "No such file" in err) == (2, True)
    code, _, err = keyway(*groups, KEYWAY_TOKEN="s\xe9cret")
    assert (code, err) == (2, "keyway: KEYWAY_TOKEN: holds no token\n")
    assert headers == []
