"""`python -m tests.rig.schema_registry PORT`: serves the registry on loopback.

`--user NAME:PASSWORD` locks it; `--cert FILE --key FILE` (PEM) serve TLS.
"""

from __future__ import annotations

import argparse
import base64
from typing import Any

import uvicorn

from tests.rig.schema_registry.app import App

_REFUSAL = b'{"error_code": 40101, "message": "Unauthorized"}'


class Locked:
    """The registry behind basic authentication; its schema types are open, as Karapace's."""

    def __init__(self, app: App, user: str) -> None:
        self._app = app
        self._wanted = b"Basic " + base64.b64encode(user.encode())

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        known = (
            scope["type"] != "http"
            or scope["path"] == "/schemas/types"
            or dict(scope["headers"]).get(b"authorization") == self._wanted
        )
        if not known:
            challenge = (b"www-authenticate", b'Basic realm="registry"')
            await send({"type": "http.response.start", "status": 401, "headers": [challenge]})
            await send({"type": "http.response.body", "body": _REFUSAL})
        else:
            await self._app(scope, receive, send)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.rig.schema_registry")
    parser.add_argument("port", type=int)
    for name in ("--user", "--cert", "--key"):
        parser.add_argument(name)
    given = parser.parse_args()
    uvicorn.run(
        Locked(App(), given.user) if given.user else App(),
        host="127.0.0.1",
        port=given.port,
        ssl_certfile=given.cert,
        ssl_keyfile=given.key,
        timeout_graceful_shutdown=1,  # TLS waits for clients that do not say goodbye
        log_level="warning",
        loop="uvloop",
    )


if __name__ == "__main__":
    main()
