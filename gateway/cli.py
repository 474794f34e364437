"""The `keyway` command: serve, demo, group list|describe, --version."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from gateway import config as configuration
from gateway.logs import LogFormat, configure

app = typer.Typer(
    name="keyway",
    help="A Kafka-protocol gateway: key-shared groups for stock share consumers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
group_app = typer.Typer(help="Key-shared groups of a running node.", no_args_is_help=True)
app.add_typer(group_app, name="group")

DEFAULT_ADMIN = "http://127.0.0.1:9180"
AdminOption = Annotated[str, typer.Option("--admin", help="Address of the node's REST.")]
OutputOption = Annotated[str, typer.Option("-o", "--output", help="table or json.")]


def _version(*, wanted: bool) -> None:
    if wanted:
        from gateway.compiled import version_line  # keeps `keyway --help` quick

        typer.echo(version_line())
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=lambda wanted: _version(wanted=wanted),
            is_eager=True,
            help="Show the version and whether the hot modules are compiled.",
        ),
    ] = False,
) -> None:
    """Options of every command."""


@app.command()
def serve(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="keyway.yaml; without it, all defaults.")
    ] = None,
    upstream: Annotated[
        str | None, typer.Option(help="Kafka to stand in front of: host:port[,host:port].")
    ] = None,
    log_format: Annotated[LogFormat, typer.Option(help="text or json.")] = "text",
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run a gateway node until SIGTERM or SIGINT."""
    from gateway.app import StartError, run

    try:
        settings = configuration.load(config, upstream=upstream)
        configure(log_format, log_level)
        run(settings)
    except (configuration.ConfigError, StartError) as error:
        typer.echo(f"keyway: {error}", err=True)
        raise typer.Exit(2) from error


@app.command()
def demo(
    keep: Annotated[bool, typer.Option(help="Leave it running and print the addresses.")] = False,
) -> None:
    """Run the whole thing on this machine: a real Kafka, 336,776 flights, three share consumers,
    Spark.
    """
    from gateway.demo.run import run_demo

    raise typer.Exit(run_demo(keep=keep))


@group_app.command("list")
def group_list(admin: AdminOption = DEFAULT_ADMIN, output: OutputOption = "table") -> None:
    """List the groups of the node."""
    answer = _get(admin, "/v1/groups")
    if output == "json":
        typer.echo(json.dumps(answer, indent=2))
        return
    table = Table("GROUP", "STATE", "MEMBERS", "TOPICS", "WINDOWS", box=None)
    for row in answer["groups"]:
        table.add_row(
            row["group"],
            row["state"],
            str(row["members"]),
            ",".join(row["topics"]),
            str(row["windows"]),
        )
    Console().print(table)


@group_app.command("describe")
def group_describe(
    group: str, admin: AdminOption = DEFAULT_ADMIN, output: OutputOption = "table"
) -> None:
    """Show the members and windows of one group."""
    answer = _get(admin, f"/v1/groups/{urllib.parse.quote(group, safe='')}")
    if output == "json":
        typer.echo(json.dumps(answer, indent=2))
        return
    console = Console()
    console.print(f"group {answer['group']}  state {answer['state']}  epoch {answer['epoch']}")
    members = Table("MEMBER-ID", "CLIENT-ID", "HOST", "EPOCH", "TOPICS", box=None)
    for row in answer["memberships"]:
        members.add_row(
            row["member_id"],
            row["client_id"],
            row["host"],
            str(row["epoch"]),
            ",".join(row["topics"]),
        )
    console.print(members)
    windows = Table(
        "TOPIC",
        "PARTITION",
        "STATE",
        "CURSOR",
        "READ",
        "UNSETTLED",
        "IN-FLIGHT",
        "BACKING-OFF",
        "PARKED",
        box=None,
    )
    figures = (
        "partition",
        "state",
        "cursor",
        "read_position",
        "unsettled",
        "in_flight",
        "backing_off",
    )
    for row in answer["partitions"]:
        shown = [str(row.get(name, "-")) for name in figures]
        windows.add_row(row["topic"], *shown, str(len(row.get("parked", ()))))
    console.print(windows)


def _get(admin: str, path: str) -> Any:  # noqa: ANN401 - whatever JSON the node answers
    try:
        # The operator's own address, whatever its scheme.
        with urllib.request.urlopen(admin.rstrip("/") + path, timeout=10) as response:  # noqa: S310
            return json.load(response)
    except urllib.error.HTTPError as error:
        problem = json.loads(error.read() or b"{}")
        typer.echo(f"keyway: {problem.get('title', error.reason)}", err=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        typer.echo(f"keyway: no node answers at {admin}: {reason}", err=True)
    raise typer.Exit(1)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
