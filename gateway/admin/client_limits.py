"""REST of the limits of clients: `GET /v1/limits`."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin.limits import ID_MAX
from gateway.admin.node_rows import LimitList, LimitRow
from gateway.admin.pages import flag, limit_of, number, page_of
from gateway.admin.problems import answered
from gateway.core.client_limits.account import Account
from gateway.core.client_limits.rules import Per, Rule
from gateway.core.share.sessions import ShareSessions
from gateway.listen.client_limits import sessions_of
from gateway.listen.server import Server
from gateway.members.groups import Groups


def limit_routes(server: Server, groups: Groups) -> list[Route]:
    async def list_limits(request: Request) -> Response:
        limit = limit_of(request)
        after = number(request, "after", 0, ID_MAX, default=0)
        reached = flag(request, "reached")
        rules = server.limits.accounts.rules  # a reload puts others in their place
        known = list(enumerate(server.limits.accounts.all(), 1))

        def kept(place: tuple[int, Account]) -> bool:
            account = place[1]
            return not reached or bool(_reached(rules[account.rule], account, groups.sessions))

        page, more = await page_of(known, after, limit, kept)
        rows = [_row(rules[account.rule], account, groups.sessions) for _, account in page]
        following = str(page[-1][0]) if more else None
        return answered(LimitList(limits=rows, total=len(known), next=following))

    return [Route("/v1/limits", list_limits, methods=["GET"])]


def _row(rule: Rule, account: Account, sessions: ShareSessions) -> LimitRow:
    return LimitRow(
        rule=rule.name,
        per=rule.per.value,
        who=None if rule.per is Per.RULE else account.who,
        connections=len(account.connections),
        connections_max=rule.connections,
        requests=account.requests,
        requests_per_s=rule.requests_per_s,
        bytes_in=account.bytes_in,
        bytes_in_per_s=rule.bytes_in_per_s,
        bytes_out=account.bytes_out,
        bytes_out_per_s=rule.bytes_out_per_s,
        share_sessions=sessions_of(account, sessions.opened_on),
        share_sessions_max=rule.share_sessions,
        throttled_ms=account.throttled_ms,
        muted=account.muted,
        refused=account.refused,
        wait_ms=account.debt_ms(time.monotonic_ns()),
        reached=_reached(rule, account, sessions),
    )


def _reached(rule: Rule, account: Account, sessions: ShareSessions) -> list[str]:
    found = account.waits_for(time.monotonic_ns())
    if rule.connections is not None and len(account.connections) >= rule.connections:
        found.append("connections")
    if rule.share_sessions is not None:
        opened = sessions_of(account, sessions.opened_on)
        found += ["share_sessions"] if opened >= rule.share_sessions else []
    return found
