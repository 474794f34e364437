"""The view's REST interface: Confluent's, read from the cluster's `_schemas`, logical subjects.

Served here: subjects, versions, schemas by id, lookups, contexts, compatibility levels and modes.
Passed on to the primary: registering, deleting, compatibility checks, changes of settings; and
questions about ids and schemas that have not arrived here yet. What is served here says by the
header `Age` how many seconds ago the source was read. Not implemented:
exporters, associations, tags, guids.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from keyway.clusters.core.registry_answers import says_absent
from schema_dist.core.model import GLOBAL, Schema, SchemaId, SchemaVersion
from schema_dist.core.records import INT32_MAX, fields_of, schema_version
from schema_dist.core.shown import Json, Listing, Shown, ViewError, places, version_body
from schema_dist.limits import (
    VIEW_BODIES_AT_ONCE,
    VIEW_BODY_BYTES_MAX,
    VIEW_BODY_S_MAX,
    VIEW_TEXT_CHARS_QUICK,
)
from schema_dist.view.primary import Passed, Primary

_NUMBER = re.compile(r"-?[0-9]{1,12}")
_JSON = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True, slots=True)
class Behind:
    """What the routes answer from. `shown`: the contents, None before they were read. `primary`:
    None if the view can only be read. `authenticate`: the primary decides who may read.
    """

    shown: Callable[[], Shown | None]
    primary: Primary | None
    authenticate: bool = False
    age_s: Callable[[], float] = lambda: 0.0  # since the source was read last
    # Python compares one long text at a time anyway; the event loop goes on beside it.
    long_texts: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, "look-up"))
    bodies: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(VIEW_BODIES_AT_ONCE)
    )


Serve = Callable[["Asked"], Awaitable[Json | Passed]]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    request: Request
    behind: Behind
    template: str  # the route's path

    @property
    def shown(self) -> Shown:
        shown = self.behind.shown()
        if shown is None:
            raise ViewError(503, 50003, "the schemas have not been read yet")
        return shown

    @property
    def subject(self) -> str:
        return str(self.request.path_params.get("subject", GLOBAL))

    @property
    def version(self) -> str:
        return str(self.request.path_params["version"])

    def flag(self, name: str) -> bool:
        return self.request.query_params.get(name, "").lower() == "true"

    def number(self, name: str, default: int) -> int:
        text = self.request.query_params.get(name)
        if text is None:
            return default
        if _NUMBER.fullmatch(text) is None:
            raise ViewError(422, 422, f"{name} is no number")
        return max(-1, min(int(text), INT32_MAX))

    @property
    def listing(self) -> Listing:
        return Listing(
            prefix=self.request.query_params.get("subjectPrefix", ""),
            deleted=self.flag("deleted"),
            deleted_only=self.flag("deletedOnly"),
            latest_only=self.flag("latestOnly"),
            offset=max(0, self.number("offset", 0)),
            limit=self.number("limit", -1),
        )

    async def body(self) -> Json:
        """The request's JSON. Raises ViewError 42201."""
        data = bytearray()
        try:
            async with asyncio.timeout(VIEW_BODY_S_MAX):
                async for chunk in self.request.stream():
                    data += chunk
                    if len(data) > VIEW_BODY_BYTES_MAX:
                        raise ViewError(413, 413, "the request is too large")
        except TimeoutError:
            raise ViewError(408, 408, "the request did not arrive in time") from None
        except ClientDisconnect:
            raise ViewError(400, 400, "the request ended early") from None
        try:
            return json.loads(data) if data else None
        except (ValueError, RecursionError):
            raise ViewError(422, 42201, "the request is no JSON") from None

    async def here_or_at_primary(self, find: Callable[[], Json]) -> Json | Passed:
        """The answer of `find`, or else the primary's: a registered schema may not have arrived
        here yet. Raises ViewError.
        """
        try:
            return find()
        except ViewError as error:
            return await self.at_primary(error)

    async def at_primary(self, error: ViewError, body: Json = None) -> Passed:
        """The primary's answer where the view's own would be `error`."""
        if error.status != 404 or self.behind.primary is None:
            raise error
        passed = await self.pass_on(body)
        if passed.status != 404:
            return passed
        some_lack_it = self.template.endswith("/schema")  # a route that not all registries have
        if not says_absent(passed.body) and not some_lack_it:
            raise ViewError(503, 50003, "a 404 that is not the primary's registry's") from error
        raise error

    async def pass_on(self, body: Json = None) -> Passed:
        """The primary's answer to this request. Raises ViewError."""
        if self.behind.primary is None:
            raise ViewError(422, 42205, "this registry can only be read")
        path = self.template
        for name, value in self.request.path_params.items():
            if name != "subject":
                place = "{id:int}" if name == "id" else f"{{{name}}}"
                path = path.replace(place, quote(str(value), safe=""))
        return await self.behind.primary.ask(
            self.request.method,
            path,
            subject=self.subject or None,
            query=dict(self.request.query_params),
            headers=dict(self.request.headers),
            body=body,
        )


