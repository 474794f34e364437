"""`keyway schemas`: check the distribution of schemas, run it, show its status, compare registries.

Exit status (keyway/terminal/exits.py): 1 if something is refused, behind or different; 2 also if
the lease is another process's.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop
from rich.console import Console
from rich.table import Table

from keyway import logs
from keyway.clusters.config import ConfigError, load
from keyway.clusters.core.names import PatternError
from keyway.kafka.asking import LOOK_S_MAX
from keyway.terminal.exits import Exit, end
from keyway.terminal.usage import OneLineUsage
from keyway.terminal.watching import Output, View, Watching, WatchOption, show
from schema_dist import commands
from schema_dist.errors import AwayError, LeaseError, LogError, RefusedError
from schema_dist.limits import TOLD_EVERY_S

app = typer.Typer(
    name="schemas",
    cls=OneLineUsage,
    help="The same schema, the same id, each cluster's own subject names.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

ConfigFile = Annotated[Path, typer.Argument(help="The clusters' YAML file.")]
Work = Callable[[commands.OnStep], Coroutine[Any, Any, commands.Answer]]


def _done(work: Work, output: Output, watch: float | None = None) -> None:
    """Runs a command, prints its answer, and exits with its code. Meanwhile stderr shows the
    present step, unless `watch` is set: then the answers change in place.
    """
    answer = commands.Answer(ok=True)

    def look() -> View:
        nonlocal answer
        answer = _run(_telling(work) if watch is None else work(_untold))
        for reason in answer.away:
            typer.echo(f"keyway: {reason}", err=True)
        return View(answer.raw, lambda: _print_tables(answer))

    show(look, output, watch)
    if watch is None:
        raise typer.Exit(answer.code)


def _print_tables(answer: commands.Answer) -> None:
    console = Console(width=None if sys.stdout.isatty() else 10_000)
    for title, columns, rows in answer.tables:
        table = Table(*columns, title=title, title_justify="left", box=None)
        for row in rows:
            table.add_row(*map(_cell, row))
        console.print(table)


async def _telling(work: Work) -> commands.Answer:
    """Names the present step on stderr, again and again, once the command takes long."""
    loop, steps = asyncio.get_running_loop(), ["starting"]
    timer: asyncio.TimerHandle

    def tell() -> None:
        nonlocal timer
        typer.echo(f"keyway: {steps[-1]} ...", err=True)
        timer = loop.call_later(TOLD_EVERY_S, tell)

    timer = loop.call_later(TOLD_EVERY_S, tell)
    try:
        return await work(steps.append)
    finally:
        timer.cancel()


def _untold(_step: str) -> None:
    """Nobody is watching."""


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


def _run(work: Coroutine[Any, Any, commands.Answer]) -> commands.Answer:
    try:
        return uvloop.run(work)
    except (ConfigError, PatternError, LeaseError) as error:
        end(str(error), Exit.CONFIGURATION)
    except (AwayError, LogError, RefusedError) as error:
        end(str(error), Exit.AWAY)


@app.command()
def check(
    config: ConfigFile,
    output: Output = "table",
    probe: Annotated[
        bool, typer.Option(help="Try explicit ids with a subject that is removed again.")
    ] = True,
) -> None:
    """Formats, collisions, and a dry run with the schemas that would be registered, and their
    subjects.
    """

    _done(lambda told: commands.check(load(config), probe=probe, told=told), output)


@app.command()
def run(config: ConfigFile) -> None:
    """Distribute schemas from the primary until stopped."""
    _serve(lambda: commands.run(load(config)))


@app.command()
def view(
    config: ConfigFile,
    cluster: Annotated[str, typer.Argument(help="A cluster's name.")],
    beats: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Serve the cluster's registry view until stopped: its `registry_view` section says where."""
    _serve(lambda: commands.view(load(config), cluster, beats))


@app.command(hidden=True)
def decode(
    config: ConfigFile,
    cluster: Annotated[str, typer.Argument(help="A cluster's name.")],
    topic: Annotated[str, typer.Argument(help="The topic of the value.")],
) -> None:
    """Take the value on stdin apart by the schema it names: a line of JSON, for the node."""

    async def work() -> commands.Answer:
        found = await commands.decode(load(config), cluster, topic, sys.stdin.buffer.read())
        return commands.Answer(ok=True, fields=found)

    answer = _run(work())
    typer.echo(json.dumps(answer.raw))


def _serve(serve: Callable[[], Coroutine[Any, Any, None]]) -> None:
    logs.configure()

    async def work() -> commands.Answer:
        loop = asyncio.get_running_loop()
        running = asyncio.current_task()
        assert running is not None
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, running.cancel)
        await serve()
        return commands.Answer(ok=True)

    try:
        _run(work())
    except asyncio.CancelledError:
        raise typer.Exit from None


@app.command(cls=Watching)
def status(
    config: ConfigFile,
    target: Annotated[str | None, typer.Option(help="Only this cluster's registry.")] = None,
    watch: WatchOption = None,
    output: Output = "table",
) -> None:
    """The status of each target, as the running process last said."""
    targets: commands.Targets | None = None

    async def look(told: commands.OnStep) -> commands.Answer:
        nonlocal targets
        targets = targets or commands.Targets(load(config), target)
        told("asking the clusters")
        return await asyncio.to_thread(targets.look, within_s=LOOK_S_MAX if watch else None)

    _done(look, output, watch)


@app.command()
def diff(
    config: ConfigFile,
    first: Annotated[str, typer.Argument(help="A cluster's name.")],
    second: Annotated[str, typer.Argument(help="Another cluster's name.")],
    output: Output = "table",
) -> None:
    """Show the differences between the registries of two clusters."""

    _done(lambda told: commands.diff(load(config), first, second, told=told), output)
