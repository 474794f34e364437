"""`keyway group parked`, `value` and `release`: records that wait for an operator."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from gateway.admin.rows import ALL, HeaderRow, ParkedList, ParkedRecordRow, Released, ValueRow
from gateway.cli.keys import shown_key
from gateway.cli.node_client import ask, ask_all, end_if_unanswered
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
from gateway.cli.tables import (
    View,
    counted,
    print_data,
    print_line,
    print_lines,
    print_table,
    show,
    time_text,
)
from keyway.terminal.exits import end

_COLUMNS = (
    *("TOPIC", "PARTITION", "OFFSET", "KEY", "KEY-HASH"),
    *("REASON", "DELIVERIES", "BEHIND", "PARKED-AT", "MEMBER-ID"),
)


def group_value(
    group: str,
    topic: Annotated[str, typer.Option(help="Topic of the parked record.")],
    partition: Annotated[int, typer.Option(min=0, help="Its partition.")],
    offset: Annotated[int, typer.Option(min=0, help="Its offset.")],
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Show the value of a parked record; for tokens with `values: true`. The look is audited."""
    place = {"group": group, "topic": topic, "partition": partition, "offset": offset}
    answer = ask(admin, f"/v1/parked/value?{urlencode(place)}", ValueRow)
    if output != "table":
        print_data(answer.raw, output)
        return
    row = answer.row
    masked = f", masked: {', '.join(row.masked)}" if row.masked else ""
    cut = ", cut" if row.cut else ""
    print_line(f"{row.format}, {counted(row.value_bytes, 'byte')}{cut}{masked}")
    if row.problem is not None:
        print_line(row.problem)
    if isinstance(row.value, str):
        print_lines(row.value)
    elif row.value is not None:
        print_lines(json.dumps(row.value, ensure_ascii=False, indent=2))
    elif row.value_base64 is not None:
        print_line(row.value_base64)


class ReleaseAction(StrEnum):
    RETRY = "retry"
    SKIP = "skip"
    DEAD_LETTER = "dead_letter"


ReasonOption = Annotated[
    str | None, typer.Option("--reason", help="Only records parked for this reason: rejected, ...")
]
KeyOption = Annotated[
    str | None,
    typer.Option("--key", help="Only keys that match this glob; for tokens that may see keys."),
]


def group_parked(
    group: str,
    headers: Annotated[
        bool,
        typer.Option("--headers", help="Show their headers, too; for tokens that may see keys."),
    ] = False,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    reason: ReasonOption = None,
    key: KeyOption = None,
    watch: WatchOption = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """List the parked records: those that wait for an operator (policy `block`)."""
    given = {
        "group": group,
        "topic": topic,
        "partition": partition_text(partition),
        "reason": reason,
        "key": key,
        "headers": "true" if headers else None,
    }

    def look() -> View:
        found = ask_all(admin, "/v1/parked", ParkedList, "parked", **given)
        return View(found.raw, lambda: _print_parked(found.rows, headers=headers))

    show(look, output, watch)


def _print_parked(rows: Sequence[ParkedRecordRow], *, headers: bool = False) -> None:
    """With `headers` the records' own times and their headers are the last columns."""
    print_table(
        (*_COLUMNS, "TIME", "HEADERS") if headers else _COLUMNS,
        [
            (
                *(row.topic, row.partition, row.offset, shown_key(row), row.key_hash),
                *(row.reason, row.deliveries, row.behind, time_text(row.since_ms), row.member_id),
                *((time_text(row.timestamp_ms), _headers(row)) if headers else ()),
            )
            for row in rows
        ],
    )


def _headers(row: ParkedRecordRow) -> str | None:
    """NAME=VALUE of each, `...` where there is more; None: there is none, or no record."""
    shown = [f"{header.name}={_value(header)}" for header in row.headers or ()]
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
    action: Annotated[ReleaseAction, typer.Option(help="What to do with the records.")],
    topic: TopicOption = None,
    partition: PartitionOption = None,
    offset: Annotated[
        list[int] | None, typer.Option(min=0, help="Offset of a parked record; may be repeated.")
    ] = None,
    reason: ReasonOption = None,
    key: KeyOption = None,
    every: Annotated[
        bool, typer.Option("--all", help="All parked records that match the other options.")
    ] = False,
    execute: ExecuteOption = False,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Release parked records: deliver them once more, skip them, or write them to the dead letters.

    Those of a whole group, or of a topic, a partition, a reason or keys. Without --execute it only
    shows the records.
    """
    if every == bool(offset):
        raise typer.BadParameter("either --offset or --all")
    if offset and (topic is None or partition is None):
        raise typer.BadParameter("--offset needs --topic and --partition")
    if partition is not None and topic is None:
        raise typer.BadParameter("--partition needs --topic")
    filters = {"topic": topic, "reason": reason, "key": key}
    if execute:
        body = {
            "group": group,
            "partition": partition,
            "offsets": ALL if every else offset,
            "action": action.value,
        }
        body |= {name: value for name, value in filters.items() if value is not None}
        answer = ask(admin, "/v1/parked/release", Released, method="POST", body=body)
        _print_released(answer.raw, answer.row, output)
        return
    shown = ask_all(
        admin,
        "/v1/parked",
        ParkedList,
        "parked",
        group=group,
        partition=partition_text(partition),
        **filters,
    )
    chosen = [row for row in shown.rows if every or row.offset in (offset or ())]
    missing = sorted(set(offset or ()) - {row.offset for row in chosen})
    if missing or not chosen:
        what = f"offset {missing[0]} is not parked" if missing else "nothing is parked"
        place = topic if partition is None else f"{topic}-{partition}"
        end(f"{place or group}: {what}")
    if output != "table":
        rows = [row.model_dump(mode="json") for row in chosen]
        print_data({"dry_run": True, "action": action.value, "parked": rows}, output)
    else:
        _print_parked(chosen)
        typer.echo(
            f"{action.value}: {counted(len(chosen), 'record')}; nothing is done without --execute"
        )
    end_if_unanswered(shown.raw)


def _print_released(raw: dict[str, Any], released: Released, output: str) -> None:
    """Ends with status 1 if some partitions failed, or a node did not answer."""
    failed = [partition for partition in released.partitions if partition.failed is not None]
    if output != "table":
        print_data(raw, output)
    else:
        done = [
            f"{partition.topic}-{partition.partition}"
            for partition in released.partitions
            if partition.failed is None
        ]
        places = done[0] if len(done) == 1 else counted(len(done), "partition")
        typer.echo(f"{released.action.value}: {counted(released.records, 'record')} of {places}")
    if failed:
        first = failed[0]
        more = f" (and {counted(len(failed) - 1, 'more partition')})" if failed[1:] else ""
        end(f"{first.topic}-{first.partition} was left as it is: {first.failed}{more}")
    end_if_unanswered(raw)
