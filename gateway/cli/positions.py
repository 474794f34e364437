"""`keyway group positions` and `keyway group seek`: where a group reads on, and moving it."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from gateway.admin.window_rows import PositionList, SeekResult
from gateway.cli.node_client import ask, ask_all, path_with
from gateway.cli.options import DEFAULT_ADMIN, AdminOption, ExecuteOption, Output, WatchOption
from gateway.cli.tables import View, age, print_data, print_table, show, table_view
from keyway.terminal.exits import end

_POSITION = (
    *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "LAG-SECONDS"),
    *("SETTLED-BEHIND", "STATE"),
)
_MOVE = ("GROUP", "TOPIC", "PARTITION", "OLD-OFFSET", "NEW-OFFSET", "DELTA", "ERROR")


class To(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    SHIFT = "shift"


def group_positions(
    group: str,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    watch: WatchOption = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """List the positions of a group, also of partitions that nobody reads now."""

    def look() -> View:
        given = {"group": group, "topic": topic}
        found = ask_all(admin, "/v1/positions", PositionList, "positions", **given)
        rows = [
            (
                *(group, row.topic, row.partition, row.cursor, row.log_end, row.lag),
                *(age(row.lag_seconds), row.settled, row.state),
            )
            for row in found.rows
        ]
        return table_view(found.raw, _POSITION, rows)

    show(look, output, watch)


def group_seek(
    group: str,
    to: Annotated[
        To | None, typer.Option(help="The place; not with --offset, --timestamp or --shift.")
    ] = None,
    offset: Annotated[int | None, typer.Option(min=0, help="To this offset.")] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(help="To the first record since then: ms since 1970, or ISO 8601 (UTC)."),
    ] = None,
    shift: Annotated[
        int | None, typer.Option(help="By this many offsets; a negative number goes back.")
    ] = None,
    topic: Annotated[str | None, typer.Option(help="Only this topic. Without it: all.")] = None,
    partition: Annotated[
        list[int] | None, typer.Option(min=0, help="Only this partition; may be repeated.")
    ] = None,
    execute: ExecuteOption = False,
    shown: Annotated[
        str | None,
        typer.Option(help="As printed without --execute: the positions must still be those shown."),
    ] = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Move the positions of a group without members. Without --execute it only shows the moves.

    A --shift is executed with the --shown that it has printed, so that it is never made twice. Exit
    status 1 if the group has members, or if a partition cannot be moved.
    """
    if partition and topic is None:
        raise typer.BadParameter("--partition needs --topic")
    place = _place(to, offset, timestamp, shift)
    if execute and "shift" in place and shown is None:
        raise typer.BadParameter("--shift --execute needs --shown, as printed without --execute")
    body: dict[str, Any] = {
        **place,
        **({} if topic is None else {"topic": topic}),
        **({"partitions": partition} if partition else {}),
        **({} if shown is None else {"shown": shown}),
        "execute": execute,
    }
    path = path_with("/v1/positions/seek", group=group)
    answer = ask(admin, path, SeekResult, method="POST", body=body)
    result = answer.row
    if output != "table":
        print_data(answer.raw, output)
    else:
        print_table(
            _MOVE,
            [
                (group, row.topic, row.partition, row.old, row.new, row.delta, row.error)
                for row in result.positions
            ],
        )
        if not result.executed and result.refused is None:
            needed = f" --shown {result.shown}" if "shift" in place else ""
            typer.echo(f"nothing is done without --execute{needed}")
    if result.refused is not None:
        end(result.refused)
    failed = sum(position.error is not None for position in result.positions)
    if failed:
        end(f"{failed} of {len(result.positions)} partitions cannot be moved")


def _place(
    to: To | None, offset: int | None, timestamp: str | None, shift: int | None
) -> dict[str, Any]:
    """The place as fields of SeekBody. Raises BadParameter."""
    values: dict[To, Any] = {To.OFFSET: offset, To.TIMESTAMP: timestamp, To.SHIFT: shift}
    given = [name for name, value in values.items() if value is not None]
    place = given[0] if to is None and len(given) == 1 else to
    if place is None or given not in ([], [place]) or (place in values) != bool(given):
        raise typer.BadParameter(
            "one of: --to earliest, --to latest, --offset N, --timestamp T, --shift N"
        )
    if place is To.TIMESTAMP:
        return {"to": place.value, "timestamp_ms": _milliseconds(str(timestamp))}
    return {"to": place.value, **({place.value: values[place]} if given else {})}


def _milliseconds(text: str) -> int:
    """Raises BadParameter."""
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"--timestamp {text!r}: ms since 1970, or like 2026-01-31T12:00:00"
        ) from None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1_000)
