"""Metrics of one among several nodes. A node that stands alone has none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.core.routing.adoption import of_cluster
from gateway.routing.moves import PendingMoves
from gateway.routing.owners import SharedOwners

ADOPTED = "adopted"  # the fact of a node that says how far its clients have come


@dataclass(slots=True, eq=False)
class NodesCollector(Collector):
    owners: SharedOwners
    moves: PendingMoves
    differing: Callable[[], Sequence[str]]  # live nodes with other settings than this one's
    clock_off_ms: Callable[[], float | None]

    def collect(self) -> Iterator[Metric]:
        owners = self.owners
        alive = sum(row.alive_ms > 0 for row in owners.rows)
        owned = sum(owner == owners.node_id for owner in owners.routing.owners.values())
        yield GaugeMetricFamily("keyway_nodes_alive", "Nodes that share the Redis", alive)
        yield GaugeMetricFamily("keyway_nodes_owned_brokers", "Virtual brokers it owns", owned)
        yield CounterMetricFamily(
            "keyway_nodes_handed_over_brokers", "Virtual brokers it let go of", owners.moves
        )
        yield CounterMetricFamily(
            "keyway_nodes_hand_over_seconds",
            "Time to let go of them: windows persisted and dropped",
            owners.moves_ms / 1000,
        )
        yield CounterMetricFamily(
            "keyway_nodes_pushes",
            "Parked fetches that were told to look again, because an owner has changed",
            owners.pushes,
        )
        yield GaugeMetricFamily(
            "keyway_nodes_generation",
            "Generation of the routing content, as the node knows it",
            owners.generation,
        )
        said = {row.node.id: row.facts.get(ADOPTED) for row in owners.rows if row.alive_ms > 0}
        yield GaugeMetricFamily(
            "keyway_nodes_adopted_generation",
            "The lowest that clients of all nodes were served with Metadata; 0: not adopted yet",
            of_cluster(said) or 0,
        )
        yield from self._amiss()

    def _amiss(self) -> Iterator[Metric]:
        owners = self.owners
        silent = GaugeMetricFamily(
            "keyway_nodes_silent_seconds",
            "How long a node has counted as dead that did not leave; for an hour",
            labels=["node"],
        )
        for row in owners.rows:
            if row.alive_ms <= 0:
                silent.add_metric([row.node.id], -row.alive_ms / 1000)
        yield silent
        yield GaugeMetricFamily(
            "keyway_nodes_unowned_brokers",
            "Virtual brokers that no live node owns",
            len(owners.unowned()),
        )
        yield GaugeMetricFamily(
            "keyway_nodes_moving_seconds",
            "How long the longest move of a virtual broker has been pending; 0: none is",
            self.moves.longest_s(),
        )
        yield GaugeMetricFamily(
            "keyway_nodes_other_settings",
            "Live nodes with other settings of groups than this one",
            len(self.differing()),
        )
        off_ms = self.clock_off_ms()
        if off_ms is not None:
            yield GaugeMetricFamily(
                "keyway_nodes_clock_off_seconds",
                "The clock of the Redis that all nodes share, less that of this node",
                off_ms / 1000,
            )
