"""The topics of a cluster that follow to another, and their names there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from keyway.clusters.config import Cluster, ClustersConfig
from keyway.clusters.core.internal import is_internal
from keyway.clusters.core.names import Unfit


@dataclass(frozen=True, slots=True)
class Following:
    """A topic by its name here, its logical name, and its name there, if it can have one."""

    name: str
    logical: str
    there: str | Unfit


def following(
    config: ClustersConfig, source: Cluster, target: Cluster, names: Iterable[str]
) -> Iterator[Following]:
    """Those of `names` that the configuration includes. Internal topics and those of other tenants
    are left out.
    """
    here, there = source.topic_names(), target.topic_names()
    for name in names:
        logical = here.there(name)
        if (
            not is_internal(name)
            and not isinstance(logical, Unfit)
            and config.topics.takes(logical)
        ):
            yield Following(name, logical, there.back(logical))


def topic_there(source: Cluster, target: Cluster, topic: str) -> str | None:
    """The target's name of a topic of the source; None if it has none."""
    logical = source.topic_names().there(topic)
    name = logical if isinstance(logical, Unfit) else target.topic_names().back(logical)
    return None if isinstance(name, Unfit) else name
