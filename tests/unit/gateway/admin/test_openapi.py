"""The description of the REST interface is that of the server, and the file is current."""

from __future__ import annotations

import json
from pathlib import Path

from starlette.routing import Route

from gateway.admin.api import OPERATIONS
from gateway.admin.openapi import document, text
from gateway.admin.rest import rest_app
from tests.rig.rest_parts import rest_parts

FILE = Path(__file__).resolve().parents[4] / "docs" / "openapi.json"


def test_the_file_is_current() -> None:
    assert FILE.read_text(encoding="utf-8") == text(), (
        "python -m gateway.admin.openapi > docs/openapi.json"
    )


def test_every_route_is_described_and_no_other() -> None:
    served = {
        (method, route.path.replace(":name}", "}"))
        for route in rest_app(rest_parts(), loopback=True).routes
        if isinstance(route, Route) and route.include_in_schema
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert served == {(operation.method, operation.path) for operation in OPERATIONS}


def test_every_schema_that_is_named_is_there() -> None:
    described = document()
    named = set(json.dumps(described).split('"#/components/schemas/')[1:])
    assert named
    for rest in named:
        assert rest.partition('"')[0] in described["components"]["schemas"]
