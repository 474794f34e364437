"""`keyway serve`: a gateway node in this process, or several as workers of this one."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gateway.cli.options import ConfigOption, UpstreamOption
from gateway.config import file as configuration
from gateway.node.limits import WORKERS_MAX
from keyway.logs import LogFormat, LogLevel, configure
from keyway.terminal.exits import Exit


def serve(
    config: ConfigOption = None,
    upstream: UpstreamOption = None,
    log_format: Annotated[LogFormat, typer.Option(help="Format of the log lines.")] = "text",
    log_level: Annotated[LogLevel, typer.Option(help="Lowest level that is logged.")] = "info",
    workers: Annotated[
        int, typer.Option(min=1, max=WORKERS_MAX, help="Nodes on this machine, as one service.")
    ] = 1,
    worker: Annotated[int | None, typer.Option(hidden=True)] = None,
    worker_redis: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run a gateway node until SIGTERM or SIGINT. SIGHUP ends it, too, or with TLS reads the
    certificates again.
    """
    from gateway.node.process import StartError, run  # keeps `keyway --help` quick
    from gateway.node.worker_config import Worker
    from gateway.node.workers import run_workers

    def command(number: int, redis_url: str | None) -> list[str]:
        return [
            *(sys.executable, "-m", "gateway.cli", "serve"),
            *(() if config is None else ("--config", str(config))),
            *(() if upstream is None else ("--upstream", upstream)),
            *("--log-format", log_format, "--log-level", log_level),
            *("--workers", str(workers), "--worker", str(number)),
            *(() if redis_url is None else ("--worker-redis", redis_url)),
        ]

    try:
        derived = None if worker is None else Worker(worker, workers, worker_redis).config
        source = configuration.ConfigSource(config, upstream, derived)
        settings = source.read()
        configure(log_format, log_level, {} if worker is None else {"worker": settings.nodes.id})
        if workers > 1 and worker is None:
            run_workers(settings, workers, command)
        else:
            run(settings, source)
    except (configuration.ConfigError, StartError) as error:
        typer.echo(f"keyway: {error}", err=True)
        raise typer.Exit(Exit.CONFIGURATION) from error
