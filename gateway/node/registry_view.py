"""The registry view, a process of its own beside the node: on when `registry_view` is set, and
never the node's end.

Strangers feed it texts of megabytes; in the node's event loop each would hold up all Kafka clients.
The view writes a line about itself each second. A view that ends or falls silent is started again,
after a pause that doubles.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from subprocess import Popen
from typing import Any

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.config.file import ConfigError
from gateway.config.state import RegistryViewSection
from gateway.embedded.process import start_child, stop_child
from gateway.node.limits import (
    VIEW_BEAT_BYTES_MAX,
    VIEW_LASTED_S_MIN,
    VIEW_OLD_S_MIN,
    VIEW_RETRY_S_MAX,
    VIEW_RETRY_S_MIN,
    VIEW_SILENT_S_MAX,
    VIEW_STOP_S_MAX,
)
from gateway.part import Part, Trouble
from keyway.tls.certificates import AllCertificates, UnusableFiles

log = structlog.get_logger("keyway.schemas")

_NEEDED = ("aiohttp", "confluent_kafka")  # of the extra `distribution`


def build(section: RegistryViewSection, all_of_node: AllCertificates) -> list[Part[None]]:
    """One part, or none if the view is off. The certificate of the view becomes one of the node's.
    Raises ConfigError.
    """
    if section.clusters_file is None or section.cluster is None:
        return []
    from keyway.clusters.config import load
    from keyway.clusters.view_certificate import certificate_of
    from keyway.terminal.extras import what_to_install

    missing = [module for module in _NEEDED if find_spec(module) is None]
    if missing:
        absent = ModuleNotFoundError(name=missing[0])
        raise ConfigError(f"registry_view: {what_to_install(absent)}")
    try:
        cluster = load(section.clusters_file).cluster(section.cluster)
    except ConfigError as error:
        raise ConfigError(f"registry_view: {error}") from error
    if cluster.registry_view is None:
        raise ConfigError(f"registry_view: cluster {cluster.name} has no registry_view")
    try:
        certificate = certificate_of(cluster.registry_view)
    except UnusableFiles as unusable:
        raise ConfigError(f"registry_view: {unusable}") from unusable
    if certificate is not None:
        all_of_node.add(certificate)
    words = ("-m", "schema_dist", "view", str(section.clusters_file), section.cluster)
    view = View((sys.executable, *words))
    return [
        Part(
            name="registry_view",
            room=None,
            background=(view.run,),
            troubles=view.troubles,
            collectors=(view,),
        )
    ]


class View(Collector):
    """Runs `command`, which takes `--beats FD`."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)
        self._failure: str | None = "the registry view starts"
        self._beat: dict[str, Any] = {}
        self._starts = 0
        # A child dies with the thread that started it, so one thread starts them all.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="registry-view")

    async def run(self) -> None:
        """Runs the view until it is cancelled."""
        loop, pause_s = asyncio.get_running_loop(), VIEW_RETRY_S_MIN
        try:
            while True:
                began = loop.time()
                await self._life()
                self._beat = {}
                log.warning("registry_view_ended", why=self._failure, retry_s=pause_s)
                if loop.time() - began > VIEW_LASTED_S_MIN:
                    pause_s = VIEW_RETRY_S_MIN
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, VIEW_RETRY_S_MAX)
        finally:
            self._thread.shutdown(wait=False)

    async def _life(self) -> None:
        """Runs one process from its start to its end; `_failure` has the reason of the end."""
        loop = asyncio.get_running_loop()
        read_end, write_end = os.pipe()
        pipe = os.fdopen(read_end, "rb", buffering=0)
        reader = asyncio.StreamReader(limit=VIEW_BEAT_BYTES_MAX)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        child: Popen[bytes] | None = None
        try:
            command = (*self._command, "--beats", str(write_end))
            child = await loop.run_in_executor(self._thread, _started, command, write_end)
            self._starts += 1
            log.info("registry_view_started", pid=child.pid)
            self._failure = f"the registry view: {await self._follow(reader)}"
        except (OSError, ValueError) as error:
            self._failure = f"the registry view: {error}"
        finally:
            transport.close()
            if child is not None:
                await loop.run_in_executor(
                    self._thread, partial(stop_child, child, grace_s=VIEW_STOP_S_MAX)
                )

    async def _follow(self, reader: asyncio.StreamReader) -> str:
        """The reason for its end. Raises ValueError for a line that is too long or no JSON."""
        while True:
            try:
                async with asyncio.timeout(VIEW_SILENT_S_MAX):
                    line = await reader.readline()
            except TimeoutError:
                return f"the process was silent for {VIEW_SILENT_S_MAX:.0f} s"
            if not line:
                return "the process ended: its last lines in the log say why"
            beat: dict[str, Any] = json.loads(line)
            if "failure" in beat:
                return str(beat["failure"])
            self._beat = beat
            self._failure = _failure_of(beat)

    async def troubles(self) -> Sequence[Trouble]:
        return [] if self._failure is None else [Trouble(self._failure)]

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily(
            "keyway_registry_view_up",
            "1 while the registry view beside the node answers",
            value=float(self._failure is None),
        )
        yield CounterMetricFamily(
            "keyway_registry_view_starts", "Starts of the registry view", value=self._starts
        )
        yield GaugeMetricFamily(
            "keyway_registry_view_versions",
            "Versions that the registry view shows",
            value=self._beat.get("versions", 0),
        )
        yield GaugeMetricFamily(
            "keyway_registry_view_age_seconds",
            "Time since the registry view has read its source",
            value=self._beat.get("age_s", 0),
        )
        yield GaugeMetricFamily(
            "keyway_registry_view_memory_bytes",
            "Resident memory of the registry view",
            value=self._beat.get("memory_bytes", 0),
        )


def _failure_of(beat: Mapping[str, Any]) -> str | None:
    """Of a view that goes on: what it shows is of before, or there is nothing yet."""
    problem, age_s = beat["problem"], beat["age_s"]
    if not beat["read"]:
        return f"the registry view has read no schemas yet{': ' if problem else ''}{problem}"
    if problem and age_s >= VIEW_OLD_S_MIN:
        return f"the registry view shows the schemas of {age_s:.0f} s ago: {problem}"
    return None


def _started(command: Sequence[str], write_end: int) -> Popen[bytes]:
    try:
        return start_child(command, pass_fds=(write_end,))
    finally:
        os.close(write_end)
