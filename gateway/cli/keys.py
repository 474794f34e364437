"""`keyway member`, `keyway window`, `keyway key`: the members of a group, and its records."""

from __future__ import annotations

import time
from functools import partial
from typing import Annotated

import typer

from gateway.admin.node_rows import MemberList, MemberRow
from gateway.admin.rows import KeyNames
from gateway.admin.window_rows import KeyList, KeyRow, WindowList, WindowRow
from gateway.cli.node_client import ask_all, show_list
from gateway.cli.options import (
    DEFAULT_ADMIN,
    AdminOption,
    Output,
    PartitionOption,
    TopicOption,
    Watching,
    WatchOption,
    partition_text,
)
from gateway.cli.tables import age

members = typer.Typer(help="Members of a group.", no_args_is_help=True)
windows = typer.Typer(help="Windows of a group: its unsettled records.", no_args_is_help=True)
keys = typer.Typer(help="Keys of a group: their owners and states.", no_args_is_help=True)

_MEMBER = (
    *("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "SHARE", "READY-KEYS", "IN-FLIGHT"),
    *("DRAINING-KEYS", "SILENT", "CONNECTIONS", "HEARTBEAT", "TOPICS"),
)
_WINDOW = (
    *("TOPIC", "PARTITION", "STATE", "LEADER", "CURRENT-OFFSET", "READ-OFFSET", "LOG-END-OFFSET"),
    *("LAG", "SPAN-MAX", "SETTLED", "READY", "IN-FLIGHT", "BACKING-OFF", "DEAD-LETTERING"),
    *("PARKED",),
)
_KEY = (
    *("TOPIC", "PARTITION", "KEY", "KEY-HASH", "STATE", "OWNER", "HOLDER", "RECORDS"),
    *("IN-FLIGHT", "FIRST-OFFSET", "ATTEMPTS", "REASON"),
)


@members.command("list", cls=Watching)
def member_list(
    group: str,
    client_id: Annotated[
        str | None, typer.Option(help="Only members whose client id contains this text.")
    ] = None,
    watch: WatchOption = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """List the members of a group. SHARE is a member's part of all key hashes, SILENT the number
    of partitions where it fetches nothing, so that other members have its keys.
    """
    given = {"group": group, "client_id": client_id}
    pages = partial(ask_all, admin, "/v1/members", MemberList, "members", **given)
    show_list(pages, _MEMBER, _member, output, watch)


def _member(row: MemberRow) -> tuple[object, ...]:
    share = None if row.share is None else f"{row.share:.1%}"
    ago_s = max(0.0, time.time_ns() / 1e9 - row.last_heartbeat_ms / 1e3)
    return (
        *(row.group, row.member_id, row.host, row.client_id, share, row.ready_keys),
        *(row.in_flight, row.draining_keys, row.silent_partitions, row.connections),
        *(f"{age(ago_s)} s ago", row.topics),
    )


@windows.command("list", cls=Watching)
def window_list(
    group: str,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    state: Annotated[
        str | None, typer.Option(help="Only windows of this state: up, loading, idle.")
    ] = None,
    watch: WatchOption = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """List the windows of a group: offsets of each by their state."""
    place = {"topic": topic, "partition": partition_text(partition)}
    given = {"group": group, **place, "state": state}
    if output == "table":
        given["runs"] = "1"  # the pictures are not shown
    pages = partial(ask_all, admin, "/v1/windows", WindowList, "windows", **given)
    show_list(pages, _WINDOW, _window, output, watch)


def _window(row: WindowRow) -> tuple[object, ...]:
    return (
        *(row.topic, row.partition, row.state, row.leader, row.cursor, row.read_position),
        *(row.log_end, row.lag, row.span_max, row.settled, row.ready, row.in_flight),
        *(row.backing_off, row.dead_lettering, row.parked),
    )


@keys.command("list", cls=Watching)
def key_list(
    group: str,
    topic: TopicOption = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Show at most this many.")] = None,
    watch: WatchOption = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """List the hot keys of a group: those with the most unsettled records."""
    given = {"group": group, "topic": topic, "limit": None if limit is None else str(limit)}
    pages = partial(ask_all, admin, "/v1/keys", KeyList, "keys", **given)  # one page
    show_list(pages, _KEY, _key, output, watch)


@keys.command("show", cls=Watching)
def key_show(
    group: str,
    key: Annotated[str, typer.Argument(help="The key as text.")],
    base64: Annotated[bool, typer.Option("--base64", help="KEY is base64.")] = False,
    key_hash: Annotated[bool, typer.Option("--hash", help="KEY is a KEY-HASH.")] = False,
    topic: TopicOption = None,
    watch: WatchOption = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Show one key of a group: its partition, owner, holder, state and attempts."""
    if base64 and key_hash:
        raise typer.BadParameter("--base64 or --hash, not both")
    name = "key_base64" if base64 else "key_hash" if key_hash else "key"
    given = {"group": group, "topic": topic, name: key}
    pages = partial(ask_all, admin, "/v1/keys", KeyList, "keys", **given)
    show_list(pages, _KEY, _key, output, watch)


def _key(row: KeyRow) -> tuple[object, ...]:
    return (
        *(row.topic, row.partition, shown_key(row), row.key_hash, row.state, row.owner),
        *(row.holder, row.records, row.in_flight, row.first_offset, row.attempts, row.reason),
    )


def shown_key(row: KeyNames) -> str | None:
    """None: the caller may not see it, or the record has none."""
    return row.key_base64 if row.key is None else row.key
