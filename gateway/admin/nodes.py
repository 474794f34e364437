"""REST of several nodes: `GET /v1/nodes`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin.node_rows import NodeList, NodeRow
from gateway.admin.problems import answered
from gateway.routing.limits import SESSION_MS
from gateway.routing.owners import SharedOwners
from gateway.routing.shared_table import NodeRow as SharedRow


def node_routes(owners: SharedOwners | None) -> list[Route]:
    """None: the node stands alone."""

    async def list_nodes(_: Request) -> Response:
        if owners is None:
            return answered(NodeList(node=None, generation=0, nodes=[]))
        rows = [_row(owners, row) for row in owners.rows]
        return answered(NodeList(node=owners.node_id, generation=owners.generation, nodes=rows))

    return [Route("/v1/nodes", list_nodes, methods=["GET"])]


def _row(owners: SharedOwners, row: SharedRow) -> NodeRow:
    name, routing = row.node.id, owners.routing
    gone = row.alive_ms <= 0
    admin = row.facts.get("admin")
    return NodeRow(
        node=name,
        state="gone" if gone else "leaving" if row.node.leaving else "up",
        admin=None if admin is None else str(admin),
        owns=sorted(broker for broker, owner in routing.owners.items() if owner == name),
        moving=sorted(routing.handing_over(name)),
        heard_ms=max(0, SESSION_MS - row.alive_ms),
    )
