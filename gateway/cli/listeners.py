"""`keyway listener`: where clients come in, who authenticates them, and what becomes of logins."""

from __future__ import annotations

import typer

from gateway.admin.listener_rows import ACCEPTED, ListenerList, ListenerRow
from gateway.cli.node_client import ask_all, show_list
from gateway.cli.options import DEFAULT_ADMIN, AdminOption, Output, Watching, WatchOption
from gateway.cli.tables import time_text

app = typer.Typer(help="Listeners of the node, and the logins of clients.", no_args_is_help=True)

_LISTENER = (
    *("LISTENER", "BOOTSTRAP", "CONNECTIONS", "CERTIFICATE-ENDS", "HANDSHAKES", "FAILED"),
    *("AUTHENTICATED-BY", "MECHANISMS", "LOGINS", "REFUSED", "SESSIONS-ENDED", "PROBLEMS"),
)


@app.command("list", cls=Watching)
def listener_list(
    watch: WatchOption = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """List the listeners, with the logins that the node has accepted and refused."""
    show_list(
        lambda: ask_all(admin, "/v1/listeners", ListenerList, "listeners"),
        _LISTENER,
        _listener,
        output,
        watch,
    )


def _listener(row: ListenerRow) -> tuple[object, ...]:
    accepted = sum(login.count for login in row.logins if login.outcome == ACCEPTED)
    refused = [
        f"{login.outcome}:{login.count}" for login in row.logins if login.outcome != ACCEPTED
    ]
    ended = [f"{why}:{count}" for why, count in row.sessions_ended.items()]
    return (
        *(row.listener, row.bootstrap, row.connections, time_text(row.expires_ms)),
        *(row.handshakes, row.handshakes_failed, row.authenticated_by, row.mechanisms),
        *(accepted, refused, ended, row.problems),
    )
