"""Whether each cluster is the one that the file means: its brokers have the id that the file
expects, and no two names stand for one cluster. A service asks at its start, and asks a cluster
that was away, or has failed, again before it works with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import cast

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from keyway.clusters.config import Cluster, ClustersConfig, ConfigError
from keyway.clusters.core.tree import ClusterName, OneClusterTwice, require_different_clusters
from keyway.kafka.asking import Asking, Away

ANSWER_S = 5.0  # of each cluster; all are asked at the same time
_QUIET = 2  # librdkafka's own log


def cluster_id_of(cluster: Cluster) -> str | Away:
    """Asked with Metadata: for DescribeCluster librdkafka waits until a controller is known, which
    a broker that has just started may not tell. Raises ConfigError without the password.
    """
    admin = AdminClient({**cluster.client_settings(), "log_level": _QUIET})
    try:
        found = cast("str | None", admin.list_topics(timeout=ANSWER_S).cluster_id)
    except KafkaException as error:
        return Away(f"no answer at {cluster.bootstrap_servers}: {error.args[0].str()}")
    return Away("it tells no cluster id") if found is None else found


class Identities:
    """The ids that are known so far. Any thread may ask."""

    def __init__(
        self,
        config: ClustersConfig,
        ask: Callable[[Cluster], str | Away] = cluster_id_of,
        *,
        each_another: bool = True,
    ) -> None:
        """`each_another` False: several names may stand for one cluster."""
        self._clusters = {cluster.name: cluster for cluster in config.clusters}
        self._ask = ask
        self._each_another = each_another
        self._known: dict[str, str] = {}
        self._lock = threading.Lock()

    def look(self, names: Iterable[str] | None = None) -> dict[str, str]:
        """Asks all clusters, or the named ones. Returns the clusters that are away, with the
        reasons. Raises ConfigError for a cluster that is not what the file says.
        """
        wanted = self._clusters if names is None else set(names)
        asked = {
            name: partial(self._ask, cluster)
            for name, cluster in self._clusters.items()
            if name in wanted and name not in self._known
        }
        answers = Asking[str | Away](asked).look()
        with self._lock:
            self._known |= {name: id_ for name, id_ in answers.items() if isinstance(id_, str)}
            self._require()
        return {name: answer.reason for name, answer in answers.items() if isinstance(answer, Away)}

    def _require(self) -> None:
        for name, found in self._known.items():
            expected = self._clusters[name].cluster_id
            if expected not in (None, found):
                raise ConfigError(
                    f"{name} is not the cluster that the file names: its id is {found}, not"
                    f" {expected}"
                )
        if not self._each_another:
            return
        try:
            require_different_clusters(
                {ClusterName(name): self._known[name] for name in self._known}
            )
        except OneClusterTwice as error:
            raise ConfigError(str(error)) from None

    def doubt(self, names: Iterable[str]) -> None:
        """They failed, and are asked again: an address that comes back may lead elsewhere now."""
        with self._lock:
            for name in names:
                self._known.pop(name, None)

    def of(self, name: str) -> str | None:
        """The cluster's id; None if the cluster has not answered yet."""
        return self._known.get(name)
