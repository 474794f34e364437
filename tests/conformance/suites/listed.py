"""The suites: how each runs, and what it needs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from gateway.embedded.jars import KAFKA_VERSION
from tests.conformance.suites import checkouts
from tests.conformance.suites.ecosystem import ecosystem
from tests.conformance.suites.front import NEWEST
from tests.conformance.suites.kafka_tools import kafka_tools
from tests.conformance.suites.kcat import kcat
from tests.conformance.suites.spark_jobs import spark_jobs
from tests.conformance.suites.suite import Suite
from tests.conformance.suites.upstream_changes import upstream_changes

JAVA_CLIENTS = ("3.9.2", KAFKA_VERSION, NEWEST)
MANY_PARTITIONS = {"num.partitions": "4"}
SHORT_LOCKS = {
    "group.share.record.lock.duration.ms": "1000",
    "group.share.min.record.lock.duration.ms": "1000",
}
ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
OF_OTHERS = {
    "confluent-kafka-python": (checkouts.confluent_kafka_python, False, SHORT_LOCKS | ACLS),
    "kafka-python": (checkouts.kafka_python, False, MANY_PARTITIONS),
    "librdkafka": (checkouts.librdkafka, True, MANY_PARTITIONS | ACLS),
    "franz-go": (checkouts.franz_go, True, {}),
    "sarama": (checkouts.sarama, False, {}),
    "aiokafka": (checkouts.aiokafka, False, {"num.partitions": "2"}),
}

_BROKERS = {"sarama": (3,)}  # it creates topics with three replicas
# Defaults of Kafka's groups are the brokers', those of Key-Shared groups stand in keyway.yaml.
_GROUPS = {
    "confluent-kafka-python": (
        {"match": "*", "lock_duration_ms": 1_000, "assignment_interval_ms": 1_000},
    )
}


def suites(paths: Mapping[str, Path | None]) -> list[Suite]:
    """`paths`: of the suites of others; those without one are listed, and cannot run."""
    own = [
        Suite(f"Kafka's programs {version}", partial(kafka_tools, version))
        for version in JAVA_CLIENTS
    ]
    own += [
        Suite(f"Streams, Connect {KAFKA_VERSION}", partial(ecosystem, KAFKA_VERSION)),
        Suite("Spark 4.0.0", spark_jobs),
        Suite("Changes upstream", upstream_changes, brokers=(3,)),
        Suite("kcat", kcat),
    ]
    others = [
        Suite(
            name,
            partial(runs, path) if (path := paths.get(name)) is not None else None,
            speaks_tls=tls,
            brokers=_BROKERS.get(name, (1, 3)),
            kafka=kafka,
            groups=_GROUPS.get(name, ()),
        )
        for name, (runs, tls, kafka) in OF_OTHERS.items()
    ]
    return own + others
