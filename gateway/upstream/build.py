"""The upstream cluster as a part of the node: the view of it, connections to it, commits in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gateway.core.cluster.topology import Topology
from gateway.part import Part, Trouble
from gateway.upstream.cluster import Upstream
from gateway.upstream.commits import Commits
from gateway.upstream.ping import ping_forever
from gateway.upstream.settings import UpstreamSettings


@dataclass(frozen=True, slots=True)
class UpstreamRoom:
    cluster: Upstream
    commits: Commits


class Brokers(Protocol):
    """gateway.upstream.cluster.Upstream"""

    @property
    def topology(self) -> Topology: ...
    def silent_brokers(self) -> dict[int, str]: ...


def build(settings: UpstreamSettings) -> Part[UpstreamRoom]:
    cluster = Upstream(settings)
    commits = Commits(cluster)

    async def start() -> None:
        await cluster.start()
        await commits.probe_limits()

    async def troubles() -> Sequence[Trouble]:
        return broker_troubles(cluster)

    def figures() -> dict[str, Any]:
        topology = cluster.topology
        return {"cluster_id": topology.cluster_id, "brokers": len(topology.brokers)}

    async def close() -> None:
        cluster.close()

    return Part(
        name="upstream",
        room=UpstreamRoom(cluster, commits),
        troubles=troubles,
        figures=figures,
        start=start,
        background=(cluster.run, lambda: ping_forever(cluster)),
        close=close,
    )


def broker_troubles(brokers: Brokers) -> list[Trouble]:
    """Brokers that do not answer. Without any broker the node cannot serve."""
    known = len(brokers.topology.brokers)
    silent = brokers.silent_brokers()
    found = [
        Trouble(f"broker {broker} does not answer: {reason}") for broker, reason in silent.items()
    ]
    if len(silent) == known:
        found.insert(0, Trouble(f"none of {known} upstream brokers answers", serving=False))
    return found
