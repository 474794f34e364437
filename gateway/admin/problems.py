"""Parts of every REST route: errors as problem+json (RFC 9457), bounded bodies, and the check of
the Host header.

A web page in the operator's browser must not reach a REST on loopback. So a Host header must name
loopback there (DNS rebinding), and a body must be declared as JSON: a page of another origin may
not send that unasked. access.py looks at the caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes, urlsplit

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.admin.limits import ADMIN_BODY_BYTES_MAX
from gateway.config.admin import is_loopback
from gateway.handlers.limits import GROUP_ID_CHARS_MAX
from gateway.operations.errors import OperationError
from keyway.clusters.yaml_file import first_fault

DESCRIPTION = "/v1/openapi.json"

Body = TypeVar("Body", bound=BaseModel)


def problem(status: int, title: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse(
        {"type": "about:blank", "title": title, "status": status},
        status_code=status,
        headers=headers,
        media_type="application/problem+json",
    )


async def http_problem(_: Request, error: Exception) -> Response:
    """The router itself gives no reason but the words of the status."""
    assert isinstance(error, HTTPException)
    title = error.detail
    if title == HTTPStatus(error.status_code).phrase:
        if error.status_code == 404:
            title = f"no such path; {DESCRIPTION} lists all"
        elif error.status_code == 405:
            allowed = sorted((error.headers or {}).get("Allow", "").split(", "))
            title = f"this path takes {', '.join(allowed)} only"
    return problem(error.status_code, title, error.headers)


async def group_problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, OperationError)
    return problem(error.status, str(error))


async def json_body(request: Request, fields: set[str]) -> dict[str, Any]:
    """The body, an object with exactly these fields. Raises HTTPException."""
    body = await json_object(request)
    for name in sorted(fields - set(body)):
        raise HTTPException(400, f"{name} is missing")
    for name in sorted(set(body) - fields):
        raise HTTPException(400, f"{name} is not known")
    return body


async def json_object(request: Request) -> dict[str, Any]:
    """The body. Raises HTTPException."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "a body of type application/json is expected")
    data = await body_of(request)
    try:
        body = from_json(data)  # strict about text: half a surrogate pair is no character
    except ValueError as error:
        raise HTTPException(400, f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise HTTPException(400, "an object is expected")
    return body


async def body_of(request: Request) -> bytes:
    """Read once, however often it is asked for. Raises HTTPException."""
    known: bytes | None = getattr(request.state, "body", None)
    if known is not None:
        return known
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > ADMIN_BODY_BYTES_MAX:
            raise HTTPException(413, f"a body of at most {ADMIN_BODY_BYTES_MAX} bytes is expected")
    request.state.body = bytes(data)
    return bytes(data)


def validated(model: type[Body], body: dict[str, Any]) -> Body:
    """Raises HTTPException, which names the field."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise HTTPException(400, first_fault(error)) from error


def answered(row: BaseModel) -> Response:
    """Fields that were not set are left out."""
    return Response(row.model_dump_json(exclude_unset=True), media_type="application/json")


def only_parameters(request: Request, names: Sequence[str]) -> None:
    """Refuses any other parameter, and one that is given twice: without a misspelt filter the
    answer would be about more than the caller means. Raises HTTPException.
    """
    given: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name not in names:
            taken = ", ".join(names) or "none"
            raise HTTPException(400, f"no parameter {name!r}; this path takes {taken}")
        if name in given:
            raise HTTPException(400, f"the parameter {name} is given twice")
        given.add(name)


def query(request: Request, name: str) -> str:
    """The name of a group: a parameter that must be there. Raises HTTPException."""
    value = request.query_params.get(name)
    if not value:
        raise HTTPException(400, f"the parameter {name} is missing")
    if len(value) > GROUP_ID_CHARS_MAX:
        raise HTTPException(400, f"{name} has more than {GROUP_ID_CHARS_MAX} characters")
    return value


class TextTargets:
    """Middleware: 400 for a path or a query that is no UTF-8 once its %XX are bytes. The server
    would put a replacement character there, and that is another name.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            for part, data in (("path", scope["raw_path"]), ("query", scope["query_string"])):
                try:
                    unquote_to_bytes(data).decode()
                except UnicodeDecodeError:
                    answer = problem(400, f"the {part} is not UTF-8")
                    await answer(scope, receive, send)
                    return
        await self.app(scope, receive, send)


@dataclass(slots=True, eq=False)
class Refusals(Collector):
    """Requests that were answered with 4xx, by status, as a metric."""

    counts: dict[int, int] = field(default_factory=dict)

    def count(self, status: int) -> None:
        if 400 <= status < 500:
            self.counts[status] = self.counts.get(status, 0) + 1

    def collect(self) -> Iterator[Metric]:
        refused = CounterMetricFamily(
            "keyway_rest_refused", "REST requests refused, by HTTP status", labels=["status"]
        )
        for status, count in sorted(self.counts.items()):
            refused.add_metric([str(status)], count)
        yield refused


class CountedRefusals:
    """Middleware around all others, which refuse, too."""

    def __init__(self, app: ASGIApp, refusals: Refusals) -> None:
        self.app = app
        self.refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.refusals.count(message["status"])
            await send(message)

        await self.app(scope, receive, counted)


class LoopbackHosts:
    """Middleware of a server that is bound to loopback: 421 for a Host that is elsewhere."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not names_loopback(Request(scope).headers.getlist("host")):
            answer = problem(421, "this address serves loopback only")
            await answer(scope, receive, send)
            return
        await self.app(scope, receive, send)


def names_loopback(hosts: list[str]) -> bool:
    """Whether a request has exactly one Host header and this names loopback."""
    if len(hosts) != 1:
        return False
    try:
        name = urlsplit(f"//{hosts[0]}").hostname
    except ValueError:
        return False
    return name is not None and is_loopback(name)
