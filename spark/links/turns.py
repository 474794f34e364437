"""The links of one process, each for as long as it has the lease of that link. A second process of
a link stands by, and goes on when the first one ends.

The lease is a consumer group on the link's source, beside its status topic. What a process still
writes after it has lost the lease is fenced by Kafka's transactions, and at an old target by
spark/links/fence.py.
"""

from __future__ import annotations

import threading
from time import monotonic

import structlog
from confluent_kafka import KafkaException
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

from keyway.clusters.config import ClustersConfig, ConfigError
from keyway.clusters.core.tree import ClusterName, Distributor, Level
from keyway.kafka.identities import Identities
from keyway.kafka.lease import Lease
from keyway.service import Backoff, serve_metrics
from spark.links.distribute import LinkRun
from spark.links.link import link_name
from spark.links.metrics import LinkCollector
from spark.links.reports import LinkReport
from spark.links.status import StatusTopic
from spark.pipelines.config import Pipeline, load_pipeline
from spark.streaming.kafka import KafkaSide
from spark.streaming.limits import LEASE_SESSION_MS, RETRY_S, RETRY_S_MAX, STANDBY_LOOKS_EVERY_S

log = structlog.get_logger("keyway.links")

_POLL_S = 0.5


class LinkTurns:
    """One link of this process. `report` is that of the present turn, or of the last one."""

    def __init__(
        self,
        session: SparkSession,
        config: ClustersConfig,
        distributor: Distributor,
        stop: threading.Event,
        pipeline: Pipeline | None,
        *,
        from_start: bool = False,
        identities: Identities | None = None,
    ) -> None:
        self._parts = (session, config, distributor)
        self._from_start = from_start
        self._identities = identities or Identities(config)
        self._pipeline = pipeline
        self._stop = stop
        self._name = link_name(distributor.source, distributor.level)
        self._source = KafkaSide(config.cluster(distributor.source))
        self._status = StatusTopic(self._source, config.messages.status_topic)
        self._lease = Lease(
            self._source.settings,
            config.messages.status_topic,
            group=f"keyway-lease-{self._name}",
            session_ms=LEASE_SESSION_MS,
        )
        self._next = self._new()

    @property
    def report(self) -> LinkReport:
        return self._next.report

    def run(self) -> None:
        """Works until `stop` is set. Raises what ends a link."""
        looked_s, looks, told = -STANDBY_LOOKS_EVERY_S, 0, False
        try:
            while not self._stop.is_set():
                if monotonic() - looked_s > STANDBY_LOOKS_EVERY_S:
                    self._status_topic()
                    looks += 1
                    told = told or self._tell_why_it_waits(looks)
                    looked_s = monotonic()
                if self._lease.poll(_POLL_S):
                    self._turn()
                    looks, told = 0, False
        finally:
            self._lease.release()

    def _tell_why_it_waits(self, looks: int) -> bool:
        """Returns whether it did. At the first look Kafka has not had the time to say anything."""
        if self._others():
            log.info("link_stands_by", link=self._name)
        elif looks > 1:
            why = self._lease.problem or "nothing is heard of the group's coordinator"
            fault = f"the lease (group {self._lease.group}) is not given: {why}"
            log.warning("link_waits", link=self._name, fault=fault)
        else:
            return False
        return True

    def _others(self) -> bool:
        """The processes besides this one, once it has joined."""
        return len(self._lease.members()) > 1

    def _turn(self) -> None:
        """Works until `stop` is set or the lease is lost. A later turn begins with a new run, which
        reads everything anew.
        """
        link, failed = self._next, list[BaseException]()

        def work() -> None:
            try:
                link.run()
            except BaseException as error:  # noqa: BLE001 - raised again below
                failed.append(error)

        worker = threading.Thread(target=work, name=self._name, daemon=True)
        worker.start()
        while worker.is_alive():
            if not self._lease.poll(_POLL_S) and not link.stop.is_set() and not self._stop.is_set():
                log.warning("link_lease_lost", link=self._name)
                link.report.silence()
                link.stop.set()
            if self._stop.is_set():
                link.stop.set()
        if failed:
            raise failed[0]
        if not self._stop.is_set():
            self._next = self._new()

    def _new(self) -> LinkRun:
        session, config, distributor = self._parts
        stop = threading.Event()
        return LinkRun(
            session,
            config,
            distributor,
            stop,
            self._pipeline,
            self._from_start,
            self._identities,
        )

    def _status_topic(self) -> None:
        """Waits for the source's status topic: the lease is a partition of it, so it must exist,
        and a source that is away is waited for.
        """
        backoff = Backoff(RETRY_S, RETRY_S_MAX)
        while not self._stop.is_set():
            try:
                self._status.ensure()
                return
            except KafkaException as error:
                wait_s = backoff.failed()
                fault = error.args[0].str()
                log.warning("link_waits", link=self._name, fault=fault, wait_s=wait_s)
                self._stop.wait(wait_s)


def run_links(
    session: SparkSession,
    config: ClustersConfig,
    cluster: ClusterName,
    *,
    level: int | None,
    stop: threading.Event,
    from_start: bool = False,
    identities: Identities | None = None,
) -> None:
    """Runs all links of a cluster, or that of one level, until `stop` is set. With `from_start`,
    topics of which the target has copies but no position are copied again. Raises TreeError if
    there is no such link, ConfigError, PipelineError, and the errors that end a link.
    """
    identities = identities or Identities(config)
    tree = config.checked_tree()
    path = config.messages.pipeline
    pipeline = None if path is None else load_pipeline(path)
    chosen = tree.of(cluster) if level is None else (tree.distributor(cluster, Level(level)),)
    ended: list[BaseException] = []

    def run(link: LinkTurns) -> None:
        try:
            link.run()
        except BaseException as error:
            ended.append(error)
            stop.set()
            if not isinstance(error, ConfigError):  # The caller tells of it in one line.
                raise

    links = [
        LinkTurns(
            session,
            config,
            distributor,
            stop,
            pipeline,
            from_start=from_start,
            identities=identities,
        )
        for distributor in chosen
    ]
    registry = CollectorRegistry()
    registry.register(LinkCollector(lambda: [link.report for link in links]))
    serve_metrics(config.messages.metrics_port, registry)
    threads = [threading.Thread(target=run, args=(link,), daemon=True) for link in links]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.5)  # signals reach the main thread meanwhile
    if ended:
        raise ended[0]
