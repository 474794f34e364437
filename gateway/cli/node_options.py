"""`--admin`, `--context`, `--token-file`, `--ca-file`: before a command or behind it. The
one behind it wins.

Each command that asks a node has `--admin`. The others are the same for all of them, so they are
added here, where the commands are looked up.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli import contexts
from gateway.cli.node_client import use_ca_file, use_token_file
from keyway.terminal.watching import Click

CONTEXT_HELP = "Name of the node (see `keyway context`). Default: the current one."
CA_FILE_HELP = (
    "PEM file that https:// trusts. Default: KEYWAY_CA_FILE, or the system's trust store."
)
TOKEN_FILE_HELP = "File with the token for the node's REST. Default: KEYWAY_TOKEN."  # noqa: S105


def with_node_options(command: Click) -> Click:
    """Adds the options that choose a node to `command` or to each command of a group; a command
    that asks no node stays as it is.
    """
    for found in getattr(command, "commands", {}).values():
        with_node_options(found)
    names = {param.name for param in command.params}
    if "admin" in names and not names & {"context", "token_file", "ca_file"}:
        command.params = [*command.params, *_options()]
    return command


def _context_chosen(name: str | None) -> None:
    if name is not None:
        contexts.use_context(name)


def _ca_file_chosen(path: Path | None) -> None:
    if path is not None:
        use_ca_file(path)


def _token_file_chosen(path: Path | None) -> None:
    if path is not None:
        use_token_file(path)


@cache
def _options() -> tuple[Click, ...]:
    """The options, made by typer from a command that has them."""

    def command(
        context: Annotated[
            str | None,
            typer.Option(
                callback=_context_chosen, autocompletion=contexts.names, help=CONTEXT_HELP
            ),
        ] = None,
        token_file: Annotated[
            Path | None, typer.Option(callback=_token_file_chosen, help=TOKEN_FILE_HELP)
        ] = None,
        ca_file: Annotated[
            Path | None, typer.Option(callback=_ca_file_chosen, help=CA_FILE_HELP)
        ] = None,
    ) -> None:
        pass

    app = typer.Typer(add_completion=False)
    app.command()(command)
    options = tuple(
        parameter for parameter in typer.main.get_command(app).params if parameter.name != "help"
    )
    for option in options:
        option.expose_value = False
    return options
