"""The registry's REST interface as an ASGI application.

`calls` counts requests by method and route, for tests that ask about writes. `on_request` runs
before each request is carried out and `on_answer` before its answer leaves: a test raises there.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, unquote

from tests.rig.schema_registry.state import JsonObject, Registry, RegistryError, context_of

Query = dict[str, str]
_S = r"(?P<subject>[^/]+)"


class App:
    def __init__(self, registry: Registry | None = None, *, null_when_empty: bool = True) -> None:
        self.registry = Registry() if registry is None else registry
        self.null_when_empty = null_when_empty  # as AxonOps answers GET /subjects
        self.calls: Counter[str] = Counter()
        self.on_request: Callable[[str, str], None] = lambda _method, _path: None
        self.on_answer: Callable[[str, str], None] = lambda _method, _path: None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        status, data = self.carry_out(
            scope["method"],
            scope["raw_path"].split(b"?")[0].decode(),
            scope["query_string"].decode(),
            body,
        )
        headers = [(b"content-type", b"application/vnd.schemaregistry.v1+json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": data})

    def carry_out(self, method: str, path: str, query: str, body: bytes) -> tuple[int, bytes]:
        """The status and the body of the answer to a request as it came: nothing decoded."""
        fields = {name: values[-1] for name, values in parse_qs(query).items()}
        self.on_request(method, path)
        status, answer = self.answer(method, path, fields, body)
        self.on_answer(method, path)
        return status, json.dumps(answer).encode()

    def answer(self, method: str, path: str, query: Query, body: bytes) -> tuple[int, Any]:
        try:
            for route_method, pattern, handler in ROUTES:
                found = pattern.fullmatch(path)
                if found is not None and method == route_method:
                    self.calls[f"{method} {handler.__name__}"] += 1
                    parts = {name: _decoded(value) for name, value in found.groupdict().items()}
                    return 200, handler(self, query, json.loads(body) if body else {}, **parts)
        except RegistryError as error:
            return error.status, error.body
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


def _decoded(part: str) -> str:
    return unquote(part.replace("%3A", "%253A"))  # a %3A stays one


def _flag(query: Query, name: str) -> bool:
    return query.get(name) == "true"


def subjects(app: App, query: Query, _body: JsonObject) -> Any:
    deleted, prefix = _flag(query, "deleted"), query.get("subjectPrefix", "")
    found = {stored.subject for stored in app.registry.all() if deleted or not stored.deleted}
    made = sorted(subject for subject in found if subject.startswith(prefix))
    return made if made or not app.null_when_empty else None


def versions(app: App, query: Query, _body: JsonObject, subject: str) -> Any:
    return list(app.registry.of(subject, deleted=_flag(query, "deleted")))


def version(app: App, query: Query, _body: JsonObject, subject: str, version: str) -> Any:
    return app.registry.get(subject, version, deleted=_flag(query, "deleted")).shown()


def schema_text(app: App, query: Query, _body: JsonObject, subject: str, version: str) -> Any:
    found = app.registry.get(subject, version, deleted=_flag(query, "deleted"))
    return json.loads(found.schema["schema"])


def referenced_by(app: App, _query: Query, _body: JsonObject, subject: str, version: str) -> Any:
    found = app.registry.get(subject, version, deleted=True)
    return sorted({stored.id for stored in app.registry.referenced_by(subject, found.version)})


def register(app: App, _query: Query, body: JsonObject, subject: str) -> Any:
    return {"id": app.registry.register(subject, body)}


def look_up(app: App, query: Query, body: JsonObject, subject: str) -> Any:
    return app.registry.look_up(subject, body, deleted=_flag(query, "deleted")).shown()


def delete_version(app: App, query: Query, _body: JsonObject, subject: str, version: str) -> Any:
    return app.registry.delete(subject, version, permanent=_flag(query, "permanent"))


def delete_subject(app: App, query: Query, _body: JsonObject, subject: str) -> Any:
    return app.registry.delete_subject(subject, permanent=_flag(query, "permanent"))


def schemas(app: App, query: Query, _body: JsonObject) -> Any:
    deleted, prefix = _flag(query, "deleted"), query.get("subjectPrefix", "")
    every = app.registry.beginning(prefix) if prefix else app.registry.all()
    shown = [stored.shown() for stored in every if deleted or not stored.deleted]
    first = int(query.get("offset", "0"))
    limit = int(query.get("limit", "-1"))
    return shown[first : first + limit] if limit >= 0 else shown[first:]


def by_id(app: App, query: Query, _body: JsonObject, id: str) -> Any:  # noqa: A002
    return app.registry.by_id(context_of(query.get("subject", "")), int(id))


def versions_of_id(app: App, query: Query, _body: JsonObject, id: str) -> Any:  # noqa: A002
    deleted, context = _flag(query, "deleted"), context_of(query.get("subject", ""))
    app.registry.by_id(context, int(id))
    return [
        {"subject": stored.subject, "version": stored.version}
        for stored in app.registry.all()
        if stored.id == int(id)
        and context_of(stored.subject) == context
        and (deleted or not stored.deleted)
    ]


def types(_app: App, _query: Query, _body: JsonObject) -> Any:
    return ["AVRO", "JSON", "PROTOBUF"]


def compatibility(app: App, _query: Query, body: JsonObject, subject: str, version: str) -> Any:
    schema = app.registry.schema_of(body)
    found = app.registry.get(subject, version, deleted=False)
    return {"is_compatible": app.registry.compatible(schema, found.schema)}


def config(app: App, query: Query, _body: JsonObject, subject: str = "") -> Any:
    if subject and subject not in app.registry.config and not _flag(query, "defaultToGlobal"):
        text = f"Subject '{subject}' does not have subject-level compatibility configured"
        raise RegistryError(404, 40408, text)
    level = app.registry.config.get(subject, app.registry.config.get("", "BACKWARD"))
    return {"compatibilityLevel": level}


def set_config(app: App, _query: Query, body: JsonObject, subject: str = "") -> Any:
    app.registry.config[subject] = body["compatibility"]
    return body


def delete_config(app: App, _query: Query, _body: JsonObject, subject: str = "") -> Any:
    return {"compatibilityLevel": app.registry.config.pop(subject, "BACKWARD")}


def mode(app: App, query: Query, _body: JsonObject, subject: str = "") -> Any:
    if subject and subject not in app.registry.modes and not _flag(query, "defaultToGlobal"):
        text = f"Subject '{subject}' does not have subject-level mode configured"
        raise RegistryError(404, 40409, text)
    return {"mode": app.registry.mode_of(subject)}


def set_mode(app: App, query: Query, body: JsonObject, subject: str = "") -> Any:
    app.registry.set_mode(subject, body["mode"], force=_flag(query, "force"))
    return body


def delete_mode(app: App, _query: Query, _body: JsonObject, subject: str = "") -> Any:
    return {"mode": app.registry.modes.pop(subject, "READWRITE")}


def contexts(app: App, _query: Query, _body: JsonObject) -> Any:
    return sorted({".", *(context_of(subject) for subject in app.registry.subjects)})


_ROUTES: list[tuple[str, str, Callable[..., Any]]] = [
    ("GET", "/subjects", subjects),
    ("GET", f"/subjects/{_S}/versions", versions),
    ("GET", f"/subjects/{_S}/versions/(?P<version>[^/]+)", version),
    ("GET", f"/subjects/{_S}/versions/(?P<version>[^/]+)/schema", schema_text),
    ("GET", f"/subjects/{_S}/versions/(?P<version>[^/]+)/referencedby", referenced_by),
    ("POST", f"/subjects/{_S}/versions", register),
    ("POST", f"/subjects/{_S}", look_up),
    ("DELETE", f"/subjects/{_S}/versions/(?P<version>[^/]+)", delete_version),
    ("DELETE", f"/subjects/{_S}", delete_subject),
    ("GET", "/schemas", schemas),
    ("GET", r"/schemas/ids/(?P<id>\d+)", by_id),
    ("GET", r"/schemas/ids/(?P<id>\d+)/versions", versions_of_id),
    ("GET", "/schemas/types", types),
    ("POST", f"/compatibility/subjects/{_S}/versions/(?P<version>[^/]+)", compatibility),
    ("GET", "/config", config),
    ("GET", f"/config/{_S}", config),
    ("PUT", "/config", set_config),
    ("PUT", f"/config/{_S}", set_config),
    ("DELETE", f"/config/{_S}", delete_config),
    ("GET", "/mode", mode),
    ("GET", f"/mode/{_S}", mode),
    ("PUT", "/mode", set_mode),
    ("PUT", f"/mode/{_S}", set_mode),
    ("DELETE", f"/mode/{_S}", delete_mode),
    ("GET", "/contexts", contexts),
]
ROUTES = [(method, re.compile(path), handler) for method, path, handler in _ROUTES]
