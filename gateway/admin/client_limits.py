"""REST of the limits of clients: `GET /v1/limits`."""

from __future__ import annotations

import time

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin.limits import ID_MAX
from gateway.admin.node_rows import LimitList, LimitRow
from gateway.admin.pages import limit_of, number
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
        accounts = server.limits.accounts
        known = accounts.all()
        rows = [
            _row(accounts.rule(account), account, groups.sessions)
            for account in known[after : after + limit]
        ]
        more = after + limit < len(known)
        following = str(after + limit) if more else None
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
    )
