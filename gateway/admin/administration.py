"""REST of a group's settings and of its end: `GET` and `PUT /v1/settings?group=`, `DELETE
/v1/groups/{group}`.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin.access import group_of
from gateway.admin.problems import answered, json_body, query, validated
from gateway.admin.rows import DeletedGroup, SettingRow, SettingsBody, SettingsRow
from gateway.operations.group_administration import GroupAdministration, Setting


def administration_routes(administration: GroupAdministration) -> list[Route]:
    async def show(request: Request) -> Response:
        group = query(request, "group")
        return answered(_row(group, await administration.effective(group)))

    async def alter(request: Request) -> Response:
        group = query(request, "group")
        body = validated(SettingsBody, await json_body(request, {"values"}))
        return answered(_row(group, await administration.alter(group, body.values)))

    async def delete(request: Request) -> Response:
        group = group_of(request)
        await administration.delete(group)
        return answered(DeletedGroup(group=group, deleted=True))

    return [
        Route("/v1/settings", show, methods=["GET"]),
        Route("/v1/settings", alter, methods=["PUT"]),
        Route("/v1/groups/{group:name}", delete, methods=["DELETE"]),
    ]


def _row(group: str, settings: Sequence[Setting]) -> SettingsRow:
    rows = [
        SettingRow(
            name=setting.name,
            value=setting.value,
            origin=setting.origin,
            kafka_name=setting.kafka_name,
        )
        for setting in settings
    ]
    return SettingsRow(group=group, settings=rows)
