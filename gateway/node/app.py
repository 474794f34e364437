"""The composition root: configuration in, a running node out. Wired by hand, in reading order."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import secrets
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import structlog
import uvicorn
import uvloop
from redis.asyncio import Redis
from redis.exceptions import RedisError
from starlette.applications import Starlette

from dispatcher.store.redis import RedisStore
from gateway.admin.health import Health, NodeHealth
from gateway.admin.metrics import Metrics
from gateway.admin.problems import is_loopback
from gateway.admin.rest import RestParts, rest_app
from gateway.compiled import version_line
from gateway.config import Config, ConfigError, GroupSection
from gateway.core.share.membership import ShareGroup
from gateway.core.share.sessions import ShareSessions
from gateway.core.wire.apis import ApiKey
from gateway.embedded.process import SetupError
from gateway.embedded.redis import EmbeddedRedis
from gateway.embedded.redis_watch import RedisWatch
from gateway.handlers.alter_share_group_offsets import alter_share_group_offsets
from gateway.handlers.delete_groups import delete_groups
from gateway.handlers.delete_share_group_offsets import delete_share_group_offsets
from gateway.handlers.describe_share_group_offsets import describe_share_group_offsets
from gateway.handlers.incremental_alter_configs import incremental_alter_configs
from gateway.handlers.list_groups import list_groups
from gateway.handlers.share_acknowledge import share_acknowledge
from gateway.handlers.share_fetch import share_fetch
from gateway.handlers.share_group_describe import share_group_describe
from gateway.handlers.share_group_heartbeat import share_group_heartbeat
from gateway.handlers.share_requests import ReadySignals, ShareServices
from gateway.listen.authoriser import Authoriser
from gateway.listen.listeners import CannotListen, listening_socket
from gateway.listen.server import ConnectionId, Handler, Server
from gateway.members.group_settings import GroupSettings
from gateway.members.group_types import OtherGroupTypes
from gateway.members.groups import Groups
from gateway.members.key_filters import KeyFilters
from gateway.members.saved_members import SavedMembers
from gateway.node.heap_trim import trim_forever, trim_heap
from gateway.node.limits import (
    CONNECTION_SHARE_SESSIONS_MAX,
    GC_ALLOCATIONS,
    MISSING_TOPIC_MS,
    SHARE_SESSIONS_MAX,
    STOP_S_MAX,
)
from gateway.node.settings import server_settings, upstream_settings
from gateway.operations.deleted_topics import DeletedTopics
from gateway.operations.group_offsets import GroupOffsets
from gateway.operations.lag import Lags
from gateway.operations.parked_records import ParkedRecords
from gateway.reading.dead_letters import DeadLetters
from gateway.reading.reader import Reader
from gateway.upstream.cluster import Upstream
from gateway.upstream.commits import Commits
from gateway.upstream.errors import UpstreamError
from gateway.windows.dependencies import Dependencies
from gateway.windows.store_availability import MonitoredStore
from gateway.windows.windows import Windows

log = structlog.get_logger("keyway.app")


class StartError(Exception):
    """The node cannot start; one line that says what to do about it."""


def run(config: Config) -> None:
    """Serves until SIGTERM or SIGINT. Raises StartError, ConfigError."""
    permit_files()
    try:
        with _redis(config) as (redis_url, watch):
            uvloop.run(_Node(config, redis_url, watch).serve())
    except SetupError as error:
        raise StartError(str(error)) from error
    except ExceptionGroup as group:
        cannot, _ = group.split(CannotListen)
        if cannot is None:
            raise
        raise StartError(str(_first(cannot))) from group


def permit_files() -> None:
    """As many open files as this process may have: a client takes two, and the 1,024 that most
    systems begin with are 500 clients, behind whom nobody can connect.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # a system that has more than it permits
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@contextmanager
def _redis(config: Config) -> Iterator[tuple[str, RedisWatch | None]]:
    """The configured Redis, or an embedded one for as long as the node runs."""
    if config.state.redis_url is not None:
        yield config.state.redis_url.get_secret_value(), None
        return
    with RedisWatch(EmbeddedRedis(config.state.directory)) as watch:
        yield watch.redis.url, watch


def _redis_store(url: str) -> RedisStore:
    try:
        return RedisStore(url)
    except ValueError as error:
        raise ConfigError(f"state.redis_url: {error}") from None


def steady(wall_ns: Callable[[], int], monotonic_ns: Callable[[], int]) -> Callable[[], int]:
    """Milliseconds of wall time, so that deadlines of leases mean the same after a restart; but as
    of now, and never set after that: a clock put forward would end every lock and every session at
    once, one put back would keep keys waiting for as long.
    """
    ahead_ns = wall_ns() - monotonic_ns()
    return lambda: (monotonic_ns() + ahead_ns) // 1_000_000


now_ms = steady(time.time_ns, time.monotonic_ns)  # the node's clock


