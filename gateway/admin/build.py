"""REST, health and metrics of all parts, as an ASGI application for the node to serve."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from gateway.admin.health import look
from gateway.admin.problems import is_loopback
from gateway.admin.rest import RestParts, rest_app
from gateway.config import AdminSection
from gateway.members.build import MembersRoom
from gateway.operations.build import OperationsRoom
from gateway.part import Part
from gateway.windows.build import WindowsRoom


def build(
    section: AdminSection,
    members: MembersRoom,
    windows: WindowsRoom,
    operations: OperationsRoom,
    parts: Sequence[Part[Any]],
) -> Part[Starlette]:
    """`parts`: those whose health and metrics are shown."""
    registry = CollectorRegistry()
    for part in parts:
        for collector in part.collectors:
            registry.register(collector)
    rest = RestParts(
        groups=members.groups,
        windows=windows.windows,
        parked=operations.parked,
        unreadable=operations.unreadable,
        filters=members.key_filters,
        registry=registry,
        lags=operations.lags,
        health=partial(look, parts),
    )
    registry.register(rest.refusals)
    registry.register(rest.health_seen)
    return Part(name="admin", room=rest_app(rest, loopback=is_loopback(section.host)))