# -------------------------------------------------------------------------------------- served here


async def _root(_asked: Asked) -> Json:
    return {}


async def _subjects(asked: Asked) -> Json:
    return asked.shown.list_subjects(asked.listing)


async def _versions(asked: Asked) -> Json:
    return asked.shown.list_versions(asked.subject, asked.listing)


async def _version(asked: Asked) -> Json | Passed:
    return await asked.here_or_at_primary(lambda: version_body(_found(asked)))


async def _version_schema(asked: Asked) -> Json | Passed:
    return await asked.here_or_at_primary(lambda: _text(_found(asked).schema))


def _found(asked: Asked) -> SchemaVersion:
    return asked.shown.version(asked.subject, asked.version, deleted=asked.flag("deleted"))


async def _referenced_by(asked: Asked) -> Json:
    return asked.shown.referenced_by(asked.subject, asked.version)


async def _look_up(asked: Asked) -> Json | Passed:
    async with asked.behind.bodies:
        return await _looked_up(asked)


async def _looked_up(asked: Asked) -> Json | Passed:
    body = await asked.body()
    try:
        schema = schema_version({"version": 0, "id": 0, **body}, subject="").schema
    except (ValueError, TypeError) as error:
        raise ViewError(422, 42201, f"Invalid schema: {error}") from None
    shown, deleted = asked.shown, asked.flag("deleted")
    look = partial(shown.look_up, asked.subject, schema, deleted=deleted)
    try:
        if len(schema.text) + shown.longest_of(asked.subject) <= VIEW_TEXT_CHARS_QUICK:
            return version_body(look())
        loop = asyncio.get_running_loop()
        return version_body(await loop.run_in_executor(asked.behind.long_texts, look))
    except ViewError as error:
        return await asked.at_primary(error, body)


async def _schemas(asked: Asked) -> Json:
    return [version_body(version) for version in asked.shown.list_schemas(asked.listing)]


async def _id(asked: Asked) -> Json | Passed:
    return await _own_id(asked, _id_body)


async def _own_id(asked: Asked, find: Callable[[Asked], Json]) -> Json | Passed:
    """A client gets no id from the primary unless a subject with a logical name has it: the primary
    also knows the ids of other tenants.
    """
    try:
        return find(asked)
    except ViewError as error:
        primary, number = asked.behind.primary, int(asked.request.path_params["id"])
        if error.status == 404 and primary is not None:
            passed = await asked.at_primary(error)
            if passed.status != 200 or await primary.names_id(number, asked.request.headers):
                return passed
        raise


def _id_body(asked: Asked) -> Json:
    body = fields_of(_of_id(asked)[0].schema)
    if asked.flag("fetchMaxId"):
        body["maxId"] = max(number for _, number in asked.shown.ids)
    return body


async def _id_schema(asked: Asked) -> Json | Passed:
    return await _own_id(asked, lambda asked: _text(_of_id(asked)[0].schema))


async def _id_subjects(asked: Asked) -> Json:
    found = places(_of_id(asked), deleted=asked.flag("deleted"))
    return asked.listing.page(list(dict.fromkeys(version["subject"] for version in found)))


async def _id_versions(asked: Asked) -> Json:
    return asked.listing.page(places(_of_id(asked), deleted=asked.flag("deleted")))


