"""REST of key filters: GET, PUT and DELETE `/v1/filters?group=`.

PUT replaces all rules of the group, those of keyway.yaml included; DELETE goes back to those. A
change is kept in Redis before it is answered, and takes effect at once: keys in flight are settled
where they are, all others go to members that accept them now.
"""

from __future__ import annotations

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin.problems import answered, json_body, query
from gateway.admin.rows import KeyFilterRules
from gateway.config import FilterRule
from gateway.members.groups import Groups
from gateway.members.key_filters import (
    InvalidRules,
    KeyFilters,
    TooManyRules,
    digest,
    parse_rules,
)
from gateway.members.redis_table import TableUnavailable

log = structlog.get_logger("keyway.admin")


def filter_routes(filters: KeyFilters, groups: Groups) -> list[Route]:
    def answer(group: str) -> Response:
        rules = filters.rules(group)
        return answered(KeyFilterRules(group=group, source=rules.source, rules=list(rules.rules)))

    async def get(request: Request) -> Response:
        return answer(query(request, "group"))

    async def put(request: Request) -> Response:
        group = query(request, "group")
        rules = await _rules(request)
        try:
            await filters.put(group, rules)
        except TooManyRules as full:
            raise HTTPException(409, str(full)) from full
        except TableUnavailable as error:
            raise HTTPException(503, f"Redis: {error}") from error
        return changed(group, rules=len(rules), digest=digest(rules))

    async def remove(request: Request) -> Response:
        group = query(request, "group")
        try:
            await filters.remove(group)
        except TableUnavailable as error:
            raise HTTPException(503, f"Redis: {error}") from error
        return changed(group, rules=None)

    def changed(group: str, **facts: int | str | None) -> Response:
        groups.filters_changed(group)
        log.info("key_filters_set", group=group, **facts)
        return answer(group)

    return [
        Route("/v1/filters", get, methods=["GET"]),
        Route("/v1/filters", put, methods=["PUT"]),
        Route("/v1/filters", remove, methods=["DELETE"]),
    ]


async def _rules(request: Request) -> tuple[FilterRule, ...]:
    """Raises HTTPException."""
    try:
        return parse_rules((await json_body(request, {"rules"}))["rules"])
    except InvalidRules as invalid:
        raise HTTPException(400, str(invalid)) from invalid
