"""The driver's questions to Kafka, through each gateway: topics, positions, log ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from keyway.clusters.config import Cluster, MessagesSection, Tls
from spark.streaming.core.survey import Position, Topic
from spark.streaming.limits import (
    ANSWER_S,
    CONFIGS_S,
    POLL_RECORDS_MAX,
    POSITIONS_AT_ONCE,
    PROBE_S,
    QUIET,
)
from spark.streaming.orders import Place

_Answer = TypeVar("_Answer")

COMPARED_CONFIGS = ("message.timestamp.type", "max.message.bytes", "compression.type")


def answered(future: Future[_Answer]) -> _Answer:
    """Raises KafkaException, also for a broker that hangs: the client's own time limit does not
    hold for all questions.
    """
    try:
        return future.result(ANSWER_S)
    except TimeoutError as error:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from error


@dataclass(frozen=True, slots=True)
class _Configs:
    """Of one topic."""

    topic_id: str
    values: Mapping[str, str]
    asked_s: float

    def of(self, names: Iterable[str]) -> dict[str, str]:
        return {it: self.values[it] for it in names if it in self.values}


class KafkaSide:
    """One cluster, asked by the driver. Methods raise KafkaException if it does not answer."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.settings = cluster.client_settings()
        self._admin = AdminClient({**self.settings, "log_level": QUIET})
        self._configs: dict[str, _Configs] = {}

    def answers(self) -> bool:
        try:
            self._admin.list_topics(timeout=PROBE_S)
        except KafkaException:
            return False
        return True

    def cluster_id(self) -> str:
        described = answered(self._admin.describe_cluster(request_timeout=ANSWER_S))
        return str(described.cluster_id)

    def topic_names(self) -> list[str]:
        return sorted(self._admin.list_topics(timeout=ANSWER_S).topics)

    def identities(self, names: Sequence[str]) -> dict[str, tuple[str, int]]:
        """(topic id, number of partitions) of those that exist."""
        if not names:
            return {}
        asked = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=ANSWER_S)
        found = {}
        for name, answer in asked.items():
            try:
                described = answered(answer)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise
            found[name] = (str(described.topic_id), len(described.partitions))
        return found

    def topics(self, names: Sequence[str], configs: Sequence[str] = ()) -> dict[str, Topic]:
        """Those that exist, with the configs that are compared and `configs`. Configs are asked for
        once a minute: the answer of a broker is long.
        """
        known = self.identities(names)
        if not known:
            return {}
        wanted = {*COMPARED_CONFIGS, *configs}
        old_s = monotonic() - CONFIGS_S
        asked = [
            name
            for name, (topic_id, _) in known.items()
            if (it := self._configs.get(name)) is None
            or it.topic_id != topic_id
            or it.asked_s < old_s
        ]
        if asked:
            self._ask_configs({name: known[name][0] for name in asked})
        self._configs = {name: it for name, it in self._configs.items() if name in known}
        return {
            name: Topic(name, topic_id, partitions, self._configs[name].of(wanted))
            for name, (topic_id, partitions) in known.items()
        }

    def _ask_configs(self, topic_ids: Mapping[str, str]) -> None:
        """By names of topics."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in topic_ids]
        answers = self._admin.describe_configs(resources, request_timeout=ANSWER_S)
        for resource, answer in answers.items():
            values = {name: str(it.value) for name, it in answered(answer).items()}
            name = resource.name
            self._configs[name] = _Configs(topic_ids[name], values, monotonic())

    def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Does nothing if it exists by now."""
        new = NewTopic(name, partitions, config=dict(configs))
        try:
            answered(self._admin.create_topics([new], request_timeout=ANSWER_S)[name])
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def create_like(self, topic: Topic, name: str, messages: MessagesSection) -> None:
        """Creates `name` with the partitions of `topic` and the configs that `messages` says."""
        self.create(name, topic.partitions, messages.configs_of_new(topic.configs))

    def grow(self, name: str, partitions: int) -> None:
        new = [NewPartitions(name, partitions)]
        answered(self._admin.create_partitions(new, request_timeout=ANSWER_S)[name])

    def log_starts(self, places: Iterable[Place]) -> dict[Place, int]:
        return self._offsets(places, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def log_ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """Where committed records end (the last stable offset)."""
        return self._offsets(places, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def _offsets(self, places: Iterable[Place], spec: OffsetSpec) -> dict[Place, int]:
        wanted = {TopicPartition(*place): spec for place in places}
        if not wanted:
            return {}
        asked = self._admin.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=ANSWER_S
        )
        return {
            (it.topic, it.partition): int(answered(answer).offset) for it, answer in asked.items()
        }

    def positions(self, group: str, places: Iterable[Place]) -> dict[Place, Position]:
        """Committed offsets of `group`, of the places that have one."""
        wanted = [TopicPartition(*place) for place in places]
        if not wanted:
            return {}
        with self.consumer(group) as consumer:
            found = {}
            for it in consumer.committed(wanted, ANSWER_S):
                if it.error is not None:
                    raise KafkaException(it.error)
                if it.offset >= 0:
                    found[it.topic, it.partition] = Position.of(it.offset, it.metadata)
            return found

    def set_positions(self, group: str, positions: Mapping[Place, Position]) -> None:
        """Commits them as they are, also backwards. The link must not run meanwhile."""
        if not positions:
            return
        places = [
            TopicPartition(*place, it.offset, metadata=it.metadata)
            for place, it in positions.items()
        ]
        with self.consumer(group) as consumer:
            for at in range(0, len(places), POSITIONS_AT_ONCE):
                part = places[at : at + POSITIONS_AT_ONCE]
                for done in consumer.commit(offsets=part, asynchronous=False):
                    if done.error is not None:
                        raise KafkaException(done.error)

    @contextmanager
    def consumer(self, group: str, **settings: object) -> Iterator[Consumer]:
        """One that never subscribes."""
        consumer = Consumer(
            {
                **self.settings,
                "group.id": group,
                "enable.auto.commit": False,
                "log_level": QUIET,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        try:
            yield consumer
        finally:
            consumer.close()


def source_settings(cluster: Cluster) -> dict[str, str]:
    """Options of Spark's Kafka source, as Java's client names them: address, identity, trust, and
    the records of a poll.
    """
    settings = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "kafka.max.poll.records": str(POLL_RECORDS_MAX),
    }
    encrypted, known = cluster.tls is not None, cluster.sasl is not None
    protocol = ("SASL_" if known else "") + ("SSL" if encrypted else "PLAINTEXT")
    settings["kafka.security.protocol"] = protocol
    if cluster.sasl is not None:
        scram = cluster.sasl.mechanism.startswith("SCRAM")
        module = "scram.ScramLoginModule" if scram else "plain.PlainLoginModule"
        user, password = jaas_text(cluster.sasl.username), jaas_text(cluster.sasl.secret())
        settings["kafka.sasl.mechanism"] = cluster.sasl.mechanism
        settings["kafka.sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module} required"
            f" username={user} password={password};"
        )
    if cluster.tls is not None:
        settings |= _tls_settings(cluster.tls)
    return settings


def jaas_text(text: str) -> str:
    """A text in quotes, as Kafka's parser of JAAS entries (Java's StreamTokenizer) reads it: it
    knows octal numbers up to 377 behind a backslash, and takes any other character for itself.
    """
    escaped = (
        f"\\{ord(it):03o}" if ord(it) < ord(" ") else f"\\{it}" if it in '"\\' else it
        for it in text
    )
    return f'"{"".join(escaped)}"'


def _tls_settings(tls: Tls) -> dict[str, str]:
    settings = {}
    if tls.ca_file is not None:
        settings["kafka.ssl.truststore.type"] = "PEM"
        settings["kafka.ssl.truststore.location"] = str(tls.ca_file)
    if tls.cert_file is not None and tls.key_file is not None:
        settings["kafka.ssl.keystore.type"] = "PEM"
        settings["kafka.ssl.keystore.certificate.chain"] = tls.cert_file.read_text()
        settings["kafka.ssl.keystore.key"] = tls.key_file.read_text()
    if not tls.verify_hostname:
        settings["kafka.ssl.endpoint.identification.algorithm"] = ""
    return settings
