"""Three clusters of one Kafka, which differ by the names of their topics, and a link without Spark:
its records, positions and reports are written by hand.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow
import yaml
from pyspark.sql import SparkSession

from keyway.clusters.config import ClustersConfig, load
from keyway.clusters.core.copies import COPY_HEADER, Copy, Origin, Stood, encode
from keyway.clusters.core.tree import ClusterName, Distributor, Flags, Level
from spark.links.distribute import LinkRun
from spark.links.link import Link
from spark.links.reports import LinkReport
from spark.links.status import StatusTopic
from spark.streaming.core.survey import Position
from spark.streaming.kafka import KafkaSide
from spark.streaming.orders import Writing
from tests.rig.kafka import create_topic
from tests.rig.several_clusters import read, send

A, B, C = ClusterName("a"), ClusterName("b"), ClusterName("c")
LEVEL = Level(2)
TREE = {"level": 2, "children": ["a", {"level": 1, "children": ["b", "c"]}]}
TIMESTAMP_MS = 1_700_000_000_000


class LinkByHand:
    """The link of `a` at level 2, to `b` or `c`."""

    def __init__(self, front: str, directory: Path, run: str, **sections: Any) -> None:
        self.front = front
        places = [
            {"name": name, "bootstrap_servers": front, "topic_pattern": f"{run}-{name}-{{topic}}"}
            for name in (A, B, C)
        ]
        messages = {"status_topic": f"_{run}-status", **sections.pop("messages", {})}
        path = directory / "clusters.yaml"
        path.write_text(
            yaml.safe_dump({"clusters": places, "tree": TREE, "messages": messages, **sections})
        )
        self.path = path
        self.config: ClustersConfig = load(path)
        self.source = KafkaSide(self.config.cluster(A))
        if self.config.messages.status_topic not in self.source.topic_names():
            create_topic(front, self.config.messages.status_topic)

    @property
    def distributor(self) -> Distributor:
        return self.config.checked_tree().distributor(A, LEVEL)

    def link(self, target: ClusterName) -> Link:
        return Link(self.distributor, target)

    def side(self, name: ClusterName) -> KafkaSide:
        return KafkaSide(self.config.cluster(name))

    def name(self, cluster: ClusterName, topic: str) -> str:
        return str(self.config.cluster(cluster).topic_names().back(topic))

    def create(self, topic: str, *clusters: ClusterName) -> None:
        for cluster in clusters:
            create_topic(self.front, self.name(cluster, topic))

    def report(self) -> LinkReport:
        """As a run reads it anew."""
        status = StatusTopic(self.source, self.config.messages.status_topic)
        report = LinkReport(self.distributor, status)
        report.load()
        return report

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        """Fresh records of `a`."""
        records = [{"value": value, "timestamp": TIMESTAMP_MS} for value in values]
        send(self.front, self.name(A, topic), records)

    def copy(self, topic: str, values: Sequence[bytes], to: ClusterName, first: int = 0) -> None:
        """As the link writes them, the first with the offset `first` of `a`."""
        records = []
        for at, value in enumerate(values):
            stood = Stood(topic, TIMESTAMP_MS, None, value)
            header = encode(Copy(Flags(2), Origin(A, topic, 0, first + at)), stood)
            headers = [(COPY_HEADER, header)]
            records.append({"value": value, "timestamp": TIMESTAMP_MS, "headers": headers})
        send(self.front, self.name(to, topic), records)

    def process(self, target: ClusterName) -> LinkRun:
        """A process of the link, before its first query."""
        run = LinkRun(cast(SparkSession, None), self.config, self.distributor, threading.Event())
        run.report.load()
        run.report.targeted(target)
        run._link = self.link(target)
        run._aim()
        return run

    def writing(self, target: ClusterName, topic: str, *, exactly_once: bool = True) -> Writing:
        """The orders of a task of a link as it stands now."""
        name = self.name(A, topic)
        return Writing(
            group=self.link(target).group,
            client=self.side(target).settings,
            targets={name: self.name(target, topic)},
            topic_ids={name: self.source.identities([name])[name][0]},
            expected={},
            ends={},
            exactly_once=exactly_once,
            transaction_timeout_ms=60_000,
            generation=self.report().generation,
        )

    def rows(self, topic: str, values: Sequence[bytes], first: int) -> pyarrow.RecordBatch:
        """Records of `a` from the offset `first` on, as Spark hands them to a task."""
        count = len(values)
        headers = [encode(Copy(Flags(2), Origin(A, topic, 0, first)), Stood(topic, 0, None, b""))]
        return pyarrow.RecordBatch.from_pydict(
            {
                "topic": [self.name(A, topic)] * count,
                "partition": [0] * count,
                "offset": [first + at for at in range(count)],
                "timestamp_ms": [TIMESTAMP_MS] * count,
                "key": pyarrow.array([None] * count, pyarrow.binary()),
                "value": pyarrow.array(values, pyarrow.binary()),
                "header_names": pyarrow.array([[]] * count, pyarrow.list_(pyarrow.string())),
                "header_values": pyarrow.array([[]] * count, pyarrow.list_(pyarrow.binary())),
                "copy": pyarrow.array(headers * count, pyarrow.binary()),
                "doubts": [0] * count,
            }
        )

    def values(self, cluster: ClusterName, topic: str) -> list[bytes | None]:
        """Of the committed records."""
        return [record.value for record in read(self.front, self.name(cluster, topic))]

    def stands(self, positions: dict[str, int], target: ClusterName) -> None:
        """The link has copied so far of each topic."""
        ids = self.source.identities([self.name(A, topic) for topic in positions])
        places = {
            (self.name(target, topic), 0): Position(at, ids[self.name(A, topic)][0])
            for topic, at in positions.items()
        }
        self.side(target).set_positions(self.link(target).group, places)
        report = self.report()
        report.targeted(target)
        topics = self.source.topics(list(ids))
        there = self.side(target).identities([self.name(target, topic) for topic in positions])
        target_ids = {
            self.name(A, topic): there[self.name(target, topic)][0] for topic in positions
        }
        reached = {
            (self.name(A, topic), 0): Position(at, ids[self.name(A, topic)][0])
            for topic, at in positions.items()
        }
        report.planned(topics, {}, target_ids, reached)
