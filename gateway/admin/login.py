"""REST of the caller: `GET` and `POST /v1/login`, `POST /v1/logout`.

A browser logs in with a token and gets a session in a cookie that no script can read and that no
other site's page can make it send. Programs send the token itself with each request.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin.access import Access, address_of, caller_of
from gateway.admin.limits import SESSION_MS
from gateway.admin.node_rows import CallerRow, LoggedOut, LoginBody
from gateway.admin.problems import answered, json_body, validated
from gateway.admin.tokens import ANYBODY, Caller


def login_routes(access: Access) -> list[Route]:
    async def show(request: Request) -> Response:
        return answered(_row(caller_of(request)))

    async def login(request: Request) -> Response:
        body = validated(LoginBody, await json_body(request, set(LoginBody.model_fields)))
        if not access.tokens.required:
            return answered(_row(ANYBODY))
        caller = request.state.caller = access.identify(address_of(request), body.token)
        response = answered(_row(caller))
        response.set_cookie(
            access.cookie,
            access.sessions.open(body.token),
            max_age=SESSION_MS // 1_000,
            httponly=True,
            samesite="strict",
            secure=_encrypted(request),
        )
        return response

    async def logout(request: Request) -> Response:
        cookie = request.cookies.get(access.cookie)
        if cookie is not None:
            request.state.caller = access.sessions.caller(cookie) or request.state.caller
            access.sessions.close(cookie)
        response = answered(LoggedOut(status="logged out"))
        response.delete_cookie(access.cookie, httponly=True, samesite="strict")
        return response

    return [
        Route("/v1/login", show, methods=["GET"]),
        Route("/v1/login", login, methods=["POST"]),
        Route("/v1/logout", logout, methods=["POST"]),
    ]


def _encrypted(request: Request) -> bool:
    """The browser's connection is TLS, here or at a proxy in front. A false header only makes the
    sender's own cookie useless.
    """
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))


def _row(caller: Caller) -> CallerRow:
    return CallerRow(
        name=caller.name,
        role=caller.role.value,
        groups=list(caller.groups),
        keys=caller.keys,
        values=caller.values,
    )
