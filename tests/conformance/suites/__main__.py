"""`make campaign NAME=conformance`: public suites, unmodified, on fresh Kafkas, direct and through
the gateway.

A suite of others is given by its option: a checkout, or the program built from one. Without them
Kafka's own programs run, and Spark. Tests that differ run again, alone, once each way. Results go
into tests/conformance/results.json, cell by cell, and docs/conformance.md is written anew from it.
Exits with 1 if a difference is explained nowhere.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich import print as show

from gateway.embedded.jars import KAFKA_VERSION
from tests.conformance.suites import checkouts
from tests.conformance.suites.compared import Compared, Verdicts, compared, joined
from tests.conformance.suites.ecosystem import ecosystem
from tests.conformance.suites.explained import EXPLAINED
from tests.conformance.suites.front import NEWEST, WAYS, Setting, Way, fresh
from tests.conformance.suites.kafka_tools import kafka_tools
from tests.conformance.suites.kcat import kcat
from tests.conformance.suites.published import publish
from tests.conformance.suites.spark_jobs import spark_jobs
from tests.conformance.suites.suite import Suite
from tests.conformance.suites.upstream_changes import upstream_changes
from tests.rig.gateway_process import REPOSITORY

JAVA_CLIENTS = ("3.9.2", KAFKA_VERSION, NEWEST)
WORK = REPOSITORY / "build" / "conformance"
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


def suites(paths: dict[str, Path | None]) -> list[Suite]:
    own = [
        Suite(f"Kafka's programs {version}", partial(kafka_tools, version))
        for version in JAVA_CLIENTS
    ]
    own += [
        Suite(f"Streams, Connect {KAFKA_VERSION}", partial(ecosystem, KAFKA_VERSION)),
        Suite("Spark 4.0.0", spark_jobs, speaks_tls=False),
        Suite("Changes upstream", upstream_changes, brokers=(3,)),
        Suite("kcat", kcat),
    ]
    others = [
        Suite(
            name,
            partial(runs, path),
            speaks_tls=tls,
            brokers=_BROKERS.get(name, (1, 3)),
            kafka=kafka,
            groups=_GROUPS.get(name, ()),
        )
        for name, (runs, tls, kafka) in OF_OTHERS.items()
        if (path := paths[name]) is not None
    ]
    return own + others


def run(suite: Suite, setting: Setting, directory: Path) -> Compared:
    found = {way: _run(suite, setting, way, directory / way, ()) for way in WAYS}
    first = compared(suite.name, found["direct"], found["through"], EXPLAINED)
    again = [difference.test for difference in first.unexplained]
    if not again:
        return first
    show(f"  {len(again)} differ and run again: {', '.join(again[:5])}")
    second = {way: _run(suite, setting, way, directory / f"{way}-again", again) for way in WAYS}
    both = {way: joined(found[way], [second[way]]) for way in WAYS}
    return compared(suite.name, both["direct"], both["through"], EXPLAINED)


def _run(
    suite: Suite, setting: Setting, way: Way, directory: Path, only: Sequence[str]
) -> Verdicts:
    began = time.monotonic()
    with fresh(setting, way, directory, suite.kafka, suite.groups) as front:
        verdicts = suite.runs(front, only)
    failed = {test: outcome for test, outcome in verdicts.items() if outcome.startswith("failed")}
    show(f"  {way}: {len(verdicts)} in {time.monotonic() - began:.0f} s, {len(failed)} failed")
    for test, verdict in failed.items():
        show(f"    {test}: {verdict}".replace("[", r"\["))
    return verdicts


def main() -> int:
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__)
    for name in OF_OTHERS:
        parser.add_argument(f"--{name}", type=Path, metavar="PATH", help="its checkout or program")
    parser.add_argument("--suites", default="", help="parts of their names, with commas")
    parser.add_argument("--kafka", default=f"{KAFKA_VERSION},{NEWEST}", help="versions")
    parser.add_argument("--brokers", default="1,3")
    parser.add_argument("--tls", choices=["plain", "tls", "both"], default="both")
    asked = parser.parse_args()
    paths = {name: getattr(asked, name.replace("-", "_")) for name in OF_OTHERS}
    absolute = {name: path and path.resolve() for name, path in paths.items()}
    wanted = [part for part in asked.suites.split(",") if part]
    unexplained = 0
    for suite in suites(absolute):
        if wanted and not any(part in suite.name for part in wanted):
            continue
        for setting in _settings(asked.kafka, asked.brokers, asked.tls):
            if setting.brokers not in suite.brokers or (setting.tls and not suite.speaks_tls):
                continue
            show(f"{suite.name}: {setting}")
            found = run(suite, setting, WORK / f"run-{os.getpid()}")
            if found.proves_nothing:
                show("  most of it fails both ways: nothing is proved, and nothing published")
                unexplained += 1
                continue
            publish(suite.name, setting, found)
            for difference in found.differences:
                ways = f"{difference.direct} | {difference.through} | {difference.reason}"
                show(f"  ≠ {difference.test}: {ways}".replace("[", r"\["))
            unexplained += len(found.unexplained)
    show(f"{unexplained} differences that nothing explains, or suites that do not run here")
    return 1 if unexplained else 0


def _settings(kafka: str, brokers: str, tls: str) -> list[Setting]:
    secure = {"plain": (False,), "tls": (True,), "both": (False, True)}[tls]
    return [
        Setting(version, int(count), tls=over_tls)
        for version in kafka.split(",")
        for count in brokers.split(",")
        for over_tls in secure
    ]


if __name__ == "__main__":
    sys.exit(main())
