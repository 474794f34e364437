"""An embedded Redis that is started again when it dies while the gateway lives, and when its
socket is deleted: open connections would go on, but nobody could connect any more.

Starting takes about 50 ms, but up to seconds over a large file, so it is not done in the event
loop; and the server dies with the thread that started it, so one thread does it all, from the first
start to the stop.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import structlog

from gateway.embedded.process import SetupError
from gateway.embedded.redis import EmbeddedRedis

log = structlog.get_logger("keyway.redis")

CHECK_S = 0.1  # the store waits as long before it repeats a failed write
RETRY_S_MAX = 5.0


class RedisWatch:
    """`with RedisWatch(redis) as watch:` it runs; `watch.run()` belongs in a task group."""

    def __init__(self, redis: EmbeddedRedis) -> None:
        self.redis = redis
        self.trouble = ""  # one line for /health while it is not as it should be
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="embedded-redis")

    def __enter__(self) -> RedisWatch:
        """Raises SetupError."""
        try:
            self._thread.submit(self.redis.start).result()
        except BaseException:
            self._thread.shutdown()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.submit(self.redis.stop).result()
        self._thread.shutdown()

    async def run(self) -> None:
        """Looks after it until cancelled."""
        pause_s = CHECK_S
        while True:
            await asyncio.sleep(pause_s)
            if self.redis.reachable:
                continue
            if not self.trouble:
                self._found()
            try:
                await asyncio.get_running_loop().run_in_executor(self._thread, self.redis.restart)
            except SetupError as error:
                if str(error) != self.trouble:
                    self.trouble = str(error)
                    log.error("embedded_redis_not_started", reason=self.trouble)
                pause_s = min(2 * pause_s, RETRY_S_MAX)
            else:
                log.info("embedded_redis_started", pid=self.redis.pid)
                pause_s, self.trouble = CHECK_S, ""

    def _found(self) -> None:
        directory = str(self.redis.directory)
        if self.redis.running:
            self.trouble = f"the socket of the embedded Redis in {directory} is gone: it restarts"
            log.warning("embedded_redis_unreachable", socket=str(self.redis.socket_path))
        else:
            self.trouble = f"the embedded Redis in {directory} has died: it restarts"
            log.warning("embedded_redis_died", directory=directory)
