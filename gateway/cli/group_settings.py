"""`keyway group settings` and `keyway group delete`."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.admin.rows import DeletedGroup, GroupDescription, SettingsRow
from gateway.cli.node_client import Answer, ask, group_path, path_with
from gateway.cli.options import DEFAULT_ADMIN, AdminOption, ExecuteOption, Output
from gateway.cli.tables import counted, print_data, print_table
from keyway.terminal.exits import end

_SETTING = ("SETTING", "VALUE", "FROM", "IN-KAFKA")


def group_settings(
    group: str,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="NAME=VALUE of a setting that Kafka has; may be repeated."),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(help="NAME to remove from Kafka: keyway.yaml counts again. May be repeated."),
    ] = None,
    execute: ExecuteOption = False,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Show the settings of a group and where each comes from, or change those that Kafka has.

    Without --execute nothing is changed.
    """
    values: dict[str, str | None] = dict(_assignment(assignment) for assignment in change or ())
    values |= dict.fromkeys(unset or ())
    path = path_with("/v1/settings", group=group)
    if values and execute:
        _print(ask(admin, path, SettingsRow, method="PUT", body={"values": values}), output)
        return
    answer = ask(admin, path, SettingsRow)
    known = {setting.name: setting for setting in answer.row.settings}
    for name in values:
        if name not in known:
            end(f"{name} is no setting of a group")
        if known[name].kafka_name is None:
            end(f"{name} is set in keyway.yaml: Kafka has no config for it")
    _print(answer, output)
    if values and output == "table":
        asked = ", ".join(
            f"{name} back to keyway.yaml" if value is None else f"{name} to {value}"
            for name, value in values.items()
        )
        typer.echo(f"would set {asked}; nothing is done without --execute")


def group_delete(
    group: str,
    execute: ExecuteOption = False,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Delete a group without members: its positions, the state of parked records, key filters.

    Without --execute it only shows what the group has.
    """
    if execute:
        deleted = ask(admin, group_path(group), DeletedGroup, method="DELETE")
        if output != "table":
            print_data(deleted.raw, output)
        else:
            typer.echo(f"{deleted.row.group} is deleted")
        return
    answer = ask(admin, group_path(group), GroupDescription)
    found = answer.row
    if output != "table":
        print_data({"dry_run": True, "group": answer.raw}, output)
        return
    members = counted(len(found.memberships), "member")
    places = counted(len(found.partitions), "partition")
    parked, behind = _some(found.parked, "parked record"), _some(found.lag, "record")
    typer.echo(
        f"{found.group} has {members} and state of {places}: {parked}, a lag of {behind};"
        " the next member begins where auto_offset_reset says"
    )
    typer.echo("nothing is done without --execute")


def _some(count: int | None, what: str) -> str:
    return f"an unknown number of {what}s" if count is None else counted(count, what)


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"{text!r}: NAME=VALUE is expected")
    return name, value


def _print(answer: Answer[SettingsRow], output: str) -> None:
    if output != "table":
        print_data(answer.raw, output)
        return
    print_table(
        _SETTING,
        [
            (setting.name, setting.value, setting.origin, setting.kafka_name)
            for setting in answer.row.settings
        ],
    )
