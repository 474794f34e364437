"""The node as a process: its clock, its open files, its signals, from start to end."""

from __future__ import annotations

import asyncio
import resource
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog
import uvloop

from gateway.compiled import version_line
from gateway.config.file import Config, ConfigSource
from gateway.embedded.process import SetupError
from gateway.listen.listeners import CannotListen
from gateway.node.lifecycle import run_parts
from gateway.node.redis_state import RunningRedis, running_redis
from gateway.node.wiring import Process, wire
from gateway.part import Part, Trouble
from gateway.routing.owners import CannotJoin
from keyway.logs import lost_lines

log = structlog.get_logger("keyway.node")


class StartError(Exception):
    """The node cannot start; one line with the remedy."""


def run(config: Config, source: ConfigSource) -> None:
    """Serves until SIGTERM, SIGINT or SIGHUP. `source`: of `config`. Raises StartError,
    ConfigError.
    """
    permit_files()
    try:
        with running_redis(config.state) as redis:
            uvloop.run(_serve(config, source, redis))
    except SetupError as error:
        raise StartError(str(error)) from error
    except ExceptionGroup as group:
        cannot, _ = group.split((CannotListen, CannotJoin))
        if cannot is None:
            raise
        raise StartError(str(first_error(cannot))) from group


async def _serve(config: Config, source: ConfigSource, redis: RunningRedis) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop_for(number: signal.Signals) -> None:
        log.info("signal_received", signal=number.name)
        stop.set()

    reloads = reloads_at_hangup(config)
    ignored = reloads or signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    for number in ending_signals(hangup_ignored=ignored):
        loop.add_signal_handler(number, stop_for, number)
    hangup = asyncio.Event()
    if reloads:
        loop.add_signal_handler(signal.SIGHUP, hangup.set)
    tasks = asyncio.TaskGroup()
    clock = steady(time.time_ns, time.monotonic_ns)
    process = Process(process_part(stop), redis, tasks, clock, hangup)
    parts = wire(config, source, process)
    log.info("starting", version=version_line(), upstream=config.upstream.bootstrap_servers)
    await run_parts(parts, tasks, stop)


def ending_signals(*, hangup_ignored: bool) -> tuple[signal.Signals, ...]:
    """Signals that drain and end the node. SIGHUP (the terminal has gone) is one, as for a Kafka
    broker, unless the process was started to ignore it (`nohup`), or reads certificates then.
    """
    ends = (signal.SIGTERM, signal.SIGINT)
    return ends if hangup_ignored else (*ends, signal.SIGHUP)


def reloads_at_hangup(config: Config) -> bool:
    """Whether SIGHUP reads certificates again, as services do, and ends nothing: with TLS it
    does.
    """
    return config.admin.tls is not None or any(
        listener.tls is not None for listener in config.listen.all()
    )


def process_part(stop: asyncio.Event) -> Part[None]:
    async def troubles() -> Sequence[Trouble]:
        found = []
        if stop.is_set():
            found.append(Trouble("the node is stopping", serving=False))
        if lost_lines.trouble is not None:
            found.append(Trouble(lost_lines.trouble))
        return found

    version = version_line()  # looks at all files that could be compiled
    return Part(
        name="process",
        room=None,
        troubles=troubles,
        figures=lambda: {"version": version},
    )


def permit_files() -> None:
    """Raises the limit of open files as far as this process may: a client takes two, and the 1,024
    that most systems begin with are 500 clients, behind which nobody can connect.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # a system that has more than it permits
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def steady(wall_ns: Callable[[], int], monotonic_ns: Callable[[], int]) -> Callable[[], int]:
    """A clock in milliseconds of wall time, so that deadlines of leases mean the same after a
    restart. It is read once and never set after that: a clock put forward would end every lock and
    every session at once, one put back would keep keys waiting for as long.
    """
    ahead_ns = wall_ns() - monotonic_ns()
    return lambda: (monotonic_ns() + ahead_ns) // 1_000_000


def first_error(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
