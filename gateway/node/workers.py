"""Several nodes on one machine as one service: the process that starts them, and their Redis.

A worker that ends is started again, after a pause that doubles while its lives are short. At stop
they end one after the other, so that each hands over what it owns; their Redis ends last. A worker
dies with this process, whatever ends it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from subprocess import Popen

import structlog

from gateway.config.file import Config
from gateway.embedded.process import SetupError, start_child
from gateway.embedded.redis_watch import RedisWatch
from gateway.listen.listeners import CannotListen, listening_socket
from gateway.node.limits import (
    WORKER_LASTED_S_MIN,
    WORKER_LOOK_S,
    WORKER_RETRY_S_MAX,
    WORKER_RETRY_S_MIN,
    WORKER_STOP_S_MAX,
)
from gateway.node.process import StartError, ending_signals, first_error, reloads_at_hangup
from gateway.node.redis_state import running_redis
from gateway.node.worker_config import check
from keyway.terminal.exits import Exit

log = structlog.get_logger("keyway.workers")

Command = Callable[[int, str | None], Sequence[str]]  # of a worker; its number, the Redis's URL


def run_workers(config: Config, count: int, command: Command) -> None:
    """Serves until SIGTERM, SIGINT or SIGHUP. Raises StartError, ConfigError."""
    check(config, count)
    try:
        for listener in config.listen.all():
            # Taken by a stranger who shares it, too, it would seem to be free.
            listening_socket(
                listener.host, listener.bootstrap_port, "listen.host, listen.bootstrap_port"
            ).close()
        with running_redis(config.state) as redis:
            url = None if redis.watch is None else redis.url
            workers = Workers([command(number, url) for number in range(count)])
            asyncio.run(_serve(workers, redis.watch, reloads=reloads_at_hangup(config)))
    except (SetupError, CannotListen) as error:
        raise StartError(str(error)) from error
    except ExceptionGroup as group:
        cannot, _ = group.split(StartError)
        if cannot is None:
            raise
        raise StartError(str(first_error(cannot))) from group


async def _serve(workers: Workers, watch: RedisWatch | None, *, reloads: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    ignored = reloads or signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    for number in ending_signals(hangup_ignored=ignored):
        loop.add_signal_handler(number, stop.set)
    if reloads:
        loop.add_signal_handler(signal.SIGHUP, workers.hang_up)
    async with asyncio.TaskGroup() as tasks:
        watching = None if watch is None else tasks.create_task(watch.run())
        await workers.run(stop)
        if watching is not None:
            watching.cancel()


class Workers:
    def __init__(self, commands: Sequence[Sequence[str]]) -> None:
        self._commands = commands
        self._children: dict[int, Popen[bytes]] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Runs the workers until `stop` is set and all have ended. Raises StartError (in a group)
        for a worker that cannot start for the first time.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                kept = [tasks.create_task(self._keep(at)) for at in range(len(self._commands))]
                await stop.wait()
                for task in kept:
                    task.cancel()
        finally:
            log.info("stopping")
            for number in sorted(self._children):
                await self._stop(number)
            log.info("stopped")

    def hang_up(self) -> None:
        """Every worker reads its certificates again."""
        for child in self._children.values():
            if child.poll() is None:
                child.send_signal(signal.SIGHUP)

    async def _keep(self, number: int) -> None:
        loop, pause_s = asyncio.get_running_loop(), WORKER_RETRY_S_MIN
        starts = 0
        while True:
            began = loop.time()
            child = self._children[number] = start_child(self._commands[number])
            starts += 1
            log.info("worker_started", worker=number, pid=child.pid, starts=starts)
            while (status := child.poll()) is None:  # noqa: ASYNC110  children have no event
                await asyncio.sleep(WORKER_LOOK_S)
            if status == Exit.CONFIGURATION and starts == 1:
                raise StartError(f"worker {number} cannot start: its line above says why")
            if loop.time() - began > WORKER_LASTED_S_MIN:
                pause_s = WORKER_RETRY_S_MIN
            log.error("worker_ended", worker=number, status=status, retry_s=pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, WORKER_RETRY_S_MAX)

    async def _stop(self, number: int) -> None:
        child = self._children[number]
        if child.poll() is None:
            child.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(WORKER_STOP_S_MAX):
                    while child.poll() is None:  # noqa: ASYNC110
                        await asyncio.sleep(WORKER_LOOK_S)
        if child.poll() is None:
            log.error("worker_killed", worker=number, seconds=WORKER_STOP_S_MAX)
            child.kill()
        log.info("worker_stopped", worker=number, status=child.wait())
