"""A link copies the records of one cluster at one level to its target. Here: its names in Kafka."""

from __future__ import annotations

from dataclasses import dataclass

from keyway.clusters.core.tree import ClusterName, Distributor, Level


@dataclass(frozen=True, slots=True)
class Link:
    """One distributor and the target it has now."""

    distributor: Distributor
    target: ClusterName

    @property
    def source(self) -> ClusterName:
        return self.distributor.source

    @property
    def level(self) -> Level:
        return self.distributor.level

    @property
    def name(self) -> str:
        """The link's name, which stays the same when its target is switched."""
        return link_name(self.source, self.level)

    @property
    def group(self) -> str:
        """The consumer group whose committed offsets on the target are the link's positions: how
        far it has copied the *source's* partitions, under the target's topic names.
        """
        return f"keyway-link-{self.name}"

    def transactional_id(self, topic: str, partition: int) -> str:
        """The transactional id of the one task that writes to that partition. A later task fences
        it.
        """
        return f"{self.group}-{topic}-{partition}"


def link_name(source: ClusterName, level: Level) -> str:
    return f"{source}-level-{level}"
