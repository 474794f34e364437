"""The OpenAPI description of the REST interface, made from the models of its rows.

`python -m gateway.admin.openapi` prints docs/openapi.json; a test keeps that file current, and the
paths those of the server.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from gateway.admin.dashboard.rows import Overview
from gateway.admin.node_rows import CallerRow, LoggedOut, LoginBody
from gateway.admin.rows import (
    Alive,
    FilterChange,
    FilterPreview,
    GroupDescription,
    GroupList,
    HealthRow,
    KeyFilterRules,
    ParkedList,
    Problem,
    ReleaseBody,
    Released,
    SkipBody,
    Skipped,
    UnreadableList,
)
from gateway.config import FilterRules, Role

_SCHEMAS = "#/components/schemas/"
_JSON, _PROBLEM, _METRICS = "application/json", "application/problem+json", "text/plain"
_EVENTS = "text/event-stream"


MYPYC_DOCSTRING = "mypyc filler docstring"


@dataclass(frozen=True, slots=True)
class Operation:
    """`answer` None: text of type `media`. `also`: another status with the same answer. `role`: the
    least that may use it; None: open to all. `action`: its name in the audit, if it changes
    something. `whole`: it speaks of all groups, so a token for some of them may not use it.
    """

    method: str
    path: str
    summary: str
    answer: type[BaseModel] | None
    body: type[BaseModel] | None = None
    query: tuple[str, ...] = ()  # required parameters
    optional: tuple[str, ...] = ()
    also: int | None = None
    role: Role | None = Role.VIEWER
    action: str | None = None
    whole: bool = False
    media: str = _JSON

    @property
    def of_group(self) -> bool:
        """It names a group in its path or its query."""
        return "group" in self.query or "{group}" in self.path


OPERATIONS = (
    Operation(
        "GET",
        "/v1/groups",
        "The Key-Shared groups of the node, a page at a time.",
        GroupList,
        optional=("after", "limit"),
    ),
    Operation("GET", "/v1/groups/{group}", "One group: members, windows, lag.", GroupDescription),
    Operation(
        "GET",
        "/v1/parked",
        "Records that wait for an operator.",
        ParkedList,
        query=("group",),
        optional=("topic",),
    ),
    Operation(
        "POST",
        "/v1/parked/release",
        "Deliver parked records once more, skip them, or write them to the dead letters.",
        Released,
        body=ReleaseBody,
        role=Role.OPERATOR,
        action="parked.release",
    ),
    Operation(
        "GET",
        "/v1/unreadable",
        "Where a group cannot read on.",
        UnreadableList,
        query=("group",),
        optional=("topic",),
    ),
    Operation(
        "POST",
        "/v1/unreadable/skip",
        "Give a batch up that is too large when decompressed.",
        Skipped,
        body=SkipBody,
        role=Role.OPERATOR,
        action="unreadable.skip",
    ),
    Operation(
        "GET", "/v1/filters", "The key filters of a group.", KeyFilterRules, query=("group",)
    ),
    Operation(
        "PUT",
        "/v1/filters",
        "Replace the key filters of a group.",
        KeyFilterRules,
        body=FilterRules,
        query=("group",),
        role=Role.OPERATOR,
        action="filters.set",
    ),
    Operation(
        "DELETE",
        "/v1/filters",
        "Go back to the key filters of keyway.yaml.",
        KeyFilterRules,
        query=("group",),
        role=Role.OPERATOR,
        action="filters.remove",
    ),
    Operation("GET", "/v1/login", "The caller: name, role, groups.", CallerRow),
    Operation(
        "POST",
        "/v1/login",
        "Open a browser's session with a token; it is in a cookie.",
        CallerRow,
        body=LoginBody,
        role=None,
        action="login",
    ),
    Operation("POST", "/v1/logout", "End it.", LoggedOut, role=None, action="logout"),
    Operation("GET", "/v1/openapi.json", "This description.", None, role=None, media=_JSON),
    Operation(
        "POST",
        "/v1/filters/preview",
        "The effect of other key filters on the members and keys of a group. Changes nothing.",
        FilterPreview,
        body=FilterChange,
        query=("group",),
    ),
    Operation("GET", "/v1/overview", "The node at a glance: health, traffic, groups.", Overview),
    Operation(
        "GET",
        "/v1/events",
        "The overview every two seconds, as server-sent events.",
        None,
        media=_EVENTS,
    ),
    Operation("GET", "/metrics", "Metrics for Prometheus.", None, whole=True, media=_METRICS),
    Operation("GET", "/health", "503 with the reasons if anything is amiss.", HealthRow, also=503),
    Operation(
        "GET",
        "/health/ready",
        "503 if the node cannot serve clients.",
        HealthRow,
        also=503,
        role=None,
    ),
    Operation("GET", "/health/live", "The process answers.", Alive, role=None),
)


def document() -> dict[str, Any]:
    models = {Problem, *(it.answer for it in OPERATIONS), *(it.body for it in OPERATIONS)}
    wanted = sorted((it for it in models if it is not None), key=lambda it: it.__name__)
    _, schemas = models_json_schema(
        [(model, "validation") for model in wanted], ref_template=f"{_SCHEMAS}{{model}}"
    )
    for schema in schemas["$defs"].values():
        if schema.get("description") == MYPYC_DOCSTRING:  # of an enum in a compiled module
            del schema["description"]
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Keyway: REST of a node", "version": "1"},
        "paths": paths,
        "components": {"schemas": schemas["$defs"]},
    }


def _described(operation: Operation) -> dict[str, Any]:
    answer = {"description": "The answer.", "content": {operation.media: _schema(operation.answer)}}
    problem = {"description": "A refusal.", "content": {_PROBLEM: _schema(Problem)}}
    responses = {"200": answer, "default": problem}
    if operation.also is not None:
        responses[str(operation.also)] = answer
    described: dict[str, Any] = {"summary": operation.summary, "responses": responses}
    parameters = [
        *(_parameter(name, "path") for name in ("group",) if f"{{{name}}}" in operation.path),
        *(_parameter(name, "query") for name in operation.query),
        *(_parameter(name, "query", required=False) for name in operation.optional),
    ]
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": {_JSON: _schema(operation.body)}}
    return described


def _schema(model: type[BaseModel] | None) -> dict[str, Any]:
    text = {"type": "string"}
    return {"schema": text if model is None else {"$ref": f"{_SCHEMAS}{model.__name__}"}}


def _parameter(name: str, place: str, *, required: bool = True) -> dict[str, Any]:
    return {"name": name, "in": place, "required": required, "schema": {"type": "string"}}


@cache
def text() -> str:
    return json.dumps(document(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    print(text(), end="")  # noqa: T201