class _Node:
    def __init__(self, config: Config, redis_url: str, redis_watch: RedisWatch | None) -> None:
        self.config = config
        self.redis_watch = redis_watch
        settings = upstream_settings(config)
        self.upstream = Upstream(settings)
        self.store = MonitoredStore(_redis_store(redis_url), now_ms)
        self.redis = Redis.from_url(redis_url, socket_timeout=5, socket_connect_timeout=5)
        self.settings = GroupSettings(
            config, self.upstream.group_config, self._settings_changed, now_ms
        )
        self.saved_members = SavedMembers(self.redis)
        self.filters = KeyFilters(config, self.redis)
        self.reader = Reader(self.upstream)
        self.commits = Commits(self.upstream)
        self.metrics = Metrics()
        self.ready = ReadySignals()
        self.authoriser = Authoriser(now_ms)
        self.tasks = asyncio.TaskGroup()
        self.dead_letters = DeadLetters(self.upstream, self.reader)
        self.groups = Groups(
            settings=self.settings,
            sessions=ShareSessions(
                secrets.token_hex(4), SHARE_SESSIONS_MAX, CONNECTION_SHARE_SESSIONS_MAX
            ),
            on_moved=lambda moved: self.windows.membership_moved(moved),
            on_session_lost=lambda session: self.windows.session_lost(session),
            on_changed=self._members_changed,
            on_forgotten=self._group_forgotten,
            key_filters=self.filters.of,
        )
        self.windows = Windows(
            config=config,
            topology=lambda: self.upstream.topology,
            groups=self.groups,
            tasks=self.tasks,
            key_filters_loaded=self.filters.loaded,
            watch=self.upstream.watch,
            unwatch=self.upstream.unwatch,
            dependencies=Dependencies(
                store=self.store,
                reader=self.reader,
                commits=self.commits,
                upstream=self.upstream,
                dead_letters=self.dead_letters,
                settings=self.settings,
                owner=f"{socket.gethostname()}:{os.getpid()}",
                now_ms=now_ms,
                dirty=lambda window: self.windows.dirty(window),
                loaded=lambda window, snapshot: self.windows.loaded(window, snapshot),
                members_ready=self.ready.wake,
                noticed=self.metrics.noticed,
                spawn=self._spawn,
            ),
        )
        self.offsets = GroupOffsets(
            upstream=self.upstream,
            store=self.store,
            commits=self.commits,
            groups=self.groups,
            windows=self.windows,
            saved_members=self.saved_members,
            filters=self.filters,
            owner=self.windows.dependencies.owner,
        )
        self.lags = Lags(self.offsets)
        self.stop = asyncio.Event()
        self.server_settings = server_settings(config, settings)

    def _settings_changed(self, group: str, section: GroupSection) -> None:
        self.groups.settings_changed(group, section)
        self.windows.settings_changed(group, section)

    def _members_changed(self, group: ShareGroup) -> None:
        if self.settings.of(group.name).reliable:  # of others nothing is kept
            self.saved_members.changed(group)

    def _group_forgotten(self, group: str) -> None:
        self.saved_members.forgotten(group)
        self.settings.forget(group)
        self.metrics.forget(group)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.create_task(work)

    async def serve(self) -> None:
        stop = self.stop
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        log.info(
            "starting", version=version_line(), upstream=self.config.upstream.bootstrap_servers
        )
        async with self.upstream, self.tasks:
            started = self.tasks.create_task(self.upstream.start())
            stopped = self.tasks.create_task(stop.wait())
            await asyncio.wait((started, stopped), return_when=asyncio.FIRST_COMPLETED)
            if started.done():
                await self._serve_until(stop)
            started.cancel()
            stopped.cancel()
        await self.store.close()
        await self.redis.aclose()
        log.info("stopped")

    async def _serve_until(self, stop: asyncio.Event) -> None:
        server = self._server()
        self.upstream.on_topology(server.on_topology)
        self.upstream.on_topology(self.windows.topology_changed)
        await self.commits.probe_metadata_limit()
        background = [
            self.tasks.create_task(work)
            for work in (
                self.upstream.run(),
                self.reader.run(),
                self.windows.watch_forever(),
                self.windows.persist_forever(),
                self.windows.commit_forever(),
                self.saved_members.write_forever(),
                DeletedTopics(
                    self.offsets, self.config.state.deleted_topics_interval_ms
                ).sweep_forever(),
                self._look_for_topics(),
                self.lags.refresh_forever(),
                trim_forever(lambda: self.reader.counts.fetched_bytes, trim_heap),
                self.settings.refresh_forever(lambda: [g.name for g in self.groups.all()]),
            )
        ]
        background.append(self.tasks.create_task(self._learn_filters()))
        topics = self.groups.restore(await self.saved_members.load(), now_ms())
        section = self.config.admin
        listening = listening_socket(section.host, section.port, "admin.host, admin.port")
        if self.redis_watch is not None:
            background.append(self.tasks.create_task(self.redis_watch.run()))
        async with server.running():
            if topics:
                await self._reopen(topics)
            work = _serve_rest(self._rest(server), listening)
            background.append(self.tasks.create_task(work))
            _quiet_collector()
            log.info("ready", groups=len(self.groups.all()))
            await stop.wait()
            log.info("stopping")
        try:
            async with asyncio.timeout(STOP_S_MAX):
                await self.windows.stop()
                await self.dead_letters.close()
                await self.saved_members.flush()
        except TimeoutError:
            log.warning("stopped_without_commit", seconds=STOP_S_MAX)
        except (RedisError, OSError) as error:
            log.warning("stopped_without_saving_members", reason=str(error))
        for task in background:
            task.cancel()

    async def _reopen(self, topics: list[str]) -> None:
        """The windows of members of the run before."""
        try:
            self.windows.topology_changed(await self.upstream.refresh(topics))
        except UpstreamError as error:
            # They are watched now: the next refresh that works opens their windows.
            log.warning("topics_not_known_yet", topics=topics, reason=str(error))
            self.upstream.stale()

    async def _look_for_topics(self) -> None:
        """One that is created, or created anew, must not wait for the next regular refresh."""
        while True:
            await asyncio.sleep(MISSING_TOPIC_MS / 1000)
            if self.windows.waits_for_topics():
                self.upstream.stale()

    async def _learn_filters(self) -> None:
        """No window opens before."""
        await self.filters.load_until_loaded()
        self.windows.topology_changed(self.upstream.topology)

    def _server(self) -> Server:
        services = ShareServices(
            settings=self.settings,
            topology=lambda: self.upstream.topology,
            advertised=lambda: dict(server.addresses),
            refresh=self.upstream.refresh,
            groups=self.groups,
            windows=self.windows,
            authoriser=self.authoriser,
            ready=self.ready,
            other_type_active=OtherGroupTypes(self.upstream).active,
            now_ms=now_ms,
        )
        handlers: dict[int, Handler] = {
            int(ApiKey.SHARE_GROUP_HEARTBEAT): partial(share_group_heartbeat, services),
            int(ApiKey.SHARE_GROUP_DESCRIBE): partial(
                share_group_describe, services, self.offsets.find
            ),
            int(ApiKey.SHARE_FETCH): partial(share_fetch, services),
            int(ApiKey.SHARE_ACKNOWLEDGE): partial(share_acknowledge, services),
            **self._admin_handlers(),
        }
        server = Server(
            self.server_settings, self.upstream.topology, handlers, self._connection_lost
        )
        self.metrics.watch_windows(self.windows.all)
        self.metrics.watch_lag(self.lags.all, self.groups.all)
        self.metrics.watch_reader(self.reader.counts, self.reader.failing_partitions)
        self.metrics.watch_server(server.counters, lambda: len(server.connections))
        return server

    def _admin_handlers(self) -> dict[int, Handler]:
        offsets, authoriser = self.offsets, self.authoriser
        return {
            int(ApiKey.LIST_GROUPS): partial(list_groups, offsets, authoriser),
            int(ApiKey.DELETE_GROUPS): partial(delete_groups, offsets, authoriser),
            int(ApiKey.INCREMENTAL_ALTER_CONFIGS): partial(
                incremental_alter_configs, self.settings
            ),
            int(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS): partial(
                describe_share_group_offsets, offsets, authoriser
            ),
            int(ApiKey.ALTER_SHARE_GROUP_OFFSETS): partial(
                alter_share_group_offsets, offsets, authoriser
            ),
            int(ApiKey.DELETE_SHARE_GROUP_OFFSETS): partial(
                delete_share_group_offsets, offsets, authoriser
            ),
        }

    def _connection_lost(self, connection: ConnectionId) -> None:
        self.groups.connection_lost(connection, now_ms())
        self.authoriser.connection_lost(connection)

    def _rest(self, server: Server) -> Starlette:
        parts = RestParts(
            groups=self.groups,
            windows=self.windows,
            parked=ParkedRecords(self.offsets, now_ms),
            filters=self.filters,
            metrics=self.metrics,
            lags=self.lags,
            health=partial(self._health, server),
        )
        return rest_app(parts, loopback=is_loopback(self.config.admin.host))

    async def _health(self, server: Server) -> Health:
        health = await NodeHealth(
            redis=self.redis,
            upstream=self.upstream,
            windows=self.windows,
            failing_partitions=self.reader.failing_partitions,
            stopping=self.stop.is_set,
        ).look()
        node = {"connections": len(server.connections), "version": version_line()}
        return replace(health, figures={**health.figures, **node})


def _quiet_collector() -> None:
    """What starting made stays for good, and a batch of records is thousands of allocations:
    looking at all of it every 700 costs percents of the node and finds nothing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_ALLOCATIONS, 20, 20)


async def _serve_rest(rest: Starlette, listening: socket.socket) -> None:
    """Until cancelled."""
    config = uvicorn.Config(rest, log_config=None, access_log=False, lifespan="off")
    config.load()
    # Not `serve()`: that installs signal handlers of its own.
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    with listening:
        await server.startup(sockets=[listening])
        await server.main_loop()
