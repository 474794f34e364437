"""`keyway demo`: real flights through a real Kafka and the gateway, on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from keyway.terminal.exits import Exit
from keyway.terminal.extras import what_to_install


def demo(
    keep: Annotated[
        bool, typer.Option(help="Keep everything running and print the addresses.")
    ] = False,
) -> None:
    """Run it all on this machine: a real Kafka, 336,776 flights, three share consumers, Spark."""
    try:
        from gateway.demo.run import run_demo  # needs packages that a plain gateway does without
    except ModuleNotFoundError as error:
        typer.echo(f"keyway: {what_to_install(error, 'demo')}", err=True)
        raise typer.Exit(Exit.CONFIGURATION) from error

    raise typer.Exit(run_demo(keep=keep))
