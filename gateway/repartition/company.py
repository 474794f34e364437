"""The nodes that take part in a repartition: who is alive, what each has told of it, and who takes
its steps.

A node tells the others with each of its beats (gateway/routing): for every topic, the version of
the record that it acts by, how many of its connections may produce by the Metadata of before, and
when it last saw a late record. The live node whose id sorts first takes the steps. That two take
themselves for it does no harm: of two that write a record, one succeeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gateway.core.repartition.progress import NodeSaid
from gateway.core.repartition.record import Repartition
from gateway.repartition.limits import SILENT_MS_MAX
from gateway.routing.limits import BEAT_MS, SESSION_MS
from gateway.routing.owners import SharedOwners

FACT: Final = "repartitions"
_ALONE: Final = "this node"


@dataclass(frozen=True, slots=True)
class Company:
    """`shared` None: the node stands alone. `told`: the facts that it tells with its beats."""

    shared: SharedOwners | None
    told: dict[str, Callable[[], Any]]

    def tell(self, said: Callable[[], Mapping[str, NodeSaid]]) -> None:
        """`said`: by topic."""
        self.told[FACT] = lambda: {
            topic: [each.version, each.producers, each.late_ms] for topic, each in said().items()
        }

    @property
    def me(self) -> str:
        return _ALONE if self.shared is None else self.shared.node_id

    @property
    def live(self) -> list[str]:
        others = [] if self.shared is None else self.shared.others()
        return sorted({self.me, *others})

    @property
    def leader(self) -> str:
        return self.live[0]

    def way(self, broker: int) -> tuple[str, int] | None:
        """The node that serves a virtual broker, and how many ms ago it was alive for certain.
        None: none that is known to be alive.
        """
        if self.shared is None:
            return _ALONE, 0
        owner = self.shared.routing.owners.get(broker)
        if owner == self.me:
            return (owner, 0) if self.shared.certain() else None
        rows = [row for row in self.shared.rows if row.node.id == owner]
        if owner is None or not rows or self.shared.trouble:
            return None
        silent_ms = SESSION_MS - rows[0].alive_ms + BEAT_MS  # as of this node's last beat
        return (owner, silent_ms) if silent_ms <= SILENT_MS_MAX else None

    def withholds(self, record: Repartition) -> bool:
        """Whether nobody is to be told how many partitions the topic has: another node may show
        the new ones, and a client that had seen them would go back to the old ones.
        """
        if self.shared is None or record.into or record.shows_new or not record.runs:
            return False
        return record.prepared or not self.shared.certain()

    def leads(self) -> bool:
        """Not while the others may count this node as dead."""
        if self.shared is None:
            return True
        return self.leader == self.me and self.shared.certain()

    def said(self, topic: str, mine: NodeSaid) -> dict[str, NodeSaid]:
        """By live node; one that has told nothing is missing."""
        found = {self.me: mine}
        for row in () if self.shared is None else self.shared.rows:
            told = row.facts.get(FACT, {}).get(topic)
            if row.node.id in self.live and row.node.id != self.me and told is not None:
                version, producers, late_ms = told
                found[row.node.id] = NodeSaid(version, producers, late_ms)
        return found
