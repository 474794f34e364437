"""The `keyway` command: serve, demo, group list|describe|parked|release, filter list|set|remove,
the commands of other packages (commands.py), --version.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from enum import StrEnum
from http.client import HTTPException
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway import config as configuration
from gateway.cli.commands import CommandGroups
from gateway.core.share.declared_filters import MARK, InvalidKeyFilters, client_name, inline_filters
from gateway.logs import LogFormat, LogLevel, configure

app = typer.Typer(
    name="keyway",
    cls=CommandGroups,
    help="A Kafka-protocol gateway: Key-Shared groups for stock share consumers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
group_app = typer.Typer(help="Key-Shared groups of a running node.", no_args_is_help=True)
app.add_typer(group_app, name="group")
filter_app = typer.Typer(
    help="Key filters: the keys that the members of a group take.", no_args_is_help=True
)
app.add_typer(filter_app, name="filter")

COLUMNS_MAX = 100_000
DEFAULT_ADMIN = "http://127.0.0.1:9180"
AdminOption = Annotated[str, typer.Option("--admin", help="Address of the node's REST.")]
Output = Annotated[
    Literal["table", "json"], typer.Option("-o", "--output", help="Form of the output.")
]
ExecuteOption = Annotated[
    bool, typer.Option("--execute", help="Make the change; without it, only show it.")
]


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
            help="Show the version, and the form of the hot modules: compiled or interpreted.",
        ),
    ] = False,
) -> None:
    """Options of every command."""


@app.command()
def serve(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="Path of keyway.yaml; without it, the defaults."),
    ] = None,
    upstream: Annotated[
        str | None, typer.Option(help="The Kafka behind the gateway: host:port[,host:port].")
    ] = None,
    log_format: Annotated[LogFormat, typer.Option(help="Form of the log lines.")] = "text",
    log_level: Annotated[LogLevel, typer.Option(help="Lowest level of the log.")] = "info",
) -> None:
    """Run a gateway node until SIGTERM or SIGINT."""
    from gateway.node.process import StartError, run

    try:
        settings = configuration.load(config, upstream=upstream)
        configure(log_format, log_level)
        run(settings)
    except (configuration.ConfigError, StartError) as error:
        typer.echo(f"keyway: {error}", err=True)
        raise typer.Exit(2) from error


@app.command()
def demo(
    keep: Annotated[
        bool, typer.Option(help="Keep everything running and print the addresses.")
    ] = False,
) -> None:
    """Run it all on this machine: a real Kafka, 336,776 flights, three share consumers, Spark."""
    try:
        from gateway.demo.run import run_demo
    except ModuleNotFoundError as error:
        typer.echo(f"keyway: no module {error.name}: pip install 'keyway[demo]'", err=True)
        raise typer.Exit(2) from error

    raise typer.Exit(run_demo(keep=keep))


@group_app.command("list")
def group_list(admin: AdminOption = DEFAULT_ADMIN, output: Output = "table") -> None:
    """List the groups of the node."""
    answer = _get(admin, "/v1/groups")
    if output == "json":
        typer.echo(json.dumps(answer, indent=2))
        return
    table = Table("GROUP", "STATE", "MEMBERS", "TOPICS", "WINDOWS", "TOTAL-LAG", box=None)
    for row in answer["groups"]:
        table.add_row(
            *_cells(
                row["group"],
                row["state"],
                row["members"],
                ",".join(row["topics"]),
                row["windows"],
                _known(row["lag"]),
            )
        )
    _console().print(table)


@group_app.command("describe")
def group_describe(
    group: str, admin: AdminOption = DEFAULT_ADMIN, output: Output = "table"
) -> None:
    """Show the members and windows of one group."""
    answer = _get(admin, f"/v1/groups/{urllib.parse.quote(group, safe='')}")
    if output == "json":
        typer.echo(json.dumps(answer, indent=2))
        return
    console = _console()
    (name,) = _cells(answer["group"])
    console.print(Text(f"group {name}  state {answer['state']}  epoch {answer['epoch']}"))
    members = Table("MEMBER-ID", "CLIENT-ID", "HOST", "EPOCH", "TOPICS", box=None)
    for row in answer["memberships"]:
        members.add_row(
            *_cells(
                row["member_id"],
                row["client_id"],
                row["host"],
                row["epoch"],
                ",".join(row["topics"]),
            )
        )
    console.print(members)
    windows = Table(
        "TOPIC",
        "PARTITION",
        "STATE",
        "CURSOR",
        "READ",
        "LOG-END",
        "LAG",
        "UNSETTLED",
        "IN-FLIGHT",
        "BACKING-OFF",
        "DEAD-LETTERING",
        "PARKED",
        box=None,
    )
    figures = (
        "partition",
        "state",
        "cursor",
        "read_position",
        "log_end",
        "lag",
        "unsettled",
        "in_flight",
        "backing_off",
        "dead_lettering",
    )
    for row in answer["partitions"]:
        shown = [_known(row.get(name)) for name in figures]
        windows.add_row(*_cells(row["topic"], *shown, len(row.get("parked", ()))))
    console.print(windows)
    busy = _members_of_windows(answer["partitions"])
    if busy.row_count:
        console.print(busy)
    for row in answer["partitions"]:
        for (line,) in map(_cells, _remarks(row)):
            console.print(line, soft_wrap=True)


def _members_of_windows(partitions: list[dict[str, Any]]) -> Table:
    """The records of each member, one row per partition; members without records are left out.

    UNACKED and BLOCKED are records of draining keys, ATTEMPTS counts how often their new owners
    asked in vain, CLEARED counts the keys that have drained since the member joined, and
    JOINED-BEHIND is the last sent position at its join.
    """
    columns = {
        "READY-KEYS": "ready_keys",
        "IN-FLIGHT": "in_flight",
        "DRAINING-KEYS": "draining_keys",
        "UNACKED": "draining_in_flight",
        "BLOCKED": "draining_blocked",
        "ATTEMPTS": "draining_attempts",
        "CLEARED": "draining_cleared",
        "JOINED-BEHIND": "last_sent_position_when_joining",
        "DROPPED": "dropped",
    }
    table = Table("TOPIC", "PARTITION", "MEMBER-ID", *columns, box=None)
    for row in partitions:
        for member in row.get("members", ()):
            figures = {name: member.get(name) for name in columns.values()}
            shown = map(_known, figures.values())
            if not any(figures[name] for name in ("ready_keys", "in_flight", "dropped")):
                continue
            table.add_row(*_cells(row["topic"], row["partition"], member["member_id"], *shown))
    return table


def _remarks(row: dict[str, Any]) -> Iterator[str]:
    """Lines for an operator about one window."""
    place = f"{row['topic']}-{row['partition']}"
    full = row.get("full_span")
    if full:
        holder = f", at member {full['member_id']}" if full["member_id"] else ""
        by_records = full.get("limit") == "window_records"
        what = "window of records" if by_records else f"span of {row['span_max']} offsets"
        yield (
            f"{place}: the {what} is full: offset {full['offset']} is"
            f" not settled (key hash {full['key_hash'] or '-'}, {full['records']} records of its"
            f" key are read{holder})"
        )
    for late in row.get("consumers_after_mark_delete_position", ()):
        yield (
            f"{place}: {late['name']} ({late['id']}, {late['address']}) joined behind offset"
            f" {late['last_sent_position_when_joining']}, which is not settled"
        )
    if row.get("trouble"):
        yield f"{place}: waits: {row['trouble']}"
    if row.get("read_trouble"):
        yield f"{place}: nothing more can be read: {row['read_trouble']}"
    if row.get("dead_letter_trouble"):
        yield f"{place}: dead letters are not written: {row['dead_letter_trouble']}"


@group_app.command("parked")
def group_parked(group: str, admin: AdminOption = DEFAULT_ADMIN, output: Output = "table") -> None:
    """List the parked records: those that wait for an operator (poison policy `block`)."""
    answer = _get(admin, f"/v1/parked?{urllib.parse.urlencode({'group': group})}")
    if output == "json":
        typer.echo(json.dumps(answer, indent=2))
        return
    _print_parked(answer["parked"])


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"


def _print_parked(rows: list[dict[str, Any]]) -> None:
    table = Table(
        "TOPIC", "PARTITION", "OFFSET", "KEY-HASH", "REASON", "DELIVERIES", "MEMBER-ID", box=None
    )
    for row in rows:
        cells = ("topic", "partition", "offset", "key_hash", "reason", "deliveries", "member_id")
        table.add_row(*_cells(*(_known(row[cell]) for cell in cells)))
    _console().print(table)


class ReleaseAction(StrEnum):
    RETRY = "retry"
    SKIP = "skip"
    DEAD_LETTER = "dead_letter"


@group_app.command("release")
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
            "offsets": "all" if every else offset,
            "action": action.value,
        }
        answer = _ask(admin, "/v1/parked/release", body)
        done = f"{action.value}: {_records(len(answer['offsets']))} of {topic}-{partition}"
        typer.echo(json.dumps(answer, indent=2) if output == "json" else done)
        return
    shown = _get(admin, f"/v1/parked?{urllib.parse.urlencode({'group': group, 'topic': topic})}")
    chosen = [
        row
        for row in shown["parked"]
        if row["partition"] == partition and (every or row["offset"] in (offset or ()))
    ]
    missing = sorted(set(offset or ()) - {row["offset"] for row in chosen})
    if missing or not chosen:
        what = f"offset {missing[0]} is not parked" if missing else "nothing is parked"
        typer.echo(f"keyway: {topic}-{partition}: {what}", err=True)
        raise typer.Exit(1)
    if output == "json":
        typer.echo(
            json.dumps({"dry_run": True, "action": action.value, "parked": chosen}, indent=2)
        )
        return
    _print_parked(chosen)
    typer.echo(f"{action.value}: {_records(len(chosen))}; nothing is done without --execute")


@filter_app.command("list")
def filter_list(group: str, admin: AdminOption = DEFAULT_ADMIN, output: Output = "table") -> None:
    """Show a group's rules. The first one whose client id matches a member decides its keys."""
    _print_rules(_get(admin, _rules_of(group)), output)


