"""Writes over REST to registries that answer wrongly: nothing is half-written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from schema_dist.core.model import Reason, Register, Schema, SoftDelete, Write
from schema_dist.errors import AwayError, LeaseError
from schema_dist.rest_client import RestClient
from schema_dist.rest_writer import RestTarget
from tests.rig.schema_registry.app import App
from tests.rig.schema_registry.in_process import URL, InProcess, Sent, client_of
from tests.rig.schema_registry.site import version

A = version("a-value", 1, 40, Schema("AVRO", '"string"'))
A2 = version("a-value", 2, 41, Schema("AVRO", '"bytes"'))
B = version("b-value", 1, 42, Schema("AVRO", '"int"'))

Answer = Callable[[httpx.Request], Awaitable[httpx.Response]]


class Between(httpx.AsyncBaseTransport):
    """The rig's registry, with some answers replaced."""

    def __init__(
        self, app: App, change: Callable[[httpx.Request, Answer], Awaitable[httpx.Response]]
    ) -> None:
        self._registry = InProcess(app)
        self._change = change

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return await self._change(request, self._registry.handle_async_request)


def applied(transport: httpx.AsyncBaseTransport, *writes: Write) -> list[Reason | None]:
    async def run() -> list[Reason | None]:
        target = RestTarget(RestClient(URL, Sent(transport)))
        await target.read([])
        refusals = await target.apply(writes)
        return [None if refusal is None else refusal.reason for refusal in refusals]

    return asyncio.run(run())


def test_registered_and_read_back() -> None:
    app = App()
    assert applied(InProcess(app), Register(A), Register(A2), Register(B)) == [None, None, None]
    assert {(stored.subject, stored.version, stored.id) for stored in app.registry.all()} == {
        ("a-value", 1, 40),
        ("a-value", 2, 41),
        ("b-value", 1, 42),
    }


def test_an_id_that_is_ignored_is_taken_back_and_nothing_more_is_tried() -> None:
    """As Karapace and Apicurio would, if they had an IMPORT mode: 200, and their own id."""
    app = App()
    app.registry.register("a-value", {"schema": '"long"'})

    async def without_id(request: httpx.Request, answer: Answer) -> httpx.Response:
        if request.method == "POST":
            app.registry.modes.clear()
            body = (await request.aread()).replace(b'"id": 40, ', b"").replace(b'"id": 42, ', b"")
            body = body.replace(b'"version": 1', b'"x": 1')
            body = body.replace(b', "id": 40', b"").replace(b', "id": 42', b"")
            request = httpx.Request(request.method, request.url, content=body)
        return await answer(request)

    app.registry.config[""] = "NONE"
    reasons = applied(Between(app, without_id), Register(A), Register(A2), Register(B))
    assert reasons == [Reason.ID_IGNORED] * 3
    assert [(stored.subject, stored.schema["schema"]) for stored in app.registry.all()] == [
        ("a-value", '"long"')
    ]


def test_a_text_that_is_stored_otherwise_is_taken_back() -> None:
    app = App()

    async def changed(request: httpx.Request, answer: Answer) -> httpx.Response:
        if request.method == "POST":
            body = (await request.aread()).replace(b"string", b"float")
            request = httpx.Request(request.method, request.url, content=body)
        return await answer(request)

    assert applied(Between(app, changed), Register(A), Register(A2)) == [Reason.READ_BACK, None]
    assert [stored.version for stored in app.registry.all()] == [2]


def test_only_the_own_remains_are_taken_back() -> None:
    """Another client registers in the same subject between the registration and its undoing."""
    app = App()

    async def meanwhile(request: httpx.Request, answer: Answer) -> httpx.Response:
        if request.method != "POST":
            return await answer(request)
        app.registry.modes.clear()
        body = {"schema": '"string"'}
        answered = httpx.Response(200, json={"id": app.registry.register("a-value", body)})
        app.registry.register("a-value", {"schema": '["string", "null"]'})  # the other client
        return answered

    assert applied(Between(app, meanwhile), Register(A)) == [Reason.ID_IGNORED]
    assert [stored.schema for stored in app.registry.all()] == [{"schema": '["string", "null"]'}]


def test_a_text_with_other_white_space_and_key_order_is_the_same() -> None:
    app = App()
    fixed = version("f-value", 1, 50, Schema("AVRO", '{"type":"fixed","name":"F","size":2}'))

    async def sorted_keys(request: httpx.Request, answer: Answer) -> httpx.Response:
        made = await answer(request)
        data = made.content.replace(
            b'{\\"type\\":\\"fixed\\",\\"name\\":\\"F\\",\\"size\\":2}',
            b'{ \\"name\\": \\"F\\", \\"size\\": 2, \\"type\\": \\"fixed\\" }',
        )
        return httpx.Response(made.status_code, content=data)

    assert applied(Between(app, sorted_keys), Register(fixed)) == [None]


