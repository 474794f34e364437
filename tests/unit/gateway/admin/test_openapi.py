"""The description of the REST interface is that of the server, and the file is current."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from prometheus_client import CollectorRegistry
from starlette.routing import Route

from gateway.admin.health import Health
from gateway.admin.openapi import OPERATIONS, document, text
from gateway.admin.rest import RestParts, rest_app
from gateway.members.groups import Groups
from gateway.members.key_filters import KeyFilters
from gateway.operations.lag import Lags
from gateway.operations.parked_records import ParkedRecords
from gateway.operations.unreadable_records import UnreadableRecords
from gateway.windows.windows import Windows

FILE = Path(__file__).resolve().parents[4] / "docs" / "openapi.json"


def test_the_file_is_current() -> None:
    assert FILE.read_text(encoding="utf-8") == text(), (
        "python -m gateway.admin.openapi > docs/openapi.json"
    )


def test_every_route_is_described_and_no_other() -> None:
    async def look() -> Health:
        return Health(True, (), {})

    parts = RestParts(
        groups=cast(Groups, None),
        windows=cast(Windows, None),
        parked=cast(ParkedRecords, None),
        unreadable=cast(UnreadableRecords, None),
        filters=cast(KeyFilters, None),
        registry=CollectorRegistry(),
        lags=cast(Lags, None),
        health=look,
    )
    served = {
        (method, route.path.replace(":name}", "}"))
        for route in rest_app(parts, loopback=True).routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert served == {(operation.method, operation.path) for operation in OPERATIONS}


def test_every_schema_that_is_named_is_there() -> None:
    described = document()
    named = set(json.dumps(described).split('"#/components/schemas/')[1:])
    assert named
    for rest in named:
        assert rest.partition('"')[0] in described["components"]["schemas"]
