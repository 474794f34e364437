"""The composition root: every room's part, built from bottom to top and wired by hand.

The order of the result is the order in which parts start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gateway.admin.build as admin
import gateway.handlers.build as handlers
import gateway.listen.build as listen
import gateway.members.build as members
import gateway.operations.build as operations
import gateway.reading.build as reading
import gateway.repartition.build as repartition
import gateway.routing.build as routing
import gateway.upstream.build as upstream
import gateway.windows.build as windows
from gateway.config.file import Config, ConfigSource
from gateway.core.repartition.holds import Holds
from gateway.group_log import GroupLog
from gateway.node import event_loop, memory, redis_state, registry_view, rest_server
from gateway.node.redis_state import RunningRedis
from gateway.node.settings import server_settings, upstream_settings
from gateway.part import Part


@dataclass(frozen=True, slots=True)
class Process:
    """Everything that parts need of the process they run in."""

    part: Part[None]
    redis: RunningRedis
    tasks: asyncio.TaskGroup
    now_ms: Callable[[], int]
    hangup: asyncio.Event  # set by SIGHUP, where that is to read the certificates again


def wire(config: Config, source: ConfigSource, process: Process) -> list[Part[Any]]:
    """Raises ConfigError."""
    tasks, now_ms = process.tasks, process.now_ms
    cluster_settings = upstream_settings(config)
    redis = redis_state.build(process.redis)
    cluster = upstream.build(cluster_settings)
    group_log = GroupLog(now_ms)
    reader = reading.build(cluster.room, group_log, now_ms)
    server = listen.build(
        server_settings(config, cluster_settings),
        cluster.room,
        tasks,
        now_ms,
        process.hangup,
        [section.rule() for section in config.limits],
    )
    nodes = routing.build(config, cluster.room, server.room, redis.room.client, now_ms)
    owners = nodes.room.owners
    groups = members.build(config, cluster.room, server.room, owners, redis.room.client, now_ms)
    window = windows.build(
        config,
        cluster.room,
        reader.room,
        groups.room,
        owners,
        redis.room.store,
        tasks,
        group_log,
        now_ms,
        holds := Holds(),
    )
    acts = operations.build(
        config, cluster.room, groups.room, reader.room, window.room, nodes.room.topics, now_ms
    )
    growth = repartition.build(
        config,
        cluster.room,
        server.room,
        nodes.room,
        window.room,
        acts.room,
        holds,
        redis.room.client,
        now_ms,
    )
    apis = handlers.build(
        cluster.room, server.room, reader.room, owners, groups.room, window.room, acts.room, now_ms
    )
    server.room.server.answer(apis.handlers)
    view = registry_view.build(config.registry_view, server.room.server.certificates)
    below = [redis, growth, cluster, nodes, reader, groups, window, acts]
    parts = [*below, apis, process.part, event_loop.build(), *view]
    app = admin.build(
        config,
        source,
        cluster.room,
        server.room,
        nodes.room,
        groups.room,
        window.room,
        acts.room,
        growth.room.repartitions,
        [*parts, server],
        now_ms,
    )
    rest = rest_server.build(
        config.admin, app.room, server.room.server.certificates
    )  # binds its port before clients can come
    last = [members.farewell(groups.room, owners), *routing.joining(nodes.room)]
    first, held = repartition.known(growth.room), memory.build(reader.room)
    return [*parts, app, rest, first, server, held, *last]
