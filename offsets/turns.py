"""The processes of one cluster's service take turns: one has the lease and works, others stand by.

Two at once would write down and commit positions side by side. The slower one puts groups back
behind the other, and its commits look like work of the groups themselves, which are then not moved
any more. The lease is a consumer group beside the cluster's state topic (keyway/kafka/lease.py).
"""

from __future__ import annotations

import threading
from contextlib import closing
from time import monotonic

import structlog

from keyway.clusters.config import ClustersConfig
from keyway.clusters.core.internal import OFFSETS_TOPIC
from keyway.kafka.identities import Identities
from keyway.kafka.lease import Lease
from offsets.client import ClusterClient
from offsets.errors import ClusterAway, LeaseNotSure, OffsetsError
from offsets.limits import LEASE_SESSION_MS, STANDBY_LOOKS_EVERY_S
from offsets.metrics import Metrics
from offsets.service import Service, followed_group
from offsets.state_topic import StateTopic

log = structlog.get_logger("keyway.offsets")

LEASE_GROUP = "keyway-lease-offsets"
_POLL_S = 0.5
_SURE_S = LEASE_SESSION_MS / 2_000  # half a session: nobody else can have had the lease since


class Turns:
    """The turns of this process. `metrics` are those of all its turns."""

    def __init__(self, config: ClustersConfig, name: str) -> None:
        """Raises ConfigError."""
        cluster = config.cluster(name)
        followed_group(config, ClusterClient(cluster))  # before another process is waited for
        self.metrics = Metrics()
        self._config, self._name = config, name
        self._identities = Identities(config)
        settings = cluster.client_settings()
        self._lease = Lease(settings, OFFSETS_TOPIC, group=LEASE_GROUP, session_ms=LEASE_SESSION_MS)
        self._sure_s = 0.0  # when the lease was ours for sure, of a monotonic clock
        self._told = ""  # why this process waits

    def run(self, stop: threading.Event) -> None:
        """Works until `stop` is set. Raises ConfigError for a cluster that is not what the file
        says.
        """
        for name, reason in self._identities.look().items():
            log.warning("cluster_is_away", cluster=name, reason=reason)
        looked_s, looks = -STANDBY_LOOKS_EVERY_S, 0
        try:
            while not stop.is_set():
                if monotonic() - looked_s > STANDBY_LOOKS_EVERY_S:
                    self._look(looks)
                    looked_s, looks = monotonic(), looks + 1
                if self._poll():
                    self._told = ""
                    self._turn(stop)
                    looks = 0
        finally:
            self._lease.release()

    def _poll(self) -> bool:
        asked_s = monotonic()
        if held := self._lease.poll(_POLL_S):
            self._sure_s = asked_s
        return held

    def _require_lease(self) -> None:
        if monotonic() - self._sure_s > _SURE_S:
            raise LeaseNotSure(f"{self._name}: the lease (group {LEASE_GROUP}) may be lost")

    def _look(self, looks: int) -> None:
        """Makes sure that there is a topic whose partition is the lease, and says what this process
        waits for. At the first look Kafka has not had the time to give the lease.
        """
        try:
            if away := self._identities.look([self._name]):
                raise ClusterAway(f"{self._name}: {away[self._name]}")
            with closing(StateTopic(ClusterClient(self._config.cluster(self._name)))) as topic:
                topic.ensure()
        except OffsetsError as error:
            self._identities.doubt([self._name])
            self._tell("offsets_wait", str(error), reason=str(error))
            return
        holder = self._lease.holder()
        if holder is not None:
            self._tell("offsets_stand_by", holder, held_by=holder)
        elif looks:
            why = self._lease.problem or "nothing is heard of the group's coordinator"
            reason = f"the lease (group {LEASE_GROUP}) is not given: {why}"
            self._tell("offsets_wait", reason, reason=reason)

    def _tell(self, event: str, why: str, **details: str) -> None:
        if why != self._told:
            log.warning(event, cluster=self._name, **details)
        self._told = why

    def _turn(self, stop: threading.Event) -> None:
        """Works until `stop` is set or the lease is lost. The next turn reads everything anew."""
        ends, failed = threading.Event(), list[BaseException]()

        def work() -> None:
            try:
                service = Service(
                    self._config,
                    self._name,
                    metrics=self.metrics,
                    identities=self._identities,
                    require_lease=self._require_lease,
                )
                with closing(service):
                    service.run(ends)
            except BaseException as error:  # noqa: BLE001 - raised again below
                failed.append(error)

        worker = threading.Thread(target=work, name="keyway-offsets", daemon=True)
        self.metrics.works.set(1)
        worker.start()
        while worker.is_alive():
            if not self._poll() and not ends.is_set() and not stop.is_set():
                log.warning("offsets_lease_lost", cluster=self._name)
                ends.set()
            if stop.is_set():
                ends.set()
        self.metrics.works.set(0)
        if failed:
            raise failed[0]
