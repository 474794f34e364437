"""Names of a link in Kafka: they stay the same over a switch of targets."""

from __future__ import annotations

from dataclasses import replace

from keyway.clusters.core.tree import ClusterName, Distributor, Level
from spark.links.link import Link

C1, C2, C3 = (ClusterName(name) for name in ("c1", "c2", "c3"))
LINK = Link(Distributor(C1, Level(3), (C2, C3), (C2, C3)), C2)


def test_names() -> None:
    assert LINK.name == "c1-level-3"
    assert LINK.group == "keyway-link-c1-level-3"
    switched = replace(LINK, target=C3)
    assert (switched.name, switched.group) == (LINK.name, LINK.group)
