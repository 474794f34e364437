"""`keyway serve`: a gateway node in this process."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway import config as configuration
from gateway.cli.options import ConfigOption, UpstreamOption
from keyway.logs import LogFormat, LogLevel, configure
from keyway.terminal.exits import Exit


def serve(
    config: ConfigOption = None,
    upstream: UpstreamOption = None,
    log_format: Annotated[LogFormat, typer.Option(help="Format of the log lines.")] = "text",
    log_level: Annotated[LogLevel, typer.Option(help="Lowest level that is logged.")] = "info",
) -> None:
    """Run a gateway node until SIGTERM, SIGINT or SIGHUP."""
    from gateway.node.process import StartError, run  # keeps `keyway --help` quick

    try:
        source = configuration.ConfigSource(config, upstream)
        settings = source.read()
        configure(log_format, log_level)
        run(settings, source)
    except (configuration.ConfigError, StartError) as error:
        typer.echo(f"keyway: {error}", err=True)
        raise typer.Exit(Exit.CONFIGURATION) from error
