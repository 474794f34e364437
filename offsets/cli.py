"""`keyway offsets`: run the service of a cluster, show where groups would go on, move them.

Exit status (keyway/terminal/exits.py): 1 if something is refused, or a service does not work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from keyway import logs, service
from keyway.clusters.config import ClustersConfig, ConfigError, load
from keyway.kafka.asking import LOOK_S_MAX
from keyway.terminal.exits import Exit, end
from keyway.terminal.progress import Progress
from keyway.terminal.usage import OneLineUsage
from keyway.terminal.watching import Output, View, Watching, WatchOption, show
from offsets import checkpoints, commands
from offsets.core.plan import Mode, Row
from offsets.errors import CheckpointError, OffsetsError
from offsets.options import Options
from offsets.turns import Turns

app = typer.Typer(
    name="offsets",
    cls=OneLineUsage,
    help="Groups that move to another cluster miss nothing and repeat little.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

ConfigFile = Annotated[Path, typer.Argument(help="The clusters' YAML file.")]
Group = Annotated[str, typer.Argument(help="Its logical name.")]
To = Annotated[str, typer.Option("--to", help="The cluster the group moves to.")]
ModeOption = Annotated[Mode | None, typer.Option("--mode", help="Instead of the configured one.")]
Force = Annotated[bool, typer.Option("--force", help="Commit unsafe positions, too.")]
Rewind = Annotated[bool, typer.Option("--rewind", help="Let positions go back.")]


@app.callback()
def _log_to_stderr() -> None:
    logs.configure()


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (ConfigError, CheckpointError) as error:
        end(str(error), Exit.CONFIGURATION)
    except OffsetsError as error:
        end(str(error), Exit.AWAY)


@app.command()
def run(
    config: ConfigFile,
    cluster: Annotated[str, typer.Option("--cluster", help="The cluster this service is for.")],
    metrics_port: Annotated[
        int | None, typer.Option(help="Prometheus metrics on this port of 127.0.0.1.")
    ] = None,
) -> None:
    """Follow the groups of a cluster, and commit those of the others there, until SIGTERM."""
    with _errors():
        stop = service.started()
        turns = Turns(load(config), cluster)
        service.serve_metrics(metrics_port, turns.metrics.registry)
        turns.run(stop)


@app.command(cls=Watching)
def status(
    config: ConfigFile,
    group: Annotated[str | None, typer.Option(help="Only this group.")] = None,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Only where groups go on there.")] = None,
    watch: WatchOption = None,
    output: Output = "table",
) -> None:
    """Show where each group would resume on every cluster, or why it cannot."""
    with _errors():
        decisions = commands.Decisions(load(config), cluster)
        found = commands.Status((), ())

        def look() -> View:
            nonlocal found
            found = decisions.look(within_s=LOOK_S_MAX if watch else None).of(group, topic)
            for reason in (*found.away, *found.troubles):
                typer.echo(f"keyway: {reason}", err=True)
            raw = {"rows": found.rows, "away": found.away, "troubles": found.troubles}
            return View(raw, lambda: _print_status(found))

        show(look, output, watch)
    if watch is None:
        amiss = bool(found.troubles) or any(row["refusals"] for row in found.rows)
        raise typer.Exit(Exit.AWAY if found.away else Exit(int(amiss)))


def _print_status(found: commands.Status) -> None:
    _print_table(
        ("GROUP", "TOPIC", "PARTITION", "AT", "OFFSET", "COMMITTED", "ON", *_PLAN_COLUMNS),
        [
            (
                *(row["group"], row["topic"], row["partition"], row["source"]),
                *(row["source_offset"], _time(row["source_ms"]), row["cluster"], *_cells(row)),
            )
            for row in found.rows
        ],
    )


@app.command(cls=Watching)
def plan(
    config: ConfigFile,
    group: Group,
    to: To,
    watch: WatchOption = None,
    output: Output = "table",
    mode: ModeOption = None,
    force: Force = False,
    rewind: Rewind = False,
) -> None:
    """Show where a group would go on; change nothing."""
    asked = _Asked(config, group, to, mode, force=force, rewind=rewind)
    _move(asked, commands.plan, output, watch)


@app.command()
def apply(
    config: ConfigFile,
    group: Group,
    to: To,
    output: Output = "table",
    mode: ModeOption = None,
    force: Force = False,
    rewind: Rewind = False,
    execute: Annotated[bool, typer.Option("--execute", help="Commit; else only show.")] = False,
) -> None:
    """Commit where a group goes on; without --execute a dry run."""
    work = commands.apply if execute else commands.plan
    if not execute:
        typer.echo("keyway: nothing is committed without --execute", err=True)
    _move(_Asked(config, group, to, mode, force=force, rewind=rewind), work, output)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A move of a group, and the ways to make it."""

    path: Path
    group: str
    to: str
    mode: Mode | None
    force: bool
    rewind: bool

    def options(self, config: ClustersConfig) -> Options:
        configured = Options.of(config.offsets)
        return replace(
            configured,
            mode=self.mode or configured.mode,
            force=self.force,
            rewind=self.rewind or configured.rewind,
            empty_ms=0,  # the operator knows
        )


