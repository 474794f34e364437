"""`keyway limit`: what clients may take, and what they have used."""

from __future__ import annotations

import typer

from gateway.admin.node_rows import LimitList, LimitRow
from gateway.cli.node_client import ask_all
from gateway.cli.options import DEFAULT_ADMIN, AdminOption, Output, Watching, WatchOption
from gateway.cli.tables import View, show, table_view

app = typer.Typer(help="Limits of clients.", no_args_is_help=True)

_LIMIT = (
    *("RULE", "WHO", "CONNECTIONS", "REQUESTS", "REQUESTS/S", "IN", "IN/S", "OUT", "OUT/S"),
    *("SHARE-SESSIONS", "THROTTLED-MS", "MUTED", "REFUSED", "WAIT-MS"),
)


@app.command("list", cls=Watching)
def limit_list(
    watch: WatchOption = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """List the limits of clients, and what each account has used since the start of the node."""

    def look() -> View:
        found = ask_all(admin, "/v1/limits", LimitList, "limits")
        return table_view(found.raw, _LIMIT, [_limit(row) for row in found.rows])

    show(look, output, watch)


def _limit(row: LimitRow) -> tuple[object, ...]:
    return (
        *(row.rule, row.who, _of(row.connections, row.connections_max)),
        *(row.requests, row.requests_per_s, row.bytes_in, row.bytes_in_per_s),
        *(row.bytes_out, row.bytes_out_per_s, _of(row.share_sessions, row.share_sessions_max)),
        *(row.throttled_ms, row.muted, row.refused, row.wait_ms),
    )


def _of(used: int, limit: int | None) -> object:
    return used if limit is None else f"{used} of {limit}"
