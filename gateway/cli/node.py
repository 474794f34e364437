"""`keyway topic`, `broker`, `connection`, `health`, `whoami`: the node itself."""

from __future__ import annotations

import time
from functools import partial
from typing import Annotated

import typer

from gateway.admin.node_rows import (
    BrokerList,
    CallerRow,
    ConnectionList,
    ConnectionRow,
    TopicList,
    TopicRow,
)
from gateway.admin.rows import HealthRow
from gateway.cli.node_client import ask, ask_all, show_list
from gateway.cli.options import (
    DEFAULT_ADMIN,
    AdminOption,
    NameFilter,
    Output,
    Watching,
    WatchOption,
)
from gateway.cli.tables import View, age, print_line, show, table_view
from keyway.terminal.exits import Exit

topics = typer.Typer(help="Topics that Key-Shared groups read.", no_args_is_help=True)
brokers = typer.Typer(help="Virtual brokers of the node.", no_args_is_help=True)
connections = typer.Typer(help="Connections of clients.", no_args_is_help=True)

_TOPIC = ("TOPIC", "PARTITIONS", "LEADERLESS", "TOTAL-LAG", "GROUPS")
_BROKER = ("BROKER", "ADDRESS", "UPSTREAM", "STATE", "CONNECTIONS", "PARTITIONS", "REASON")
_CONNECTION = (
    *("ID", "CLIENT-ID", "HOST", "BROKER", "AGE", "BYTES-IN", "BYTES-OUT", "UNANSWERED", "APIS"),
    *("MEMBERS",),
)


@topics.command("list", cls=Watching)
def topic_list(
    name: NameFilter = None,
    watch: WatchOption = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """List the topics that groups read, with the lag of each group."""
    pages = partial(ask_all, admin, "/v1/topics", TopicList, "topics", name=name)
    show_list(pages, _TOPIC, _topic, output, watch)


def _topic(row: TopicRow) -> tuple[object, ...]:
    groups = [f"{group.group} ({'-' if group.lag is None else group.lag})" for group in row.groups]
    return (row.topic, row.partitions, row.leaderless, row.lag, groups)


@brokers.command("list", cls=Watching)
def broker_list(
    state: Annotated[
        str | None, typer.Option(help="Only brokers in this state: up, silent.")
    ] = None,
    watch: WatchOption = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """List the virtual brokers: the address that clients reach, and the broker of upstream."""

    def look() -> View:
        found = ask_all(admin, "/v1/brokers", BrokerList, "brokers", state=state)
        first, clients = (found.raw[name] for name in ("bootstrap", "bootstrap_connections"))
        rows: list[tuple[object, ...]] = []
        if state is None:  # the port of first contact has none
            rows.append(("bootstrap", first, "any", None, clients, None, None))
        rows += [
            (
                *(row.broker, row.address, row.upstream, row.state),
                *(row.connections, row.partitions, row.reason),
            )
            for row in found.rows
        ]
        return table_view(found.raw, _BROKER, rows)

    show(look, output, watch)


@connections.command("list", cls=Watching)
def connection_list(
    client_id: Annotated[
        str | None, typer.Option(help="Only connections whose client id contains this text.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Only connections from this host.")] = None,
    broker: Annotated[
        str | None, typer.Option(help="Only connections to this broker id, or `bootstrap`.")
    ] = None,
    watch: WatchOption = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """List the connections of clients."""
    given = {"client_id": client_id, "host": host, "broker": broker}
    pages = partial(ask_all, admin, "/v1/connections", ConnectionList, "connections", **given)
    show_list(pages, _CONNECTION, _connection, output, watch)


def _connection(row: ConnectionRow) -> tuple[object, ...]:
    seconds = max(0.0, time.time_ns() / 1e9 - row.since_ms / 1e3)
    broker = "bootstrap" if row.broker is None else row.broker
    return (
        *(row.id, row.client_id, f"{row.host}:{row.port}", broker, f"{age(seconds)} s"),
        *(row.bytes_in, row.bytes_out, row.in_flight_requests, row.in_flight, row.members),
    )


def health(
    watch: WatchOption = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Show the health of the node. Exit status 1 if it has a trouble."""
    fine = True

    def look() -> View:
        nonlocal fine
        answer = ask(admin, "/health", HealthRow, also=503)  # it has troubles
        fine = answer.row.status == "up"
        return View(answer.raw, lambda: _print_health(answer.row))

    show(look, output, watch)
    if not fine:
        raise typer.Exit(Exit.REFUSED)


def _print_health(row: HealthRow) -> None:
    print_line(row.status)
    for reason in row.reasons:
        print_line(reason)
    for warning in row.warnings:
        print_line(f"warning: {warning}")


def whoami(admin: AdminOption = DEFAULT_ADMIN, output: Output = "table") -> None:
    """Show the caller: the name, role and groups of the token."""

    def look() -> View:
        answer = ask(admin, "/v1/login", CallerRow)
        caller = answer.row
        columns = ("NAME", "ROLE", "GROUPS", "KEYS")
        row = (caller.name, caller.role, caller.groups, "shown" if caller.keys else "hashes")
        return table_view(answer.raw, columns, [row])

    show(look, output)
