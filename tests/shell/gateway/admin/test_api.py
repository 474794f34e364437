"""Requests made from the OpenAPI description, right and wrong ones, against the served application:
each answer is one that the description has.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from hypothesis import HealthCheck, Phase, given, settings
from redis.asyncio import Redis

from gateway.admin.openapi import document
from gateway.admin.rest import rest_app
from gateway.config.admin import Role
from gateway.config.file import Config
from gateway.embedded.redis import EmbeddedRedis
from gateway.listen.listeners import listening_socket
from gateway.members.key_filters import KeyFilters
from tests.rig.admin_parts import Admin
from tests.rig.patience import wait_until
from tests.rig.rest_parts import access, rest_parts, token
from tests.rig.virtual_time import settle

EXAMPLES = 6  # of each route and mode: all take some ten seconds
TOKEN = "schemathesis"
ENDLESS = "/v1/events"  # a stream has no end to wait for


class Served:
    """The application in a thread, with an event loop of its own."""

    def __init__(self, redis_url: str) -> None:
        self._redis_url = redis_url
        self._socket = listening_socket("127.0.0.1", 0, "the test's own port")
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._server: uvicorn.Server | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        admin = Admin()
        redis = Redis.from_url(self._redis_url)
        filters = KeyFilters(Config(), redis, lambda: 1_000)
        await filters.load()
        async with admin.node as node:
            node.log.produce(b"a", b"b", b"a")
            node.beat()
            await settle()
            guard = access(token(TOKEN, Role.ADMIN))
            app = rest_app(
                rest_parts(admin, filters=filters, access=guard, lags=admin.lags()), loopback=True
            )
            config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off")
            self._server = uvicorn.Server(config)
            await self._server.serve([self._socket])
        await redis.aclose()

    def __enter__(self) -> Served:
        self._thread.start()
        wait_until(
            lambda: self._server is not None and self._server.started,
            what="REST served",
            deadline_s=30,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with (
        EmbeddedRedis(tmp_path_factory.mktemp("redis")) as redis,
        Served(redis.url) as server,
    ):
        yield server


@pytest.fixture(scope="module")
def described() -> Any:
    import schemathesis  # for a second: not when tests are collected, by each worker

    return schemathesis.openapi.from_dict(document())


ROUTES = [
    f"{method.upper()} {path}"
    for path, operations in document()["paths"].items()
    for method in operations
    if path != ENDLESS
]


@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize("route", ROUTES)
def test_every_answer_is_one_of_the_description(
    served: Served, described: Any, route: str, mode: str
) -> None:
    from schemathesis import GenerationMode, checks
    from schemathesis.specs.openapi import checks as of_openapi

    method, path = route.split(" ")
    wanted = [
        checks.not_a_server_error,
        of_openapi.content_type_conformance,
        of_openapi.response_headers_conformance,
        of_openapi.response_schema_conformance,
        of_openapi.status_code_conformance,
        of_openapi.unsupported_method,
    ]
    if mode == "negative":
        wanted.append(of_openapi.negative_data_rejection)
    strategy = described[path][method].as_strategy(generation_mode=GenerationMode(mode))

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def asked(case: Any) -> None:
        case.call_and_validate(
            base_url=served.address,
            headers={"Authorization": f"Bearer {TOKEN}"},
            checks=wanted,
        )

    try:
        asked()
    except Exception as error:
        if type(error).__name__ == "Unsatisfiable":
            pytest.skip("no such request can be made")
        raise
