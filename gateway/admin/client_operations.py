"""The operations of REST on the clients' side of a node (the table is in api.py)."""

from __future__ import annotations

from gateway.admin.limits import PAGE_ROWS_MAX
from gateway.admin.listener_rows import ListenerList
from gateway.admin.node_rows import ConnectionList, LimitList
from gateway.admin.operation import Operation
from gateway.admin.parameters import AFTER_ID, CLIENT_ID, REACHED, rows, text

CLIENT_OPERATIONS = (
    Operation(
        "GET",
        "/v1/connections",
        "The connections of clients, a page at a time.",
        ConnectionList,
        optional=(
            CLIENT_ID,
            text("host", "Only connections from this host."),
            text(
                "broker",
                "Only connections to this broker, or to `bootstrap`.",
                pattern="^([0-9]+|bootstrap)$",
            ),
            AFTER_ID,
            rows(PAGE_ROWS_MAX),
        ),
    ),
    Operation(
        "GET",
        "/v1/limits",
        "The limits of clients, and what they have used, a page at a time.",
        LimitList,
        optional=(REACHED, AFTER_ID, rows(PAGE_ROWS_MAX)),
        whole=True,
    ),
    Operation(
        "GET",
        "/v1/listeners",
        "The listeners of the node: addresses, TLS, who authenticates clients, logins.",
        ListenerList,
        whole=True,
    ),
)
