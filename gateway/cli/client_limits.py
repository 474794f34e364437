"""`keyway limit`: what clients may take, and what they have used."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.admin.node_rows import LimitList, LimitRow
from gateway.cli.node_client import ask_all, show_list
from gateway.cli.options import DEFAULT_ADMIN, AdminOption, Output, Watching, WatchOption

app = typer.Typer(help="Limits of clients.", no_args_is_help=True)

_LIMIT = (
    *("RULE", "WHO", "CONNECTIONS", "REQUESTS", "REQUESTS/S", "IN", "IN/S", "OUT", "OUT/S"),
    *("SHARE-SESSIONS", "THROTTLED-MS", "MUTED", "REFUSED", "WAIT-MS", "REACHED"),
)
ReachedOption = Annotated[
    bool, typer.Option("--reached", help="Only accounts that have reached one of their limits.")
]


@app.command("list", cls=Watching)
def limit_list(
    reached: ReachedOption = False,
    watch: WatchOption = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """List the limits of clients, and what each account has used since the start of the node."""
    only = "true" if reached else None
    show_list(
        lambda: ask_all(admin, "/v1/limits", LimitList, "limits", reached=only),
        _LIMIT,
        _limit,
        output,
        watch,
    )


def _limit(row: LimitRow) -> tuple[object, ...]:
    return (
        *(row.rule, row.who, _of(row.connections, row.connections_max)),
        *(row.requests, row.requests_per_s, row.bytes_in, row.bytes_in_per_s),
        *(row.bytes_out, row.bytes_out_per_s, _of(row.share_sessions, row.share_sessions_max)),
        *(row.throttled_ms, row.muted, row.refused, row.wait_ms),
        row.reached,
    )


def _of(used: int, limit: int | None) -> object:
    return used if limit is None else f"{used} of {limit}"
