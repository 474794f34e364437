"""REST of several nodes: `GET /v1/nodes`, and an operator's orders, `POST /v1/nodes/drain`,
`/v1/nodes/undrain`, `/v1/nodes/move`.

Any node takes an order: it is stored in the Redis that all share when the answer leaves, and the
owners hand over within their next beats. `GET /v1/nodes` shows how far they are.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin.access import concerns
from gateway.admin.limits import NONCE_CHARS_MAX
from gateway.admin.node_rows import MoveBody, NodeBody, NodeList, NodeProof, NodeRow
from gateway.admin.peers import PROOF, proof
from gateway.admin.problems import answered, json_body, validated
from gateway.admin.tokens import Tokens
from gateway.core.routing.orders import OrderRefused, UnknownBroker, UnknownNode
from gateway.routing.limits import SESSION_MS
from gateway.routing.metrics import ADOPTED
from gateway.routing.owners import SharedOwners
from gateway.routing.shared_table import NodeRow as SharedRow
from gateway.routing.shared_table import RoutingUnavailable


def node_routes(owners: SharedOwners | None, tokens: Tokens) -> list[Route]:
    """None: the node stands alone."""

    async def list_nodes(_: Request) -> Response:
        return answered(_list(owners))

    async def drain(request: Request) -> Response:
        node = await _named(request)
        shared = _several(owners)
        await _order(shared.drain(node))
        return answered(_list(shared))

    async def undrain(request: Request) -> Response:
        node = await _named(request)
        shared = _several(owners)
        await _order(shared.undrain(node))
        return answered(_list(shared))

    async def move(request: Request) -> Response:
        body = validated(MoveBody, await json_body(request, set(MoveBody.model_fields)))
        concerns(request, target=f"{body.broker} to {body.node or 'any'}")
        shared = _several(owners)
        await _order(shared.move(body.broker, body.node))
        return answered(_list(shared))

    async def prove(request: Request) -> Response:
        shared = _several(owners)
        nonce = request.query_params.get("nonce", "")
        if not 16 <= len(nonce) <= NONCE_CHARS_MAX:
            raise HTTPException(400, f"nonce: 16 to {NONCE_CHARS_MAX} characters are expected")
        name, key = request.query_params.get("caller"), b""
        if tokens.required or name is not None:
            # Of a name that is not known: a proof that nobody can check.
            key = tokens.sha256_of(name or "") or secrets.token_bytes(32)
        node, incarnation = shared.identity
        address = next((row.facts["admin"] for row in shared.rows if row.node.id == node), "")
        return answered(NodeProof(node=node, proof=proof(key, node, incarnation, address, nonce)))

    return [
        Route(PROOF, prove, methods=["GET"]),
        Route("/v1/nodes", list_nodes, methods=["GET"]),
        Route("/v1/nodes/drain", drain, methods=["POST"]),
        Route("/v1/nodes/undrain", undrain, methods=["POST"]),
        Route("/v1/nodes/move", move, methods=["POST"]),
    ]


async def _named(request: Request) -> str:
    """Raises HTTPException."""
    body = validated(NodeBody, await json_body(request, set(NodeBody.model_fields)))
    concerns(request, target=body.node)
    return body.node


def _several(owners: SharedOwners | None) -> SharedOwners:
    """Raises HTTPException."""
    if owners is None:
        raise HTTPException(409, "this node stands alone: it has no nodes.id")
    return owners


async def _order(order: Awaitable[None]) -> None:
    """Raises HTTPException."""
    try:
        await order
    except (UnknownNode, UnknownBroker) as unknown:
        raise HTTPException(404, str(unknown)) from unknown
    except OrderRefused as refused:
        raise HTTPException(409, str(refused)) from refused
    except RoutingUnavailable as away:
        raise HTTPException(503, f"the order is not confirmed: {away}") from away


def _list(owners: SharedOwners | None) -> NodeList:
    if owners is None:
        return NodeList(node=None, generation=0, nodes=[])
    rows = [_row(owners, row) for row in owners.rows]
    return NodeList(node=owners.node_id, generation=owners.generation, nodes=rows)


def _row(owners: SharedOwners, row: SharedRow) -> NodeRow:
    name, routing = row.node.id, owners.routing
    gone = row.alive_ms <= 0
    admin, adopted = row.facts.get("admin"), row.facts.get(ADOPTED)
    return NodeRow(
        node=name,
        state="gone" if gone else "leaving" if row.node.leaving else "up",
        admin=None if admin is None else str(admin),
        owns=sorted(broker for broker, owner in routing.owners.items() if owner == name),
        moving=sorted(routing.handing_over(name)),
        heard_ms=max(0, SESSION_MS - row.alive_ms),
        drained=name in routing.drained,
        placed=sorted(broker for broker, at in routing.placed.items() if at == name),
        adopted=adopted if isinstance(adopted, int) else None,
    )