def _of_id(asked: Asked) -> list[SchemaVersion]:
    number = SchemaId(int(asked.request.path_params["id"]))
    return asked.shown.by_id(number, asked.request.query_params.get("subject", ""))


async def _types(_asked: Asked) -> Json:
    return ["JSON", "PROTOBUF", "AVRO"]


async def _contexts(asked: Asked) -> Json:
    return asked.shown.contexts()


async def _config(asked: Asked) -> Json:
    level = asked.shown.compatibility_of(
        asked.subject, default_to_global=asked.flag("defaultToGlobal")
    )
    return {"compatibilityLevel": level}


async def _mode(asked: Asked) -> Json:
    default = asked.flag("defaultToGlobal")
    return {"mode": asked.shown.mode_of(asked.subject, default_to_global=default)}


def _text(schema: Schema) -> Json:
    try:
        return json.loads(schema.text)
    except ValueError:
        return schema.text  # Protobuf


async def _passed_on(asked: Asked) -> Passed:
    async with asked.behind.bodies:
        return await asked.pass_on(await asked.body())


# ----------------------------------------------------------------------------------------- the rest

_S = "/subjects/{subject}"
_V = f"{_S}/versions"
ROUTES: list[tuple[str, str, Serve]] = [
    ("GET", "/", _root),
    ("GET", "/subjects", _subjects),
    ("GET", _V, _versions),
    ("GET", f"{_V}/{{version}}", _version),
    ("GET", f"{_V}/{{version}}/schema", _version_schema),
    ("GET", f"{_V}/{{version}}/referencedby", _referenced_by),
    ("POST", _S, _look_up),
    ("GET", "/schemas", _schemas),
    ("GET", "/schemas/types", _types),
    ("GET", "/schemas/ids/{id:int}", _id),
    ("GET", "/schemas/ids/{id:int}/schema", _id_schema),
    ("GET", "/schemas/ids/{id:int}/subjects", _id_subjects),
    ("GET", "/schemas/ids/{id:int}/versions", _id_versions),
    ("GET", "/contexts", _contexts),
    ("GET", "/config", _config),
    ("GET", "/config/{subject}", _config),
    ("GET", "/mode", _mode),
    ("GET", "/mode/{subject}", _mode),
    ("POST", _V, _passed_on),
    ("DELETE", _S, _passed_on),
    ("DELETE", f"{_V}/{{version}}", _passed_on),
    ("POST", "/compatibility/subjects/{subject}/versions", _passed_on),
    ("POST", "/compatibility/subjects/{subject}/versions/{version}", _passed_on),
    ("PUT", "/config", _passed_on),
    ("PUT", "/config/{subject}", _passed_on),
    ("DELETE", "/config/{subject}", _passed_on),
    ("PUT", "/mode", _passed_on),
    ("PUT", "/mode/{subject}", _passed_on),
    ("DELETE", "/mode/{subject}", _passed_on),
]


def view_app(behind: Behind) -> Starlette:
    """The ASGI application."""
    routes = [
        Route(path, _endpoint(serve, behind, path), methods=[method])
        for method, path, serve in ROUTES
    ]
    return Starlette(routes=routes, exception_handlers={404: _no_route, 405: _no_route})


def _endpoint(
    serve: Serve, behind: Behind, template: str
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            if behind.authenticate:
                assert behind.primary is not None, "the file was refused"
                refused = await behind.primary.authorise(dict(request.headers))
                if refused is not None:
                    return _response(refused)
            answer = await serve(Asked(request, behind, template))
        except ViewError as error:
            body = {"error_code": error.code, "message": error.message}
            return _response(Passed(error.status, body))
        if isinstance(answer, Passed):
            return _response(answer)
        own = _response(Passed(200, answer))
        own.headers["age"] = str(int(behind.age_s()))
        return own

    return endpoint


def _response(passed: Passed) -> Response:
    headers = {} if passed.challenge is None else {"www-authenticate": passed.challenge}
    content = (
        b"" if passed.status == 204 else json.dumps(passed.body).encode("utf-8", "surrogatepass")
    )
    return Response(content, passed.status, headers, media_type=_JSON)


async def _no_route(_request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    return _response(Passed(status, {"error_code": status, "message": f"HTTP {status}"}))
