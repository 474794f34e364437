"""The registry view inside the node: on when `registry_view` is set, and never the node's end.

`clusters` and `schema_dist` are imported here, and only when it is on: they need packages that a
plain gateway does without, and time at its start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import structlog

from gateway.config import ConfigError, RegistryViewSection
from gateway.node.limits import VIEW_RETRY_S
from gateway.part import Part, Trouble

log = structlog.get_logger("keyway.schemas")

# Told once it listens; runs until it is cancelled.
Serve = Callable[[Callable[[], None]], Coroutine[Any, Any, None]]


def build(section: RegistryViewSection) -> list[Part[None]]:
    """One part, or none if the view is off. Raises ConfigError."""
    if section.clusters_file is None or section.cluster is None:
        return []
    from clusters.config import load
    from clusters.extras import what_to_install

    try:
        config = load(section.clusters_file)
        cluster = config.cluster(section.cluster)
        from schema_dist.view.serve import checked, serve
    except ConfigError as error:
        raise ConfigError(f"registry_view: {error}") from error
    except ModuleNotFoundError as error:
        raise ConfigError(f"registry_view: {what_to_install(error)}") from error
    try:
        checked(cluster)
    except ConfigError as error:
        raise ConfigError(f"registry_view: {error}") from error
    view = View(lambda listening: serve(config, cluster, listening))
    return [Part(name="registry_view", room=None, background=(view.run,), troubles=view.troubles)]


class View:
    """Serves, and tries again when that fails; the failure is shown in /health meanwhile."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._failure: str | None = None

    async def run(self) -> None:
        while True:
            try:
                await self._serve(self._listening)
            except Exception as error:  # noqa: BLE001 - the node serves Kafka without it, too
                self._failure = f"the registry view: {error}"
                log.warning("registry_view_failed", error=str(error))
            await asyncio.sleep(VIEW_RETRY_S)

    def _listening(self) -> None:
        self._failure = None

    async def troubles(self) -> Sequence[Trouble]:
        return [] if self._failure is None else [Trouble(self._failure)]
