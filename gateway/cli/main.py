"""The `keyway` command: its own commands, the command groups of other packages (commands.py), and
the options of all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli import (
    client_limits,
    configuration,
    contexts,
    filters,
    groups,
    keys,
    listeners,
    node,
    nodes,
    repartitions,
)
from gateway.cli.commands import CommandGroups
from gateway.cli.contexts import CONTEXT_VARIABLE, use_context
from gateway.cli.doctor import doctor
from gateway.cli.node_client import use_admin, use_ca_file, use_token_file
from gateway.cli.node_options import CA_FILE_HELP, CONTEXT_HELP, TOKEN_FILE_HELP
from gateway.cli.options import DEFAULT_ADMIN, AdminOption, Watching
from gateway.cli.serve import serve
from gateway.cli.token import token
from gateway.cli.top import top
from gateway.cli.user import user

app = typer.Typer(
    name="keyway",
    cls=CommandGroups,
    help="A Kafka-protocol gateway: Key-Shared groups for stock share consumers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(serve)
app.command()(doctor)
app.command()(token)
app.command()(user)
app.add_typer(groups.app, name="group")
app.add_typer(filters.app, name="filter")
app.add_typer(keys.members, name="member")
app.add_typer(keys.windows, name="window")
app.add_typer(keys.keys, name="key")
app.add_typer(node.topics, name="topic")
app.add_typer(repartitions.app, name="repartition")
app.add_typer(node.brokers, name="broker")
app.add_typer(node.connections, name="connection")
app.add_typer(listeners.app, name="listener")
app.add_typer(client_limits.app, name="limit")
app.add_typer(nodes.app, name="node")
app.command(cls=Watching)(node.health)
app.command()(node.whoami)
app.command(cls=Watching)(top)
app.add_typer(configuration.app, name="config")
app.command(cls=Watching)(configuration.audit)
app.add_typer(contexts.app, name="context")


def _version(*, wanted: bool) -> None:
    if wanted:
        from gateway.compiled import version_line  # keeps `keyway --help` quick

        typer.echo(version_line())
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[  # noqa: ARG001 - its callback acts
        bool,
        typer.Option(
            "--version",
            callback=lambda wanted: _version(wanted=wanted),
            is_eager=True,
            help="Show the version, and the form of the hot modules: compiled or interpreted.",
        ),
    ] = False,
    context: Annotated[
        str | None,
        typer.Option(
            envvar=CONTEXT_VARIABLE,
            autocompletion=contexts.names,
            help=CONTEXT_HELP,
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            envvar="KEYWAY_TOKEN_FILE",
            help=TOKEN_FILE_HELP,
        ),
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option(envvar="KEYWAY_CA_FILE", help=CA_FILE_HELP)
    ] = None,
    admin: AdminOption = DEFAULT_ADMIN,
) -> None:
    """Options of every command that asks a node; they may also stand behind it."""
    use_context(context)
    use_token_file(token_file)
    use_ca_file(ca_file)
    use_admin(admin)


def main() -> None:
    app(prog_name="keyway")


if __name__ == "__main__":
    main()
