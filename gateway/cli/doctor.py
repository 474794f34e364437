"""`keyway doctor`: is all there that a node needs?"""

from __future__ import annotations

import asyncio
from dataclasses import asdict

import typer

from gateway.cli.options import ConfigOption, Output, UpstreamOption
from gateway.cli.tables import print_data, print_table
from gateway.config import file as configuration
from keyway.logs import configure
from keyway.terminal.exits import Exit


def doctor(
    config: ConfigOption = None,
    upstream: UpstreamOption = None,
    output: Output = "table",
) -> None:
    """Look at all that a node needs. Exit status 1 if something must be mended first."""
    from gateway.node.diagnosis import Status  # keeps `keyway --help` quick
    from gateway.node.doctor import look

    configure("text", "error")
    try:
        findings = asyncio.run(look(configuration.load(config, upstream=upstream), config))
    except configuration.ConfigError as error:
        typer.echo(f"keyway: {error}", err=True)
        raise typer.Exit(Exit.CONFIGURATION) from error
    rows = [asdict(finding) | {"status": finding.status.value} for finding in findings]
    if output != "table":
        print_data({"findings": rows}, output)
    else:
        columns = ("CHECK", "STATUS", "FOUND", "MEND")
        print_table(columns, [tuple(row.values()) for row in rows])
    if any(finding.status is Status.FAULT for finding in findings):
        raise typer.Exit(Exit.REFUSED)
