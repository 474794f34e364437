"""REST of key filters: GET, PUT and DELETE `/v1/filters?group=`, POST `/v1/filters/preview`.

PUT replaces all rules of the group, those of keyway.yaml included; DELETE goes back to those. A
change is kept in Redis before it is answered, and takes effect at once: keys in flight are settled
where they are, all others go to members that accept them now. The preview counts the keys that
would move.
"""

from __future__ import annotations

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin.problems import answered, json_body, query, validated
from gateway.admin.rows import FilterChange, FilterPreview, KeyFilterRules, MemberGlobs, MovedKeys
from gateway.config.groups import FilterRule
from gateway.members.groups import Groups
from gateway.members.key_filters import (
    InvalidRules,
    KeyFilters,
    TooManyRules,
    digest,
    parse_rules,
)
from gateway.members.redis_table import TableUnavailable
from gateway.operations.filter_effect import FilterEffects

log = structlog.get_logger("keyway.admin")


def filter_routes(filters: KeyFilters, groups: Groups, effects: FilterEffects) -> list[Route]:
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

    async def preview(request: Request) -> Response:
        group = query(request, "group")
        body = validated(FilterChange, await json_body(request, set(FilterChange.model_fields)))
        effect = await effects.of(group, None if body.rules is None else _parsed(body.rules))
        members = [
            MemberGlobs(
                member_id=member.member_id,
                client_id=member.client_id,
                before=[_text(glob) for glob in member.before],
                after=[_text(glob) for glob in member.after],
            )
            for member in effect.members
        ]
        keys = MovedKeys(known=effect.known, moved=effect.moved, dropped=effect.dropped)
        return answered(FilterPreview(group=group, members=members, keys=keys))

    def changed(group: str, **facts: int | str | None) -> Response:
        groups.filters_changed(group)
        log.info("key_filters_set", group=group, **facts)
        return answer(group)

    return [
        Route("/v1/filters", get, methods=["GET"]),
        Route("/v1/filters", put, methods=["PUT"]),
        Route("/v1/filters", remove, methods=["DELETE"]),
        Route("/v1/filters/preview", preview, methods=["POST"]),
    ]


async def _rules(request: Request) -> tuple[FilterRule, ...]:
    """Raises HTTPException."""
    return _parsed((await json_body(request, {"rules"}))["rules"])


def _text(glob: bytes) -> str:
    return glob.decode("utf-8", "backslashreplace")


def _parsed(rows: object) -> tuple[FilterRule, ...]:
    """Raises HTTPException."""
    try:
        return parse_rules(rows)
    except InvalidRules as invalid:
        raise HTTPException(400, str(invalid)) from invalid
