"""The view's routes over a primary that is the rig's registry, in process."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from keyway.clusters.core.names import compile_pattern
from keyway.clusters.core.subjects import pair_subjects
from schema_dist.core import compare
from schema_dist.core.contents import Contents
from schema_dist.core.model import Schema
from schema_dist.core.shown import under_logical_names
from schema_dist.view.app import Behind, view_app
from schema_dist.view.primary import Primary
from tests.rig.schema_registry.app import App
from tests.rig.schema_registry.in_process import URL, InProcess, Sent
from tests.rig.schema_registry.site import version

HERE = pair_subjects(compile_pattern("{topic}.b"), compile_pattern("{topic}"))
THERE = pair_subjects(compile_pattern("acme-{topic}"), compile_pattern("{topic}"))


class Locked(httpx.AsyncBaseTransport):
    """A registry that wants a password, though not for its schema types, as Karapace. `refusal`: a
    body; AxonOps sends text.
    """

    def __init__(self, app: App, refusal: bytes = b'{"error_code": 40101}') -> None:
        self._open = InProcess(app)
        self._refusal = refusal
        self.asked = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        known = request.headers.get("authorization") == "Basic Z29vZA=="
        if known or request.url.path == "/schemas/types":
            return await self._open.handle_async_request(request)
        challenge = {"www-authenticate": "Basic realm=registry"}
        return httpx.Response(401, headers=challenge, content=self._refusal)


class Away(httpx.AsyncBaseTransport):
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no route", request=request)


class Unwell(httpx.AsyncBaseTransport):
    """A registry whose answers are neither a yes nor a no, until `status` is None."""

    def __init__(self, app: App, status: int, body: bytes) -> None:
        self._well = InProcess(app)
        self.status: int | None = status
        self._body = body

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.status is None:
            return await self._well.handle_async_request(request)
        return httpx.Response(self.status, content=self._body)


class Rig:
    """A view; `ask` sends it one request."""

    def __init__(
        self, transport: httpx.AsyncBaseTransport | None, *, authenticate: bool = False
    ) -> None:
        contents = Contents()
        contents.put(version("orders.b-value", 1, 5, Schema("AVRO", '"string"')), 0)
        contents.put(version("gone.b-value", 1, 6, Schema("AVRO", '"long"'), deleted=True), 1)
        shown = under_logical_names(contents, HERE)
        primary = None
        if transport is not None:
            primary = Primary(URL, THERE, Sent(transport))
        app = view_app(Behind(lambda: shown, primary, authenticate, lambda: 61.4))
        self._transport = httpx.ASGITransport(app=app)

    def ask(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any, httpx.Headers]:
        async def send() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._transport, base_url=URL) as client:
                return await client.request(method, path, json=body, headers=headers)

        answer = asyncio.run(send())
        return answer.status_code, answer.json() if answer.content else None, answer.headers


def test_an_answer_says_how_old_it_is() -> None:
    """That of the primary is of now."""
    rig = Rig(InProcess(App()))
    assert rig.ask("GET", "/subjects")[2]["age"] == "61"
    assert "age" not in rig.ask("GET", "/subjects/none/versions")[2]
    text = {"schema": '"string"'}
    assert "age" not in rig.ask("POST", "/subjects/c-value/versions", text)[2]


def test_writes_reach_the_primary_under_its_names() -> None:
    app = App()
    rig = Rig(InProcess(app))
    customer = {"schema": '{"type":"record","name":"C","fields":[]}'}
    assert rig.ask("POST", "/subjects/c-value/versions", customer)[:2] == (200, {"id": 1})
    order = {
        "schema": '{"type":"record","name":"O","fields":[{"name":"c","type":"C"}]}',
        "references": [{"name": "C", "subject": "c-value", "version": 1}],
    }
    assert rig.ask("POST", "/subjects/o-value/versions", order)[:2] == (200, {"id": 2})
    stored = app.registry.get("acme-o-value", "1", deleted=False)
    assert stored.schema["references"][0]["subject"] == "acme-c-value"
    # Not arrived yet: asked for there, shown under logical names.
    status, body, _ = rig.ask("GET", "/subjects/o-value/versions/1")
    assert (status, body["subject"], body["id"]) == (200, "o-value", 2)
    assert body["references"] == [{"name": "C", "subject": "c-value", "version": 1}]
    assert rig.ask("GET", "/schemas/ids/2")[1]["schema"] == order["schema"]
    assert rig.ask("POST", "/subjects/o-value", order)[1]["version"] == 1
    status, body, _ = rig.ask("POST", "/compatibility/subjects/c-value/versions/latest", customer)
    assert (status, body) == (200, {"is_compatible": True})
    assert rig.ask("PUT", "/config/c-value", {"compatibility": "FULL"})[0] == 200
    assert app.registry.config == {"acme-c-value": "FULL"}
    wrong = {"schema": '"int"'}
    status, body, _ = rig.ask("POST", "/subjects/c-value/versions", wrong)
    assert (status, body["error_code"]) == (409, 409)
    assert '"c-value"' in body["message"]
    status, body, _ = rig.ask("DELETE", "/subjects/c-value/versions/1")
    assert (status, body["error_code"]) == (422, 42206)
    assert "acme" not in json.dumps(body)
    assert rig.ask("DELETE", "/subjects/o-value")[:2] == (200, [1])


def test_what_is_here_is_answered_here() -> None:
    rig = Rig(Away())
    assert rig.ask("GET", "/subjects")[1] == ["orders-value"]
    assert rig.ask("GET", "/subjects/orders-value/versions/latest")[1]["id"] == 5
    assert rig.ask("GET", "/schemas/ids/5/versions")[1] == [
        {"subject": "orders-value", "version": 1}
    ]
    status, body, _ = rig.ask("GET", "/schemas/ids/7")
    assert (status, body["error_code"]) == (503, 50003)
    status, body, _ = rig.ask("POST", "/subjects/x-value/versions", {"schema": '"int"'})
    assert (status, body["error_code"]) == (503, 50003)


def test_a_view_without_a_primary_can_only_be_read() -> None:
    rig = Rig(None)
    assert rig.ask("GET", "/schemas/ids/5")[1] == {"schema": '"string"'}
    status, body, _ = rig.ask("GET", "/schemas/ids/7")
    assert (status, body["error_code"]) == (404, 40403)
    status, body, _ = rig.ask("POST", "/subjects/x-value/versions", {"schema": '"int"'})
    assert (status, body["error_code"]) == (422, 42205)


def test_the_primary_decides_who_may_read() -> None:
    locked = Locked(App())
    rig = Rig(locked, authenticate=True)
    status, _, headers = rig.ask("GET", "/subjects")
    assert (status, headers["www-authenticate"]) == (401, "Basic realm=registry")
    assert rig.ask("GET", "/subjects", authorization="Basic YmFk")[0] == 401
    assert rig.ask("GET", "/subjects", authorization="Basic Z29vZA==")[:2] == (
        200,
        ["orders-value"],
    )
    asked = locked.asked
    assert rig.ask("GET", "/subjects", authorization="Basic Z29vZA==")[0] == 200
    assert locked.asked == asked  # a yes is kept
    assert Rig(Away(), authenticate=True).ask("GET", "/subjects")[0] == 503


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b'{"error_code": 50001}'),
        (429, b'{"error_code": 429}'),
        (404, b'{"error_code": 404}'),
        (302, b""),
        (503, b"<html>"),
    ],
)
def test_only_a_success_of_the_primary_is_a_yes(status: int, body: bytes) -> None:
    unwell = Unwell(App(), status, body)
    rig = Rig(unwell, authenticate=True)
    found, answer, _ = rig.ask("GET", "/subjects")
    assert (found, answer["error_code"]) == (503, 50003)
    unwell.status = None
    assert rig.ask("GET", "/subjects")[0] == 200
    unwell.status = status
    assert rig.ask("GET", "/subjects")[0] == 200, "a yes is kept"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"error_code": 40403}', 404, 40403),
        (b'{"error_code": 404}', 503, 50003),
        (b"", 503, 50003),
        (b"[]", 503, 50003),
    ],
)
def test_a_proxy_s_404_is_no_word_about_a_schema(body: bytes, status: int, code: int) -> None:
    """Clients took a schema that had not arrived here yet for one that does not exist."""
    rig = Rig(Unwell(App(), 404, body))
    for asked in ("/schemas/ids/7", "/subjects/orders-value/versions/2"):
        found, answer, _ = rig.ask("GET", asked)
        absent = code if asked.startswith("/schemas") or status != 404 else 40402
        assert (found, answer["error_code"]) == (status, absent)


INT, STRING = {"schema": '"int"'}, {"schema": '"string"'}


@pytest.mark.parametrize(
    ("method", "path", "body", "answer"),
    [
        ("GET", "/", None, {}),
        ("GET", "/subjects?deleted=true&offset=1&limit=1", None, ["orders-value"]),
        ("GET", "/subjects?deletedOnly=true", None, ["gone-value"]),
        ("GET", "/subjects?subjectPrefix=ord", None, ["orders-value"]),
        ("GET", "/subjects/orders-value/versions?limit=1", None, [1]),
        ("GET", "/subjects/orders-value/versions/-1/schema", None, "string"),
        ("GET", "/subjects/orders-value/versions/1/referencedby", None, []),
        ("GET", "/schemas/types", None, ["JSON", "PROTOBUF", "AVRO"]),
        ("GET", "/schemas/ids/5?fetchMaxId=true", None, {**STRING, "maxId": 6}),
        ("GET", "/schemas/ids/5/schema", None, "string"),
        ("GET", "/schemas/ids/5/subjects", None, ["orders-value"]),
        ("GET", "/schemas/ids/6/versions", None, []),
        (
            "GET",
            "/schemas/ids/6/versions?deleted=true",
            None,
            [{"subject": "gone-value", "version": 1}],
        ),
        ("GET", "/contexts", None, ["."]),
        ("GET", "/config", None, {"compatibilityLevel": "BACKWARD"}),
        ("GET", "/config/x-value?defaultToGlobal=true", None, {"compatibilityLevel": "BACKWARD"}),
        ("GET", "/mode", None, {"mode": "READWRITE"}),
        ("GET", "/mode/x-value?defaultToGlobal=true", None, {"mode": "READWRITE"}),
        ("PUT", "/config", {"compatibility": "NONE"}, {"compatibility": "NONE"}),
        ("PUT", "/mode", {"mode": "READONLY"}, {"mode": "READONLY"}),
        ("PUT", "/mode/c-value", {"mode": "READONLY"}, {"mode": "READONLY"}),
        ("DELETE", "/mode/c-value", None, {"mode": "READWRITE"}),
        ("DELETE", "/config/c-value", None, {"compatibilityLevel": "BACKWARD"}),
        ("POST", "/compatibility/subjects/c-value/versions/1", STRING, {"is_compatible": False}),
        ("DELETE", "/subjects/c-value/versions/1", None, 1),
    ],
)
def test_every_route(method: str, path: str, body: Any, answer: Any) -> None:
    app = App()
    app.registry.register("acme-c-value", INT)
    assert Rig(InProcess(app)).ask(method, path, body)[:2] == (200, answer)


def test_schemas_by_page() -> None:
    status, found, _ = Rig(None).ask("GET", "/schemas?deleted=true&limit=1")
    assert (status, [row["subject"] for row in found]) == (200, ["gone-value"])
    status, found, _ = Rig(None).ask("GET", "/schemas?latestOnly=true&subjectPrefix=orders")
    assert found == [{"subject": "orders-value", "version": 1, "id": 5, **STRING}]


def test_writes_carry_the_client_s_own_credentials() -> None:
    app = App()
    rig = Rig(Locked(app, refusal=b"Unauthorized"))
    path, body = "/subjects/c-value/versions", {"schema": '"int"'}
    status, answer, headers = rig.ask("POST", path, body)
    assert (status, answer["error_code"]) == (401, 401)
    assert headers["www-authenticate"] == "Basic realm=registry"
    assert rig.ask("POST", path, body, authorization="Basic YmFk")[0] == 401
    assert app.registry.subjects == {}
    assert rig.ask("POST", path, body, authorization="Basic Z29vZA==")[:2] == (200, {"id": 1})
    assert rig.ask("GET", "/subjects")[0] == 200  # this view lets everybody read


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/subjects/_internal/versions", {"schema": '"int"'}, 200, None),
        ("/subjects/com.acme.Record/versions", {"schema": '"int"'}, 422, 42208),
        ("/subjects/a%20b-value/versions", {"schema": '"int"'}, 422, 42208),
    ],
)
def test_subjects_that_the_primary_cannot_have(
    path: str, body: Any, status: int, code: int | None
) -> None:
    found, answer, _ = Rig(InProcess(App())).ask("POST", path, body)
    assert (found, answer.get("error_code")) == (status, code)


def test_a_body_that_is_no_json() -> None:
    async def send() -> httpx.Response:
        rig = Rig(InProcess(App()))
        async with httpx.AsyncClient(transport=rig._transport, base_url=URL) as client:
            return await client.post("/subjects/orders-value", content=b"{")

    answer = asyncio.run(send())
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42201)


@pytest.mark.parametrize("text", ["--5", "", "1e3", "٣", "-", "9" * 5_000])
def test_a_limit_that_is_no_number(text: str) -> None:
    status, body, _ = Rig(None).ask("GET", f"/subjects?limit={text}")
    assert (status, body["error_code"]) == (422, 422)


def test_texts_of_other_tenants_are_not_shown() -> None:
    """The primary knows all ids; the view asks whose they are."""
    app = App()
    app.registry.register("rival-secrets-value", {"schema": '"int"'})
    app.registry.register("acme-shared-value", {"schema": '"long"'})
    app.registry.register("rival-shared-value", {"schema": '"long"'})
    app.registry.register("_internal-value", {"schema": '"bytes"'})
    rig = Rig(InProcess(app))
    for path in ("/schemas/ids/1", "/schemas/ids/1/schema", "/schemas/ids/3"):
        status, body, _ = rig.ask("GET", path)
        assert (status, body["error_code"]) == (404, 40403), path
    assert rig.ask("GET", "/schemas/ids/2")[:2] == (200, {"schema": '"long"'})


def test_a_text_that_is_too_long_is_refused_and_a_long_one_is_compared_in_a_thread() -> None:
    rig = Rig(None)
    body = {"schema": "message M {}" * 200_000, "schemaType": "PROTOBUF"}
    status, found, _ = rig.ask("POST", "/subjects/orders-value", body)
    assert (status, found["error_code"]) == (413, 413)
    cache = compare.fingerprint.cache_info().currsize
    body = {"schema": "message M {}" * 2_000, "schemaType": "PROTOBUF"}
    status, found, _ = rig.ask("POST", "/subjects/orders-value", body)
    assert (status, found["error_code"]) == (404, 40403)
    assert compare.fingerprint.cache_info().currsize == cache  # a stranger's text is not kept


def test_a_view_that_has_read_nothing_yet_says_so() -> None:
    app = view_app(Behind(lambda: None, None))
    rig = Rig(None)
    rig._transport = httpx.ASGITransport(app=app)
    status, body, _ = rig.ask("GET", "/subjects")
    assert (status, body["error_code"]) == (503, 50003)