@filter_app.command("set")
def filter_set(
    group: str,
    rule: Annotated[
        list[str],
        typer.Option(help="CLIENT-ID;keys=GLOB|GLOB, as in a client.id; may be repeated."),
    ],
    execute: ExecuteOption = False,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Replace all rules of a group, those of keyway.yaml included, in the order given.

    Without --execute it only shows the change.
    """
    rules = [_rule(text) for text in rule]
    if execute:
        _print_rules(_ask(admin, _rules_of(group), {"rules": rules}, method="PUT"), output)
        return
    _print_change(_get(admin, _rules_of(group)), rules, output)


@filter_app.command("remove")
def filter_remove(
    group: str,
    execute: ExecuteOption = False,
    admin: AdminOption = DEFAULT_ADMIN,
    output: Output = "table",
) -> None:
    """Remove the rules that were set for a group: those of keyway.yaml count again.

    Without --execute it only shows the change.
    """
    if execute:
        _print_rules(_ask(admin, _rules_of(group), None, method="DELETE"), output)
        return
    _print_change(_get(admin, _rules_of(group)), None, output)


def _rules_of(group: str) -> str:
    return f"/v1/filters?{urllib.parse.urlencode({'group': group})}"


def _rule(text: str) -> dict[str, Any]:
    """One rule in the form in which a client declares its own filters (README)."""
    name = client_name(text)
    if not name or MARK not in text:
        raise typer.BadParameter(f"{text!r}: CLIENT-ID{MARK}GLOB|GLOB is expected")
    try:
        return {"client_id": name, "keys": [glob.decode() for glob in inline_filters(text)]}
    except (InvalidKeyFilters, UnicodeDecodeError) as invalid:
        raise typer.BadParameter(f"{text!r}: {invalid}") from invalid


def _print_rules(answer: dict[str, Any], output: str) -> None:
    if output == "json":
        typer.echo(json.dumps(answer, indent=2))
        return
    table = Table("CLIENT-ID", "KEYS", "FROM", box=None)
    source = "keyway.yaml" if answer["source"] == "config" else "set"
    for row in answer["rules"]:
        table.add_row(*_cells(row["client_id"], " | ".join(row["keys"]), source))
    _console().print(table)
    if not answer["rules"]:
        typer.echo("no rules: members take every key, or those their client.id declares")


def _print_change(now: dict[str, Any], rules: list[dict[str, Any]] | None, output: str) -> None:
    """`rules`: those to be set; None: those of keyway.yaml, which only the node knows."""
    if output == "json":
        typer.echo(json.dumps({"dry_run": True, "now": now, "rules": rules}, indent=2))
        return
    _print_rules(now, output)
    count = "the rules of keyway.yaml" if rules is None else f"{len(rules)} rules"
    typer.echo(f"would be replaced by {count}; nothing is done without --execute")


def _console() -> Console:
    """As wide as its widest row: cut to the terminal, or to the 80 columns of a pipe, names could
    neither be read nor searched for.
    """
    return Console(width=COLUMNS_MAX)


def _known(value: object) -> object:
    return "-" if value is None else value


def _cells(*values: object) -> list[Text]:
    """As they are: clients choose names, which may look like markup or hold control characters."""
    return [
        Text("".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in str(value)))
        for value in values
    ]


def _get(admin: str, path: str) -> Any:  # noqa: ANN401 - whatever JSON the node answers
    return _ask(admin, path, None)


def _ask(admin: str, path: str, body: dict[str, Any] | None, *, method: str | None = None) -> Any:  # noqa: ANN401 - as above
    """GET, or POST of a body, unless `method` says otherwise. Ends the command with the node's own
    words if it refuses.
    """
    address = admin if "://" in admin else f"http://{admin}"
    try:
        # The operator's own address, whatever its scheme.
        request = urllib.request.Request(  # noqa: S310
            address.rstrip("/") + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={} if body is None else {"Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
            return json.load(response)
    except urllib.error.HTTPError as error:
        (title,) = _cells(_title(error))
        typer.echo(f"keyway: {title}", err=True)
    except (OSError, ValueError, HTTPException) as error:
        (reason,) = _cells(getattr(error, "reason", error))
        typer.echo(f"keyway: no node answers at {admin}: {reason}", err=True)
    raise typer.Exit(1)


def _title(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["title"])
    except (ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}"  # not a node of ours


def main() -> None:
    app()


if __name__ == "__main__":
    main()
