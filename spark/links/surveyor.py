"""The topics that a link copies now: both clusters' topics are compared, and those that the target
lacks are created.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from time import monotonic

import structlog
from confluent_kafka import KafkaException

from keyway.clusters.config import ClustersConfig
from keyway.clusters.core.names import Unfit
from spark.links.link import Link
from spark.links.naming import following
from spark.links.plan import Plan
from spark.links.refusals import Refusals
from spark.pipelines.config import Pipeline
from spark.streaming.core.survey import (
    MIN_IN_SYNC,
    Grown,
    Missing,
    Policy,
    Stopped,
    Topic,
    compare,
)
from spark.streaming.kafka import KafkaSide
from spark.streaming.known_topics import KnownTopics
from spark.streaming.limits import RECORD_BYTES_MAX
from spark.streaming.orders import MAKING, MAKING_REFUSALS, Taking
from spark.transforms.core.steps import topics_of

log = structlog.get_logger("keyway.links")

# A dead letter is as long as its record, and stands until somebody has looked at it.
DEAD_LETTER_CONFIGS = {"max.message.bytes": str(RECORD_BYTES_MAX), "retention.ms": "-1"}


@dataclass(frozen=True, slots=True)
class Surveyor:
    """One query's surveyor. Its questions raise KafkaException if a cluster does not answer."""

    config: ClustersConfig
    link: Link
    here: KnownTopics
    there: KnownTopics
    pipeline: Pipeline | None
    refusals: Refusals

    def plan(
        self,
        known: Callable[[str], bool],
        policy: Policy,
        followed: Collection[str] = (),
        at_work: Collection[str] = (),
    ) -> Plan:
        """Compares both clusters' topics, and creates those that the target lacks. Topics that are
        `followed` already are asked for by name if the source does not list them. `at_work`: topics
        that were copied since the last look.
        """
        messages = self.config.messages
        logical, targets, stopped = self._names(followed)
        here = self.here.look(list(targets))
        source = self.here.side.cluster.name
        stopped |= {
            name: f"this user may not read it on {source}: {why}"
            for name, why in self.here.denied.items()
        }
        self.there.listed()
        working = [targets[name] for name in at_work if name in targets]
        there = self.there.look([targets[name] for name in here], working)
        ids = {
            name: topic_there.topic_id for name in here if (topic_there := there.get(targets[name]))
        }
        topics: dict[str, Topic] = {}
        created: list[str] = []
        for name, topic in here.items():
            verdict = compare(topic, there.get(targets[name]), policy, copied_before=known(name))
            why = self._in_the_way(name, targets[name], topic, verdict)
            if why := why or self._takes_nothing(there.get(targets[name])):
                stopped[name] = why
                continue
            topics[name] = topic
            if isinstance(verdict, Missing):
                created.append(name)
        if self.pipeline is not None and topics:
            partitions = max(topic.partitions for topic in topics.values())
            self._create_written(self.pipeline, partitions)
        found = self.target.visible([targets[name] for name in created])
        ids |= {name: found[targets[name]][0] for name in created if targets[name] in found}
        taking = {
            name: self._taking(topic, there.get(targets[name])) for name, topic in here.items()
        }
        if messages.on_refused == "dead_letter":
            self._create_letters(messages.dead_letter_topic)
        return Plan(topics, targets, logical, stopped, ids, taking)

    def _in_the_way(
        self, name: str, target: str, topic: Topic, verdict: Stopped | Missing | Grown | None
    ) -> str:
        """Creates or grows the target's topic if `verdict` asks for it. Returns why the topic
        stops; empty: it does not.
        """
        if not isinstance(verdict, Missing | Grown):
            self.refusals.written((name, MAKING))  # somebody else has done it
        if self.refusals.waits(name, monotonic()):
            return self.refusals.reason(name)
        if why := self._without_leader(name, target):
            return why
        match verdict:
            case Stopped():
                return verdict.reason
            case Missing():
                make = partial(self.target.create_like, topic, target, self.config.messages)
                return self._refused(name, "topic_created", target, make)
            case Grown():
                make = partial(self.target.grow, target, topic.partitions)
                return self._refused(name, "topic_grown", target, make)
            case None:
                return ""

    def _without_leader(self, name: str, target: str) -> str:
        """A query that has such a topic fails as a whole, and so does every question about logs."""
        for side, topic in ((self.here.side, name), (self.there.side, target)):
            if (partition := side.leaderless.get(topic)) is not None:
                where = f"partition {partition} of {topic} at {side.cluster.name}"
                return f"{where} has no leader: the brokers that have it are away"
        return ""

    def _takes_nothing(self, target: Topic | None) -> str:
        """Why Kafka refuses all records of a partition now. It does so again and again for as long
        as a producer tries, and a task that waits for that holds up the other topics.
        """
        if target is None or target.name not in self.there.side.out_of_sync:
            return ""
        partition, in_sync = self.there.side.out_of_sync[target.name]
        wanted = int(target.configs.get(MIN_IN_SYNC, "1"))
        if in_sync >= wanted:
            return ""
        return (
            f"partition {partition} of {target.name} at {self.target.cluster.name} takes no"
            f" records: {in_sync} of its replicas are in sync, and {MIN_IN_SYNC} is {wanted}"
        )

    def _refused(self, name: str, event: str, target: str, make: Callable[[], None]) -> str:
        """Why the target does not do it; empty: it has. One topic that it refuses must not keep the
        others waiting.
        """
        try:
            make()
        except KafkaException as error:
            if error.args[0].code() not in MAKING_REFUSALS:
                raise
            why = f"the target refuses to create or grow {target}: {error.args[0].str()}"
            if self.refusals.refused((name, MAKING), why, monotonic()):
                log.warning("topic_stops", link=self.link.name, topic=name, why=why)
            return why
        self.refusals.written((name, MAKING))
        log.info(event, link=self.link.name, topic=target)
        return ""

    def _taking(self, topic: Topic, there: Topic | None) -> Taking:
        """`there` None: it was created a moment ago, with these configs."""
        messages = self.config.messages
        configs = messages.configs_of_new(topic.configs) if there is None else there.configs
        bytes_max = int(configs.get("max.message.bytes", "0"))
        return Taking(bytes_max, configs.get("compression.type", "producer"))

    def _create_written(self, pipeline: Pipeline, partitions: int) -> None:
        """Creates the topics that the steps route to, the quarantine topic among them."""
        names = self.target.cluster.topic_names()
        steps = tuple(entry.step for entry in pipeline.config.steps)
        written = {
            names.back(logical) for logical in {pipeline.config.quarantine} | topics_of(steps)
        }
        known = [name for name in written if not isinstance(name, Unfit)]
        there = self.target.visible(known)
        for name in sorted(set(known) - there.keys()):
            if self.config.messages.create_topics:
                self.target.create(name, partitions, self.config.messages.topic_configs)

    def _create_letters(self, topic: str) -> None:
        """A target that refuses this topic keeps no other waiting: one that meets a record which is
        refused stops there.
        """
        if self.refusals.waits(topic, monotonic()) or topic in self.target.visible([topic]):
            return
        try:
            self.target.create(topic, 1, DEAD_LETTER_CONFIGS)
        except KafkaException as error:
            if error.args[0].code() not in MAKING_REFUSALS:
                raise
            why = error.args[0].str()
            if self.refusals.refused((topic, MAKING), why, monotonic()):
                log.warning("dead_letter_topic_refused", link=self.link.name, topic=topic, why=why)

    @property
    def target(self) -> KafkaSide:
        return self.there.side

    def _names(
        self, followed: Collection[str]
    ) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        """For the topics that follow: their logical names, their names on the target, and the
        topics that have none.
        """
        logical: dict[str, str] = {}
        targets: dict[str, str] = {}
        stopped: dict[str, str] = {}
        listed = self.here.listed()
        source, names = self.here.side.cluster, sorted({*listed, *followed})
        for follow in following(self.config, source, self.target.cluster, names):
            if isinstance(follow.there, Unfit):
                if follow.name in listed:
                    stopped[follow.name] = f"it has no name on the target: {follow.there}"
            else:
                logical[follow.name], targets[follow.name] = follow.logical, follow.there
        return logical, targets, stopped
