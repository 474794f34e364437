"""Command groups of the other packages. They are named here as text, because the gateway imports
none of those packages, and loaded only when one of their commands is called, because they need
packages that a plain gateway does without.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

import typer
from typer.core import TyperCommand

from gateway.cli.node_options import with_node_options
from keyway.terminal.exits import Exit
from keyway.terminal.extras import what_to_install
from keyway.terminal.usage import OneLineUsage
from keyway.terminal.watching import Click

# name: the module whose `app` it is, the line of `keyway --help`
GROUPS = {
    "distribute": ("spark.links.cli", "Records copied between clusters, along their tree."),
    "offsets": ("offsets.cli", "Where groups would resume on another cluster, or why they cannot."),
    "pipeline": (
        "spark.pipelines.cli",
        "Transform the records of a topic: mask, rename, drop, timestamp, filter, route.",
    ),
    "schemas": ("schema_dist.cli", "The same schema, the same id, each cluster's own subjects."),
}


class CommandGroups(OneLineUsage):
    """The gateway's own commands and GROUPS."""

    _listing = False

    def list_commands(self, ctx: Click) -> list[str]:
        return [*super().list_commands(ctx), *GROUPS]

    def get_command(self, ctx: Click, cmd_name: str) -> Click:
        """Ends with one line and exit status 2 if a group needs a package that is not there."""
        if cmd_name not in GROUPS:
            found = super().get_command(ctx, cmd_name)
            return None if found is None else with_node_options(found)
        module, text = GROUPS[cmd_name]
        listed = TyperCommand(cmd_name, help=text)
        if self._listing:
            return listed
        try:
            group = typer.main.get_command(import_module(module).app)
        except ModuleNotFoundError as error:
            if ctx.resilient_parsing:  # a shell that completes: nothing follows this word
                return listed
            typer.echo(f"keyway: {what_to_install(error)}", err=True)
            raise typer.Exit(Exit.CONFIGURATION) from error
        group.name = cmd_name
        return group

    def format_help(self, ctx: Click, formatter: Click) -> None:
        with self._only_listed():
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Click, incomplete: str) -> list[Click]:
        with self._only_listed():
            found: list[Click] = super().shell_complete(ctx, incomplete)
        return found

    @contextmanager
    def _only_listed(self) -> Iterator[None]:
        self._listing = True
        try:
            yield
        finally:
            self._listing = False
