"""How the node is, for three who ask: an alarm (`/health`: is anything amiss), a load balancer
(`/health/ready`: can it serve at all) and who restarts what hangs (`/health/live`: does it answer).

One partition that cannot be read is amiss, but no reason to send everybody's clients away; a Redis
or a Kafka that is away is amiss and not ready, but no reason to restart the node, which would mend
neither. What the records themselves want (parked ones, dead letters that are not taken) is the
group's business: it is shown there, and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from redis.exceptions import RedisError

from gateway.admin.limits import HEALTH_STORE_S_MAX
from gateway.core.cluster.topology import Topology
from gateway.logs import lost_lines
from gateway.windows.windows import Windows


class Pinged(Protocol):
    """redis.asyncio.Redis"""

    def ping(self) -> Awaitable[object]: ...


class UpstreamHealth(Protocol):
    """gateway.upstream.cluster.Upstream"""

    @property
    def topology(self) -> Topology: ...
    def silent_brokers(self) -> dict[int, str]: ...


@dataclass(frozen=True, slots=True)
class Health:
    """`reasons`: what is amiss, a line each; none: all is well."""

    ready: bool
    reasons: tuple[str, ...]
    figures: dict[str, Any]

    def shown(self) -> dict[str, Any]:
        status = "up" if not self.reasons else "degraded" if self.ready else "not ready"
        return {"status": status, "reasons": list(self.reasons), **self.figures}


@dataclass(frozen=True, slots=True)
class NodeHealth:
    redis: Pinged
    upstream: UpstreamHealth
    windows: Windows
    failing_partitions: Callable[[], int]
    stopping: Callable[[], bool]

    async def look(self) -> Health:
        blocking = [*await self._store(), *self._upstream()]
        if self.stopping():
            blocking.append("the node is stopping")
        windows = self.windows.all()
        waiting = [window for window in windows if window.dispatcher is None and window.trouble]
        partly = [
            f"broker {broker} does not answer: {why}"
            for broker, why in self.upstream.silent_brokers().items()
        ]
        if waiting:
            partly.append(f"{len(waiting)} windows wait, the first: {waiting[0].trouble}")
        if failing := self.failing_partitions():
            partly.append(f"{failing} partitions cannot be read")
        if lost_lines.trouble is not None:
            partly.append(lost_lines.trouble)
        partly += [f"commits of group {name} fail" for name in self.windows.commits_failing()]
        figures = {
            "cluster_id": self.upstream.topology.cluster_id,
            "brokers": len(self.upstream.topology.brokers),
            "windows": len(windows),
            "windows_waiting": sum(window.dispatcher is None for window in windows),
        }
        return Health(not blocking, (*blocking, *partly), figures)

    async def _store(self) -> list[str]:
        try:
            async with asyncio.timeout(HEALTH_STORE_S_MAX):
                await self.redis.ping()
        except (RedisError, OSError, TimeoutError) as error:
            return [f"Redis does not answer: {str(error) or 'in time'}"]
        return []

    def _upstream(self) -> list[str]:
        known = len(self.upstream.topology.brokers)
        if len(self.upstream.silent_brokers()) == known:
            return [f"none of {known} upstream brokers answers"]
        return []
