"""A REST on loopback that gives the test's answers, and the `keyway` command in this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from typer.testing import CliRunner

from gateway.cli.main import app


@dataclass(slots=True)
class StandIn:
    """`answers`: by path with its query; a list gives one after the other, the last for good.
    Bytes go out as they are, anything else as JSON.
    """

    answers: dict[str, Any]
    address: str = ""
    asked: list[str] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)  # of each request
    bodies: list[Any] = field(default_factory=list)  # of those that have one

    def answer(self, path: str) -> tuple[int, Any]:
        found = self.answers.get(path, (404, {"title": f"no {path}"}))
        if isinstance(found, list):
            found = found.pop(0) if len(found) > 1 else found[0]
        return found if isinstance(found, tuple) else (200, found)


@contextmanager
def stand_in(answers: dict[str, Any]) -> Iterator[StandIn]:
    rest = StandIn(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["Content-Length"]))
            if sent:
                rest.bodies.append(json.loads(sent))
            self._answer()

        def _answer(self) -> None:
            rest.asked.append(self.path)
            rest.tokens.append(self.headers["Authorization"])
            status, body = rest.answer(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    rest.address = f"127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield rest
    finally:
        server.shutdown()
        server.server_close()


def keyway(*arguments: str, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "40", **(env or {})})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]
