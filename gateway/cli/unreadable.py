"""`keyway group unreadable` and `keyway group skip`: batches too large when decompressed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from gateway.admin.rows import Skipped, UnreadableList, UnreadableRow
from gateway.cli.node_client import ask, ask_all
from gateway.cli.options import (
    DEFAULT_ADMIN,
    AdminOption,
    ExecuteOption,
    Output,
    TopicOption,
    WatchOption,
)
from gateway.cli.tables import View, print_data, print_table, show
from keyway.terminal.exits import end

_COLUMNS = ("TOPIC", "PARTITION", "OFFSET", "LAST-OFFSET", "REASON")


def group_unreadable(
    group: str,
    topic: TopicOption = None,
    watch: WatchOption = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """List the places where the group cannot read on; those with a LAST-OFFSET can be skipped."""

    def look() -> View:
        given = {"group": group, "topic": topic}
        found = ask_all(admin, "/v1/unreadable", UnreadableList, "unreadable", **given)
        return View(found.raw, lambda: _print(found.rows))

    show(look, output, watch)


def _print(rows: Sequence[UnreadableRow]) -> None:
    print_table(
        _COLUMNS,
        [(row.topic, row.partition, row.offset, row.last_offset, row.reason) for row in rows],
    )


def group_skip(
    group: str,
    topic: Annotated[str, typer.Option(help="Topic of the unreadable batch.")],
    partition: Annotated[int, typer.Option(min=0, help="Its partition.")],
    offset: Annotated[int, typer.Option(min=0, help="An offset of the batch.")],
    execute: ExecuteOption = False,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Give a batch up that is too large when decompressed: the group reads on behind it.

    Without --execute it only shows the batch.
    """
    place = f"{topic}-{partition}"
    if execute:
        body = {"group": group, "topic": topic, "partition": partition, "offset": offset}
        answer = ask(admin, "/v1/unreadable/skip", Skipped, method="POST", body=body)
        if output != "table":
            print_data(answer.raw, output)
        else:
            row = answer.row.skipped
            typer.echo(f"skip: offsets {row.offset} to {row.last_offset} of {place}")
        return
    shown = ask_all(admin, "/v1/unreadable", UnreadableList, "unreadable", group=group, topic=topic)
    chosen = [
        row
        for row in shown.rows
        if row.partition == partition
        and row.last_offset is not None
        and row.offset <= offset <= row.last_offset
    ]
    if not chosen:
        end(f"{place}: offset {offset} is in no batch that can be skipped")
    if output != "table":
        rows = [row.model_dump(mode="json") for row in chosen]
        print_data({"dry_run": True, "action": "skip", "unreadable": rows}, output)
        return
    _print(chosen)
    typer.echo("skip: 1 batch; nothing is done without --execute")