def test_a_switch_of_mode_that_does_nothing_stops_before_any_write() -> None:
    app = App()

    async def deaf(request: httpx.Request, answer: Answer) -> httpx.Response:
        if request.method == "PUT":
            return httpx.Response(204)
        return await answer(request)

    assert applied(Between(app, deaf), Register(A)) == [Reason.ID_IGNORED]
    assert not app.calls["POST register"]


def test_a_deletion_that_did_not_happen() -> None:
    app = App()
    app.registry.register("a-value", {"schema": '"string"'})

    async def deaf(request: httpx.Request, answer: Answer) -> httpx.Response:
        return httpx.Response(200, json=1) if request.method == "DELETE" else await answer(request)

    assert applied(Between(app, deaf), SoftDelete(A)) == [Reason.READ_BACK]


@pytest.mark.parametrize(
    "nonsense",
    [
        httpx.Response(200, content=b"<html>"),
        httpx.Response(200, json={"subject": 7}),
        httpx.Response(200, json={"subject": "a", "version": 1, "id": -1, "schema": "x"}),
        httpx.Response(200, json=[1]),
        httpx.Response(503, json={"error_code": 50003, "message": "later"}),
        httpx.Response(401, json={"error_code": 40101, "message": "who?"}),
        httpx.Response(200, content=b"[" * 100_000),
    ],
)
def test_a_registry_that_answers_nonsense_is_away(nonsense: httpx.Response) -> None:
    async def change(request: httpx.Request, answer: Answer) -> httpx.Response:
        path = request.url.path
        return nonsense if path.endswith(("/schemas", "/versions/1")) else await answer(request)

    with pytest.raises(AwayError, match=r"registry http://registry\.test"):
        applied(Between(App(), change), Register(A))


@pytest.mark.parametrize(
    ("route", "body"),
    [
        *((path, b'{"status": "up"}') for path in ("/config", "/mode")),
        *((path, b'{"mode": 7, "compatibilityLevel": 7}') for path in ("/config", "/mode")),
        ("/config", b"[]"),
        ("/config", b""),
        ("/mode", b"7"),
    ],
)
def test_another_s_answer_about_a_setting_is_not_its_absence(route: str, body: bytes) -> None:
    """An ingress that answers 200: taken for a subject without a level, it would end the target's
    level of that subject, too.
    """

    async def change(request: httpx.Request, answer: Answer) -> httpx.Response:
        mine = request.url.path.startswith(route)
        return httpx.Response(200, content=body) if mine else await answer(request)

    client = RestClient(URL, Sent(Between(App(), change)))
    ask = client.compatibility if route == "/config" else client.mode
    with pytest.raises(AwayError, match="no answer of a registry"):
        asyncio.run(ask("a-value"))


@pytest.mark.parametrize("body", [{}, {"alias": "b-value"}, {"compatibilityLevel": None}])
def test_a_subject_with_other_settings_has_no_level(body: dict[str, Any]) -> None:
    async def change(_request: httpx.Request, _answer: Answer) -> httpx.Response:
        return httpx.Response(200, json=body)

    client = RestClient(URL, Sent(Between(App(), change)))
    assert asyncio.run(client.compatibility("a-value")) is None


def test_a_list_without_an_end_is_no_list() -> None:
    """A registry that ignores offset and limit answers the same again and again."""
    app = App()
    for number in range(1_001):
        app.registry.register(f"s{number}-value", {"schema": '"string"'})

    async def no_pages(request: httpx.Request, answer: Answer) -> httpx.Response:
        if request.url.path == "/schemas":
            request = httpx.Request(request.method, f"{URL}/schemas")
        return await answer(request)

    async def run() -> Any:
        transport = Between(app, no_pages)
        return await RestClient(URL, Sent(transport)).schemas(deleted=True)

    assert len(asyncio.run(run())) == 1_001
    assert len(asyncio.run(client_of(app).schemas(deleted=True)) or ()) == 1_001


def test_the_probe_leaves_nothing_and_uses_up_no_id() -> None:
    app = App()

    async def run() -> str | None:
        target = RestTarget(client_of(app))
        await target.read([])
        return await target.probe(A)

    assert asyncio.run(run()) is None
    assert list(app.registry.all()) == []
    assert app.registry.modes == {}
    assert (".", 40) not in app.registry.ids


def test_a_process_that_lost_its_lease_meanwhile_sends_no_further_write() -> None:
    """It looks before each request that writes, not only before a batch."""
    app, looks = App(), list[str]()

    async def still_ours() -> None:
        looks.append("look")
        if len(looks) > 3:
            raise LeaseError("lost")

    async def run() -> None:
        target = RestTarget(RestClient(URL, Sent(InProcess(app)), still_ours))
        await target.read([])
        assert not looks
        with pytest.raises(LeaseError):
            await target.apply([Register(A), Register(A2), Register(B)])

    asyncio.run(run())
    assert sum(count for name, count in app.calls.items() if not name.startswith("GET")) == 3
