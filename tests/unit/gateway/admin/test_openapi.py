"""The description of the REST interface is that of the server, and the file is current."""

from __future__ import annotations

import json
import re
from pathlib import Path

from starlette.routing import Route

from gateway.admin.api import OPERATIONS
from gateway.admin.openapi import document, text
from gateway.admin.rest import rest_app
from tests.rig.rest_parts import rest_parts

ROOT = Path(__file__).resolve().parents[4]
FILE = ROOT / "docs" / "openapi.json"
STATIC = ROOT / "gateway" / "admin" / "dashboard" / "static"


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


def test_the_dashboard_asks_with_parameters_that_are_described() -> None:
    taken: dict[str, set[str]] = {}
    for operation in OPERATIONS:
        names = {parameter.name for parameter in (*operation.query, *operation.optional)}
        taken[operation.path] = taken.get(operation.path, set()) | names
    scripts = [path.read_text("utf-8") for path in STATIC.rglob("*.js")]
    found = [
        (path, name)
        for script in scripts
        for path, parameters in re.findall(r'at\("(/v1/[^"]+)", \{([^}]*)\}', script)
        for name in re.findall(r"(\w+)(?::[^,]*)?(?:,|\s*$)", parameters)
    ]
    assert ("/v1/windows", "runs") in found
    assert ("/v1/keys", "key") in found
    assert [use for use in found if use[1] not in taken[use[0]]] == []
    assert not [script for script in scripts if re.search(r'"/v1/[^"]*\?', script)], (
        "at() joins them"
    )


def test_every_schema_that_is_named_is_there() -> None:
    described = document()
    named = set(json.dumps(described).split('"#/components/schemas/')[1:])
    assert named
    for rest in named:
        assert rest.partition('"')[0] in described["components"]["schemas"]
