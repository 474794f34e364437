"""REST over all nodes: whichever is asked, its answer has the windows of all, and an act reaches
the node that has them.

A route in the tables below is asked of this node and, with the caller's own token, of all others
that live; gateway/core/merging.py puts the answers together. Each node applies the token's role and
groups itself. One that does not answer is named in `unanswered`, and the rest is shown. Positions
and the end of a group are the business of the node that coordinates it: the request goes there.
A request with the header of peers.py is about one node alone, so no question goes round.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gateway.admin.limits import (
    HOT_KEYS_SHOWN,
    KEYS_MAX,
    PAGE_ROWS_MAX,
    PAGE_WINDOWS_MAX,
    REASON_CHARS_MAX,
)
from gateway.admin.operation import Operation
from gateway.admin.peers import NODE_ONLY, Peers, Reply, question_of
from gateway.admin.problems import body_of
from gateway.core import merging, nodes_at_a_glance
from gateway.core.merging import Pages, Row
from gateway.operations.errors import OperationError
from gateway.operations.group_offsets import GroupOffsets
from gateway.upstream.errors import UpstreamError

Endpoint = Callable[[Request], Awaitable[Response]]
Answers = Sequence[Mapping[str, Any]]

_PLACE, _RECORD = ("topic", "partition"), ("topic", "partition", "offset")
_PAGES: Final[Mapping[str, tuple[Pages, int]]] = {
    "/v1/groups": (Pages("groups", ("group",), merging.group), PAGE_ROWS_MAX),
    "/v1/members": (Pages("members", ("member_id",), merging.member), PAGE_ROWS_MAX),
    "/v1/windows": (Pages("windows", _PLACE, merging.window), PAGE_WINDOWS_MAX),
    "/v1/positions": (Pages("positions", _PLACE, merging.window), PAGE_ROWS_MAX),
    "/v1/parked": (Pages("parked", _RECORD, merging.first), PAGE_ROWS_MAX),
    "/v1/unreadable": (Pages("unreadable", _PLACE, merging.first), PAGE_ROWS_MAX),
}
_EVERYWHERE: Final = {
    *(("GET", path) for path in _PAGES),
    ("GET", "/v1/groups/{group}"),
    ("GET", "/v1/keys"),
    ("GET", "/v1/history"),
    ("GET", "/v1/repartitions"),
    ("POST", "/v1/filters/preview"),
    ("POST", "/v1/parked/release"),
    ("GET", "/v1/parked/value"),
    ("POST", "/v1/unreadable/skip"),
}
_AT_COORDINATOR: Final = {("POST", "/v1/positions/seek"), ("DELETE", "/v1/groups/{group}")}
_NOT_HERE: Final = (404, 409)  # no such thing at this node; another one may have it


def about_all(
    operation: Operation, endpoint: Endpoint, peers: Peers | None, offsets: GroupOffsets
) -> Endpoint:
    """`peers` None: the node stands alone."""
    route = (operation.method, operation.path)
    if peers is None:
        return endpoint
    if route in _AT_COORDINATOR:
        return _at_coordinator(endpoint, peers, offsets)
    if route in _EVERYWHERE:
        return _everywhere(operation, endpoint, peers)
    return endpoint


def alone(request: Request, peers: Peers | None) -> bool:
    """Another node asks about this one only. Raises HTTPException if it means a third one."""
    wanted = request.headers.get(NODE_ONLY)
    if wanted is None or peers is None:
        return wanted is not None
    if wanted != peers.owners.node_id:
        raise HTTPException(421, f"this is node {peers.owners.node_id!r}")
    return True


def _at_coordinator(endpoint: Endpoint, peers: Peers, offsets: GroupOffsets) -> Endpoint:
    async def forward(request: Request) -> Response:
        if alone(request, peers):
            return await endpoint(request)
        group = request.path_params.get("group") or request.query_params["group"]
        try:
            broker = await offsets.upstream.coordinator(group)
        except UpstreamError as error:
            raise HTTPException(503, f"upstream: {error}") from error
        owner = peers.owners.routing.owners.get(broker)
        for row in peers.others():
            if row.node.id == owner:
                reply = await peers.ask(row, question_of(request, await body_of(request)))
                return _passed_on(reply)
        return await endpoint(request)

    return forward


def _passed_on(reply: Reply) -> Response:
    """Raises HTTPException."""
    if reply.status == 0:
        what = f"node {reply.node!r}, which has the group, does not answer: {reply.title}"
        raise HTTPException(503, what)
    if reply.status >= 300:
        raise HTTPException(reply.status, f"{reply.title} (node {reply.node!r})")
    return Response(json.dumps(reply.answer), media_type="application/json")


def _everywhere(operation: Operation, endpoint: Endpoint, peers: Peers) -> Endpoint:
    async def ask(request: Request) -> Response:
        if alone(request, peers) or not peers.others():
            return await endpoint(request)
        own = await _own(endpoint, request)
        if isinstance(own, Exception) and _status(own) not in (*_NOT_HERE, 503):
            raise own
        body = await body_of(request) if operation.body is not None else b""
        replies = await peers.ask_all(question_of(request, body))
        answers, unanswered = _sorted(operation, replies)
        if not isinstance(own, Exception):
            answers.insert(0, json.loads(bytes(own.body)))
        elif not answers:
            raise _nowhere(own, replies, unanswered)
        elif _status(own) == 503:
            unanswered.append({"node": peers.owners.node_id, "reason": _text(own)})
        merged = _merged(operation, request, answers)
        if unanswered:
            merged["unanswered"] = unanswered
        return Response(json.dumps(merged), media_type="application/json")

    return ask


def _sorted(operation: Operation, replies: Sequence[Reply]) -> tuple[list[Row], list[Row]]:
    """Answers, and nodes whose part is missing."""
    answers: list[Row] = []
    unanswered: list[Row] = []
    for reply in replies:
        done = 200 <= reply.status < 300
        reason = _fault(operation, reply.answer) if done else reply.title
        if done and not reason:
            answers.append(reply.answer)
        elif reply.status not in _NOT_HERE:
            unanswered.append({"node": reply.node, "reason": reason[:REASON_CHARS_MAX]})
    return answers, unanswered


async def _own(endpoint: Endpoint, request: Request) -> Response | HTTPException | OperationError:
    try:
        return await endpoint(request)
    except (HTTPException, OperationError) as error:
        return error


def _nowhere(
    own: HTTPException | OperationError, replies: Sequence[Reply], unanswered: Sequence[Row]
) -> Exception:
    """The answer when no node has what was asked for. A node that does not answer may have it, so
    that is no 404.
    """
    if unanswered and _status(own) in _NOT_HERE:
        names = "; ".join(f"node {silent['node']!r}: {silent['reason']}" for silent in unanswered)
        return HTTPException(503, f"{_text(own)} at the nodes that answer; {names}")
    refusals = [reply for reply in replies if reply.status == 409]
    if _status(own) == 404 and refusals:
        return HTTPException(409, refusals[0].title)
    return own


def _status(error: Exception) -> int:
    return error.status_code if isinstance(error, HTTPException) else getattr(error, "status", 500)


def _text(error: Exception) -> str:
    return error.detail if isinstance(error, HTTPException) else str(error)


def _fault(operation: Operation, answer: object) -> str:
    """Why an answer cannot be put together with others; "": it can."""
    assert operation.answer is not None
    try:
        operation.answer.model_validate(answer)
    except ValidationError as error:
        return f"its answer has another form: {error.errors()[0]['loc']}"
    return ""


def _merged(operation: Operation, request: Request, answers: Answers) -> Row:
    path = operation.path
    if path in _PAGES:
        pages, most = _PAGES[path]
        return merging.page(pages, answers, _limit(request, most))
    if path == "/v1/groups/{group}":
        return merging.description(answers)
    if path == "/v1/repartitions":
        return merging.repartitions(answers)
    if path == "/v1/history":
        return nodes_at_a_glance.history([dict(answer) for answer in answers])
    if path == "/v1/keys":
        if {"key", "key_base64", "key_hash"} & set(request.query_params):
            return merging.named_keys(answers, _limit(request, KEYS_MAX))
        return merging.hot_keys(answers, _limit(request, HOT_KEYS_SHOWN))
    if path == "/v1/filters/preview":
        return merging.filter_effects(answers)
    if path == "/v1/parked/release":
        return merging.released(answers)
    return dict(answers[0])  # of the one node that has the record


def _limit(request: Request, most: int) -> int:
    """The endpoint has checked it."""
    return int(request.query_params.get("limit", most))