def _move(
    asked: _Asked,
    work: Callable[[ClustersConfig, str, str, Options], list[Row]],
    output: Output,
    watch: float | None = None,
) -> None:
    rows: list[Row] = []

    def look() -> View:
        nonlocal rows
        config = load(asked.path)
        with Progress() as progress:
            progress.step(f"reading the topics of {asked.group} on {asked.to}")
            rows = work(config, asked.group, asked.to, asked.options(config))
        rows.sort(key=lambda row: (row.topic, row.partition))
        raw = {"group": asked.group, "to": asked.to, "rows": [row.shown() for row in rows]}
        return View(raw, lambda: _print_moves(rows))

    with _errors():
        show(look, output, watch)
    if watch is None:
        raise typer.Exit(Exit(int(any(row.refusals for row in rows))))


def _print_moves(rows: Sequence[Row]) -> None:
    _print_table(
        ("TOPIC", "PARTITION", "AT", "OFFSET", "COMMITTED", *_PLAN_COLUMNS),
        [
            (
                *(record["topic"], record["partition"], record["source"], record["source_offset"]),
                *(_time(record["source_ms"]), *_cells(record)),
            )
            for record in (row.shown() for row in rows)
        ],
    )


@app.command("spark-checkpoint")
def spark_checkpoint(
    config: ConfigFile,
    directory: Annotated[Path, typer.Argument(help="The query's checkpoint; it must be stopped.")],
    source: Annotated[str, typer.Option("--from", help="The cluster the query has read.")],
    to: Annotated[str, typer.Option("--to", help="The cluster it moves to.")],
    write: Annotated[
        Path | None, typer.Option(help="Write a fresh checkpoint into this empty folder.")
    ] = None,
    without_state: Annotated[
        bool, typer.Option("--without-state", help="Leave the query's state behind.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also while a switch of a link is unfinished.")
    ] = False,
) -> None:
    """Print the startingOffsets of a Spark query on another cluster, or write its checkpoint."""
    with _errors():
        found = checkpoints.read_checkpoint(directory, with_state=without_state)
        with Progress() as progress:
            progress.step(f"reading the query's topics on {source} and {to}")
            moved = checkpoints.translated(load(config), found, source, to, force=force)
        if write is not None:
            checkpoints.write_checkpoint(write, moved)
    typer.echo(checkpoints.starting_offsets(moved))


_PLAN_COLUMNS = ("MODE", "OLD", "NEW", "DELTA", "REPLAY", "REPLAY-S", "WHY NOT")


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    replay_ms = row["replay_ms"]
    why = ", ".join(row["refusals"]) + (f" ({row['error']})" if row["error"] else "")
    seconds = None if replay_ms is None else f"{replay_ms / 1_000:.1f}"
    return (
        *(row["mode"], row["old"], row["new"], row["delta"], row["replay"], seconds),
        why or None,
    )


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    table = Table(*columns, box=None)
    for row in rows:
        table.add_row(*("-" if cell is None else str(cell) for cell in row))
    Console(width=None if sys.stdout.isatty() else 10_000, highlight=False).print(table)
