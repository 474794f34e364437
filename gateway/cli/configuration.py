"""`keyway config` and `keyway audit`: the configuration that runs, and the last changes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import partial
from typing import Annotated

import typer

from gateway.admin.node_rows import AuditList, AuditRow, ConfigRow, OptionDifference, ReloadRow
from gateway.cli.node_client import Answer, ask, ask_all, show_list
from gateway.cli.options import (
    DEFAULT_ADMIN,
    AdminOption,
    ExecuteOption,
    Output,
    Watching,
    WatchOption,
)
from gateway.cli.tables import (
    View,
    print_data,
    print_line,
    print_table,
    show,
)
from keyway.terminal.exits import end

app = typer.Typer(help="The configuration of a running node.", no_args_is_help=True)

_DIFFERENCE = ("OPTION", "RUNNING", "FILE", "TAKES-EFFECT")
_AUDIT = (
    *("TIME", "WHO", "ROLE", "ADDRESS", "ACTION", "GROUP", "TOPIC", "PARTITION", "OFFSETS"),
    *("OUTCOME", "COUNT"),
)


@app.command("show")
def config_show(admin: AdminOption = DEFAULT_ADMIN, output: Output = "table") -> None:
    """Show the running configuration as YAML, with stars in place of secrets."""
    answer = _asked(admin)
    print_data(answer.raw["config"], "yaml" if output == "table" else output)


@app.command("diff", cls=Watching)
def config_diff(
    watch: WatchOption = None, admin: AdminOption = DEFAULT_ADMIN, output: Output = "table"
) -> None:
    """Show the options in which the file differs from the configuration that runs."""

    def look() -> View:
        answer = _asked(admin)
        return View(answer.raw["differences"], lambda: _print_differences(answer.row))

    show(look, output, watch)


@app.command("reload")
def config_reload(
    execute: ExecuteOption = False, admin: AdminOption = DEFAULT_ADMIN, output: Output = "table"
) -> None:
    """Take over from the file all that needs no restart. Without --execute it only shows it."""
    if not execute:
        answer = _asked(admin)
        if output != "table":
            print_data({"dry_run": True, "differences": answer.raw["differences"]}, output)
            return
        _print_differences(answer.row)
        typer.echo("nothing is done without --execute")
        return
    done = ask(admin, "/v1/config/reload", ReloadRow, method="POST")
    if output != "table":
        print_data(done.raw, output)
        return
    for option in done.row.reloaded:
        print_line(f"reloaded: {option}")
    for option in done.row.restart:
        print_line(f"needs a restart: {option}")
    if not (done.row.reloaded or done.row.restart):
        print_line("nothing differs")


def _asked(admin: str) -> Answer[ConfigRow]:
    """Ends the command if the file cannot be compared."""
    answer = ask(admin, "/v1/config", ConfigRow)
    if answer.row.problem is not None:
        end(answer.row.problem)
    return answer


def _print_differences(row: ConfigRow) -> None:
    print_table(_DIFFERENCE, [_difference(difference) for difference in row.differences])
    if row.file is None:
        print_line("the node runs with defaults: it has no file")


def _difference(difference: OptionDifference) -> tuple[object, ...]:
    return (
        *(difference.option, json.dumps(difference.running), json.dumps(difference.file)),
        "by a reload" if difference.reload else "by a restart",
    )


def audit(
    who: Annotated[str | None, typer.Option(help="Only changes by this token.")] = None,
    group: Annotated[str | None, typer.Option(help="Only changes of this group.")] = None,
    action: Annotated[str | None, typer.Option(help="Only this action.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Show at most this many.")] = None,
    watch: WatchOption = None,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Show the last changes and refusals, the latest first. The node's log has them all."""
    given = {"who": who, "group": group, "action": action}
    pages = partial(ask_all, admin, "/v1/audit", AuditList, "audit", limit, **given)
    show_list(pages, _AUDIT, _audited, output, watch)


def _audited(row: AuditRow) -> tuple[object, ...]:
    at = datetime.fromtimestamp(row.at_ms / 1_000, UTC)
    return (
        *(f"{at:%Y-%m-%d %H:%M:%S}", row.who, row.role, row.address, row.action, row.group),
        *(row.topic, row.partition, row.offsets or row.target, row.outcome, row.count),
    )
