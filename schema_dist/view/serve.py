"""Serves a cluster's registry view: follows its `_schemas` (or polls its registry), listens, stops
when it is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import time
from contextlib import AsyncExitStack
from pathlib import Path

import structlog
from starlette.applications import Starlette

from keyway.clusters.config import Cluster, ClustersConfig, ConfigError, RegistryView
from keyway.clusters.core.subjects import RecordNames, SubjectTranslation
from keyway.clusters.view_certificate import certificate_of
from keyway.rest.serving import Serving
from keyway.service import Backoff
from keyway.tls.certificates import AllCertificates, UnusableFiles
from schema_dist.core.contents import Contents
from schema_dist.core.model import SubjectVersion
from schema_dist.core.shown import Shown, under_logical_names
from schema_dist.errors import AwayError, LogError, RefusedError
from schema_dist.limits import (
    RETRY_S_MAX,
    RETRY_S_MIN,
    VIEW_BEAT_S,
    VIEW_CONNECTIONS_MAX,
    VIEW_POLL_S,
    VIEW_PROBLEM_CHARS_MAX,
)
from schema_dist.parts import Source, source_of
from schema_dist.tasks import together
from schema_dist.transport import Connections
from schema_dist.view.app import Behind, view_app
from schema_dist.view.primary import Primary

_LOG = structlog.get_logger("keyway.schemas")


class Follower:
    """The newest contents of the cluster's registry, under logical names."""

    def __init__(self, source: Source, names: SubjectTranslation, poll_s: float) -> None:
        self._source = source
        self._names = names
        self._poll_s = poll_s
        self.shown: Shown | None = None
        self.problem = ""  # why the source cannot be read; "" while it can
        self._read_s = time.monotonic()

    def age_s(self) -> float:
        """Since the source was read last, or is being tried."""
        return time.monotonic() - self._read_s

    async def run(self) -> None:
        """Runs until it is cancelled. While nothing can be read, the contents that were read last
        are shown.
        """
        known, changes = Contents(), 0
        backoff = Backoff(RETRY_S_MIN, RETRY_S_MAX)
        while True:
            try:
                contents = await self._source.read()
            except (AwayError, LogError, RefusedError) as error:
                self.problem = str(error)
                wait_s = backoff.failed()
                _LOG.warning("view_source_unreadable", error=str(error), retry_s=wait_s)
                await asyncio.sleep(wait_s)
                continue
            backoff.worked()
            self.problem, self._read_s = "", time.monotonic()
            if contents is known:
                places = contents.changed_since(changes)
            else:
                places = set[SubjectVersion]() if contents == known else None
            known, changes = contents, contents.changes
            if self.shown is None or places is None:
                self.shown = under_logical_names(contents, self._names)
            else:
                self.shown.update(contents, places)
            await asyncio.sleep(self._poll_s)


def checked(cluster: Cluster) -> RegistryView:
    """Where the view listens. Raises ConfigError if the cluster has no `registry_view`."""
    if cluster.registry_view is None:
        raise ConfigError(f"cluster {cluster.name} has no registry_view")
    return cluster.registry_view


async def serve(config: ClustersConfig, cluster: Cluster, beats: int | None = None) -> None:
    """Serves until it is cancelled. `beats`: a pipe to which the view writes a line a second about
    itself, and the reason when it ends. Raises ConfigError if there is no view, or its port is
    taken.
    """
    try:
        await _serve(config, cluster, beats)
    except ConfigError as error:
        if beats is not None:
            os.write(beats, json.dumps({"failure": str(error)}).encode() + b"\n")
        raise


async def _serve(config: ClustersConfig, cluster: Cluster, beats: int | None) -> None:
    section = checked(cluster)
    try:
        listening = socket.create_server((section.host, section.port))
        listening.setblocking(False)
    except OSError as error:
        where = f"{section.host}:{section.port}"
        raise ConfigError(f"registry_view: cannot listen on {where}: {error.strerror}") from error
    policy = RecordNames(config.schemas.record_names)
    async with AsyncExitStack() as stack:
        stack.callback(listening.close)
        source = await stack.enter_async_context(source_of(cluster))
        polled = cluster.registry is not None and cluster.registry.reads == "rest"
        poll_s = config.schemas.poll_interval_ms / 1000 if polled else VIEW_POLL_S
        follower = Follower(source, cluster.subject_names(policy), poll_s)
        primary = await _primary(config, policy, stack)
        authenticate = _asks_for_passwords(config, section)
        behind = Behind(lambda: follower.shown, primary, authenticate, follower.age_s)
        certificates = AllCertificates()
        serving = serving_of(section, view_app(behind), certificates)
        _LOG.info("registry_view", cluster=cluster.name, host=section.host, port=section.port)
        await serving.start(listening)
        work = [
            follower.run(),
            serving.run(),
            serving.accept(),
            certificates.look_forever(),
        ]
        await together(work if beats is None else [*work, _beat(beats, follower)])


def _memory_bytes() -> int:
    """The resident memory; 0 where the system does not tell."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


async def _beat(pipe: int, follower: Follower) -> None:
    """Tells the node that started the view how it is, until it is cancelled. If the node has gone,
    the view ends, too.
    """
    os.set_blocking(pipe, False)
    while True:
        shown = follower.shown
        line = {
            "read": shown is not None,
            "versions": 0 if shown is None else shown.count,
            "age_s": round(follower.age_s(), 1),
            "problem": follower.problem[:VIEW_PROBLEM_CHARS_MAX],
            "memory_bytes": _memory_bytes(),
        }
        with contextlib.suppress(BlockingIOError):  # the node is slow
            os.write(pipe, json.dumps(line).encode() + b"\n")
        await asyncio.sleep(VIEW_BEAT_S)


def serving_of(section: RegistryView, app: Starlette, certificates: AllCertificates) -> Serving:
    """Its certificate is one of `certificates`. Raises ConfigError if that or its key cannot be
    used.
    """
    try:
        own = certificate_of(section)
    except UnusableFiles as unusable:
        raise ConfigError(f"registry_view: {unusable}") from unusable
    if own is not None:
        certificates.add(own)
    return Serving(app, VIEW_CONNECTIONS_MAX, None if own is None else own.following())


def _asks_for_passwords(config: ClustersConfig, section: RegistryView) -> bool:
    if section.authenticate is not None or config.schemas.primary is None:
        return bool(section.authenticate)
    registry = config.cluster(config.schemas.primary).registry
    return registry is not None and registry.basic is not None


async def _primary(
    config: ClustersConfig, policy: RecordNames, stack: AsyncExitStack
) -> Primary | None:
    name = config.schemas.primary
    registry = None if name is None else config.cluster(name).registry
    if name is None or registry is None:
        return None
    ca_file = None if registry.ca_file is None else str(registry.ca_file)
    http = await stack.enter_async_context(Connections(ca_file=ca_file))
    return Primary(registry.url, config.cluster(name).subject_names(policy), http)
