"""The OpenAPI description of the REST interface, made from the models of its rows.

`python -m gateway.admin.openapi` prints docs/openapi.json; a test keeps that file current, and the
paths those of the server.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from gateway.admin.api import OPERATIONS
from gateway.admin.operation import JSON, Operation, Parameter
from gateway.admin.rows import Problem

_SCHEMAS = "#/components/schemas/"
_PROBLEM = "application/problem+json"

_SECURITY = {  # of a node with tokens
    "token": {"type": "http", "scheme": "bearer"},
    "session": {"type": "apiKey", "in": "cookie", "name": "keyway_PORT"},
}


def document() -> dict[str, Any]:
    models = {
        Problem,
        *(known.answer for known in OPERATIONS),
        *(known.body for known in OPERATIONS),
    }
    wanted = sorted(
        (model for model in models if model is not None), key=lambda model: model.__name__
    )
    _, schemas = models_json_schema(
        [(model, "validation") for model in wanted], ref_template=f"{_SCHEMAS}{{model}}"
    )
    for schema in schemas["$defs"].values():
        if "enum" in schema:  # in compiled modules mypyc has another docstring
            schema.pop("description", None)
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Keyway: REST of a node", "version": "1"},
        "paths": paths,
        "components": {"schemas": schemas["$defs"], "securitySchemes": _SECURITY},
    }


def _described(operation: Operation) -> dict[str, Any]:
    shape = _schema(operation.answer, "object" if operation.media == JSON else "string")
    answer = {"description": "The answer.", "content": {operation.media: shape}}
    problem = {"description": "A refusal.", "content": {_PROBLEM: _schema(Problem)}}
    responses = {"200": answer, "default": problem}
    if operation.also is not None:
        responses[str(operation.also)] = answer
    described: dict[str, Any] = {"summary": operation.summary, "responses": responses}
    if operation.role is not None:
        described |= {"security": [{"token": []}, {"session": []}], "x-role": operation.role.value}
    parameters = [
        *(_parameter(parameter, "path") for parameter in operation.in_path),
        *(_parameter(parameter, "query") for parameter in operation.query),
        *(_parameter(parameter, "query", required=False) for parameter in operation.optional),
    ]
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": {JSON: _schema(operation.body)}}
    return described


def _schema(model: type[BaseModel] | None, otherwise: str = "object") -> dict[str, Any]:
    """`otherwise`: the type of an answer without a model."""
    named = {"type": otherwise} if model is None else {"$ref": f"{_SCHEMAS}{model.__name__}"}
    return {"schema": named}


def _parameter(parameter: Parameter, place: str, *, required: bool = True) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": place,
        "required": required,
        "schema": dict(parameter.schema),
        "description": parameter.about,
    }


@cache
def text() -> str:
    return json.dumps(document(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    print(text(), end="")  # noqa: T201
