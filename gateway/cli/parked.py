"""`keyway group parked` and `keyway group release`: records that wait for an operator."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from gateway.admin.rows import ALL, HeaderRow, ParkedList, ParkedRecordRow, Released
from gateway.cli.keys import shown_key
from gateway.cli.node_client import ask, ask_all
from gateway.cli.options import (
    DEFAULT_ADMIN,
    AdminOption,
    ExecuteOption,
    Output,
    PartitionOption,
    TopicOption,
    WatchOption,
    partition_text,
)
from gateway.cli.tables import View, counted, end, print_data, print_table, show

_COLUMNS = (
    *("TOPIC", "PARTITION", "OFFSET", "KEY", "KEY-HASH"),
    *("REASON", "DELIVERIES", "MEMBER-ID"),
)


class ReleaseAction(StrEnum):
    RETRY = "retry"
    SKIP = "skip"
    DEAD_LETTER = "dead_letter"


def group_parked(
    group: str,
    headers: Annotated[
        bool,
        typer.Option("--headers", help="Show their headers, too; for tokens that may see keys."),
    ] = False,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    watch: WatchOption = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """List the parked records: those that wait for an operator (policy `block`)."""
    given = {
        "group": group,
        "topic": topic,
        "partition": partition_text(partition),
        "headers": "true" if headers else None,
    }

    def look() -> View:
        found = ask_all(admin, "/v1/parked", ParkedList, "parked", **given)
        return View(found.raw, lambda: _print_parked(found.rows, headers=headers))

    show(look, output, watch)


def _print_parked(rows: Sequence[ParkedRecordRow], *, headers: bool = False) -> None:
    """With `headers` they are the last column."""
    print_table(
        (*_COLUMNS, "HEADERS") if headers else _COLUMNS,
        [
            (
                *(it.topic, it.partition, it.offset, shown_key(it), it.key_hash),
                *(it.reason, it.deliveries, it.member_id),
                *((_headers(it),) if headers else ()),
            )
            for it in rows
        ],
    )


def _headers(row: ParkedRecordRow) -> str | None:
    """NAME=VALUE of each, `...` where there is more; None: there is none, or no record."""
    shown = [f"{it.name}={_value(it)}" for it in row.headers or ()]
    if row.headers_count is not None and row.headers_count > len(shown):
        shown.append(f"... ({row.headers_count} headers)")
    return ", ".join(shown) or None


def _value(header: HeaderRow) -> str:
    size = header.value_bytes
    if size is None:
        return "null"
    if header.value is not None:
        text, there = header.value, len(header.value.encode())
    else:
        text, there = f"base64:{header.value_base64}", len(b64decode(header.value_base64 or ""))
    return text if there == size else f"{text}... ({size} bytes)"


def group_release(
    group: str,
    topic: Annotated[str, typer.Option(help="Topic of the parked records.")],
    partition: Annotated[int, typer.Option(min=0, help="Its partition.")],
    action: Annotated[ReleaseAction, typer.Option(help="The end of the records.")],
    offset: Annotated[
        list[int] | None, typer.Option(min=0, help="Offset of a parked record; may be repeated.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All parked records of the partition.")
    ] = False,
    execute: ExecuteOption = False,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Release parked records: deliver them once more, skip them, or write them to the dead letters.

    Without --execute it only shows the records.
    """
    if every == bool(offset):
        raise typer.BadParameter("either --offset or --all")
    if execute:
        body = {
            "group": group,
            "topic": topic,
            "partition": partition,
            "offsets": ALL if every else offset,
            "action": action.value,
        }
        answer = ask(admin, "/v1/parked/release", Released, method="POST", body=body)
        if output != "table":
            print_data(answer.raw, output)
        else:
            released = counted(len(answer.row.offsets), "record")
            typer.echo(f"{action.value}: {released} of {topic}-{partition}")
        return
    shown = ask_all(admin, "/v1/parked", ParkedList, "parked", group=group, topic=topic)
    chosen = [
        row
        for row in shown.rows
        if row.partition == partition and (every or row.offset in (offset or ()))
    ]
    missing = sorted(set(offset or ()) - {row.offset for row in chosen})
    if missing or not chosen:
        what = f"offset {missing[0]} is not parked" if missing else "nothing is parked"
        end(f"{topic}-{partition}: {what}")
    if output != "table":
        rows = [row.model_dump(mode="json") for row in chosen]
        print_data({"dry_run": True, "action": action.value, "parked": rows}, output)
        return
    _print_parked(chosen)
    typer.echo(
        f"{action.value}: {counted(len(chosen), 'record')}; nothing is done without --execute"
    )
