"""The guard in front of every route: the caller, its permissions, and the audit.

A route names the role it takes, in the table of api.py; a route without one is open to all. The
caller is the owner of the token in `Authorization: Bearer`, or of the token that the session in the
cookie was opened with. Without configured tokens, everybody (REST is then on loopback).

A token may be for some groups only. Others are to it as groups that do not exist: left out of
lists, and otherwise 404. It gets 403 where an answer speaks of the node as a whole.

A browser sends the cookie by itself, so a change with it, or without any token, must come from a
page of this node (`Sec-Fetch-Site`, or else `Origin`): the cookie's SameSite=Strict would do, but
does not cover another port of the same host.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gateway.admin.audit import Audit, Subject
from gateway.admin.failed_logins import FailedLogins
from gateway.admin.operation import Operation
from gateway.admin.peers import NODE_ONLY
from gateway.admin.problems import only_parameters, query
from gateway.admin.tokens import ANYBODY, Caller, LoginSessions, Token, Tokens, sha256_of
from gateway.operations.errors import OperationError

Endpoint = Callable[[Request], Awaitable[Response]]

_REALM = {"WWW-Authenticate": 'Bearer realm="keyway"'}


class Refused(HTTPException):
    """The caller may not do this; the request itself has no error."""


def unknown_group(name: str) -> HTTPException:
    """The same for a group that is not there and for one that the caller may not see."""
    return HTTPException(404, f"no group {name!r}")


def caller_of(request: Request) -> Caller:
    """Set by the guard."""
    caller: Caller = request.state.caller
    return caller


def concerns(request: Request, **facts: str | int | bool | None) -> None:
    """Facts of the request for its line in the audit, as fields of Subject."""
    request.state.subject = replace(request.state.subject, **facts)


def require_keys(request: Request, what: str) -> None:
    """Checks that the caller may see keys and headers, which the answer names. Raises Refused."""
    caller = caller_of(request)
    if not caller.keys:
        who = "without a token" if caller.name is None else f"token {caller.name} may not see them"
        raise Refused(403, f"{what} are for those who may see keys of records: {who}")


def require_group(request: Request, group: str) -> None:
    """Checks that the caller may use a group that the body names. Raises Refused."""
    concerns(request, group=group)
    if not caller_of(request).sees(group):
        unknown = unknown_group(group)
        raise Refused(unknown.status_code, unknown.detail)


@dataclass(frozen=True, slots=True)
class Access:
    tokens: Tokens
    sessions: LoginSessions
    failed: FailedLogins
    audit: Audit
    cookie: str = "keyway_9180"  # by port: browsers do not tell the ports of a host apart

    def guarded(self, operation: Operation, endpoint: Endpoint) -> Endpoint:
        """`endpoint`, for callers who may use it; every change and every refusal is audited."""
        action = operation.action or f"{operation.method} {operation.path}"
        parameters = [parameter.name for parameter in (*operation.query, *operation.optional)]

        async def guard(request: Request) -> Response:
            request.state.subject = Subject()
            request.state.caller = request.state.token = None
            try:
                self._admit(request, operation)
                if not operation.any_query:
                    only_parameters(request, parameters)
                response = await endpoint(request)
            except (HTTPException, OperationError) as error:
                if _elsewhere(request, error):
                    raise  # the records are at another node: the one that was asked notes the act
                if operation.action is not None or isinstance(error, Refused):
                    self._note(request, action, _outcome(error))
                raise
            except Exception:
                if operation.action is not None:
                    self._note(request, action, "failed")
                raise
            if operation.action is not None and not request.state.subject.dry_run:
                self._note(request, action, "done")
            response.headers.setdefault("Cache-Control", "no-store")
            return response

        return guard

    def identify(self, address: str, token: str) -> Caller:
        """The owner of a token. Raises Refused."""
        caller = self.tokens.caller(bytes.fromhex(sha256_of(token)))
        if caller is not None:
            return caller
        wait_s = self.failed.note(address)
        if wait_s:
            headers = {"Retry-After": str(wait_s)}
            raise Refused(429, f"too many failed logins: wait {wait_s} s", headers=headers)
        raise Refused(401, "no such token", headers=_REALM)

    def _note(self, request: Request, action: str, outcome: str) -> None:
        state = request.state
        self.audit.note(state.caller, address_of(request), action, state.subject, outcome)

    def _admit(self, request: Request, operation: Operation) -> None:
        """Raises HTTPException; Refused if it is the caller that may not."""
        if operation.action is not None and "authorization" not in request.headers:
            self._require_same_origin(request)
        if operation.role is None:
            request.state.caller = None if self.tokens.required else ANYBODY
            return
        caller = request.state.caller = self._caller(request)
        if not caller.role.includes(operation.role):
            raise Refused(
                403, f"this takes the role {operation.role}; token {caller.name} is {caller.role}"
            )
        if operation.whole and not caller.sees_all:
            raise Refused(403, f"this takes a token for all groups; {caller.name} is for some only")
        if operation.values and not caller.values:
            who = "without a token" if caller.name is None else f"{caller.name} has no such entry"
            raise Refused(403, f"values are for tokens with `values: true`: {who}")
        if operation.of_group:
            require_group(request, group_of(request))

    def _caller(self, request: Request) -> Caller:
        """Raises Refused."""
        if not self.tokens.required:
            return ANYBODY
        shown = request.headers.get("authorization")
        if shown is not None:
            scheme, _, token = shown.partition(" ")
            if scheme.lower() != "bearer":
                raise Refused(401, "Authorization: Bearer TOKEN is expected", headers=_REALM)
            text = token.strip()
            owner = self.identify(address_of(request), text)
            request.state.token = Token(str(owner.name), text)
            return owner
        cookie = request.cookies.get(self.cookie)
        caller = None if cookie is None else self.sessions.caller(cookie)
        if caller is None:
            raise Refused(401, "a token is needed: Authorization: Bearer TOKEN", headers=_REALM)
        opened = self.sessions.token(str(cookie))
        request.state.token = None if opened is None else Token(str(caller.name), opened)
        return caller

    def _require_same_origin(self, request: Request) -> None:
        """Raises Refused. Browsers send at least one of the two headers with a change; a program
        that is no browser sends neither, and has no cookie.
        """
        site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
        if site is not None:
            same = site == "same-origin"
        elif origin is not None:
            same = _names(origin, request.headers.get("host", ""))
        else:
            same = self.cookie not in request.cookies
        if not same:
            raise Refused(403, "a page of another origin may not change anything here")


def address_of(request: Request) -> str:
    return "" if request.client is None else request.client.host


def group_of(request: Request) -> str:
    """The group in the path, or else in the query. Raises HTTPException."""
    in_path: str | None = request.path_params.get("group")
    return query(request, "group") if in_path is None else in_path


def _elsewhere(request: Request, error: Exception) -> bool:
    """Another node asked all, and this one does not have what the act is about."""
    missing = isinstance(error, OperationError) and error.status in (404, 409)
    return missing and NODE_ONLY in request.headers


def _outcome(error: HTTPException | OperationError) -> str:
    """The audit gets the status of an HTTPException alone: its text may be the caller's."""
    if isinstance(error, HTTPException):
        return f"refused: {error.status_code}"
    return f"{'refused' if error.status < 500 else 'failed'}: {error.status} {error}"


def _names(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False
