"""The driver's questions to Kafka, through each gateway: topics, positions, log ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import starmap
from time import monotonic, sleep
from typing import TypeVar, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from keyway.clusters.config import Cluster, MessagesSection, Tls
from keyway.kafka.cut_logs import ASKING, BEHIND_A_CUT, tried
from keyway.kafka.topics import answered, described
from spark.streaming.core.survey import (
    MIN_IN_SYNC,
    UNKNOWN_EPOCH,
    UNREADABLE,
    Position,
    Tail,
    Topic,
)
from spark.streaming.limits import (
    ANSWER_S,
    COORDINATOR_LOOK_S,
    LEADERS_MS,
    OFFSETS_AT_ONCE,
    PARTITIONS_SCANNED_AT_ONCE,
    POLL_RECORDS_MAX,
    POSITIONS_AT_ONCE,
    PROBE_S,
    QUIET,
)
from spark.streaming.orders import Partition

# What a consumer knows of leaders is old soon: one that has failed since would be asked in vain.
_ASKING = {"metadata.max.age.ms": LEADERS_MS}
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"

_Wanted = TypeVar("_Wanted")

COMPARED_CONFIGS = (
    *("message.timestamp.type", "max.message.bytes", "compression.type", MIN_IN_SYNC),
    UNREADABLE,
)
_UNSEEN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED)


# Long: one client of the driver's, whose questions share its errors and time-outs.
class KafkaSide:
    """One cluster, asked by the driver. Methods raise KafkaException if it does not answer."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.settings = cluster.client_settings()
        self._admin = AdminClient({**self.settings, "log_level": QUIET})
        # Of each topic that was listed last: a partition without a leader, whose brokers are away.
        self.leaderless: dict[str, int] = {}
        # And of the partition with the fewest replicas in sync, where not all are: how many.
        self.out_of_sync: dict[str, tuple[int, int]] = {}
        # Consumers for offsets of logs, by isolation level: as many as ask at the same time.
        self._asking: dict[str, list[Consumer]] = {COMMITTED: [], UNCOMMITTED: []}

    def answers(self) -> bool:
        try:
            self._admin.list_topics(timeout=PROBE_S)
        except KafkaException:
            return False
        return True

    def cluster_id(self) -> str:
        cluster = answered(self._admin.describe_cluster(request_timeout=ANSWER_S), ANSWER_S)
        return str(cluster.cluster_id)

    def topic_names(self) -> list[str]:
        return sorted(self._admin.list_topics(timeout=ANSWER_S).topics)

    def listed(self) -> dict[str, int]:
        """The number of partitions of every topic: one cheap question, but it tells no ids, and a
        topic that is not listed may be there.
        """
        found = self._admin.list_topics(timeout=ANSWER_S).topics
        self.leaderless = {
            name: min(without)
            for name, topic in found.items()
            if (
                without := [
                    at for at, partition in topic.partitions.items() if partition.leader < 0
                ]
            )
        }
        behind = {
            name: [
                (len(partition.isrs), at)
                for at, partition in topic.partitions.items()
                if len(partition.isrs) < len(partition.replicas)
            ]
            for name, topic in found.items()
        }
        self.out_of_sync = {
            name: (at, count) for name, some in behind.items() if some for count, at in [min(some)]
        }
        return {name: len(topic.partitions) for name, topic in found.items()}

    def identities(self, names: Sequence[str]) -> dict[str, tuple[str, int]]:
        """(topic id, number of partitions) of the topics that exist."""
        found = {}
        for name, answer in self.described(names).items():
            if not isinstance(answer, KafkaError):
                found[name] = answer
            elif answer.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise KafkaException(answer)
        return found

    def visible(self, names: Sequence[str]) -> dict[str, tuple[str, int]]:
        """The same without the topics that this user may not describe."""
        found = self.described(names).items()
        return {name: answer for name, answer in found if not isinstance(answer, KafkaError)}

    def absent(self, names: Sequence[str]) -> set[str]:
        """The topics that do not exist, because Kafka says so of each."""
        found = self.described(names).items()
        gone = KafkaError.UNKNOWN_TOPIC_OR_PART
        return {
            name
            for name, answer in found
            if isinstance(answer, KafkaError) and answer.code() == gone
        }

    def described(
        self, names: Sequence[str], needed: AclOperation | None = None
    ) -> dict[str, tuple[str, int] | KafkaError]:
        """(topic id, number of partitions) of each topic, or Kafka's answer that the topic does not
        exist, or that this user may not describe it or lacks the right `needed`.
        """
        found = described(self._admin, names, ANSWER_S, needed)
        for answer in found.values():
            if isinstance(answer, KafkaError) and answer.code() not in _UNSEEN:
                raise KafkaException(answer)
        return found

    def topics(self, names: Sequence[str], configs: Sequence[str] = ()) -> dict[str, Topic]:
        """The topics that exist, with the configs that are compared and `configs`."""
        known = self.identities(names)
        values = self.configs(list(known))
        return {
            name: Topic(name, topic_id, partitions, chosen(values[name], configs))
            for name, (topic_id, partitions) in known.items()
            if name in values
        }

    def configs(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """All configs of each topic that exists: librdkafka cannot ask for some of them. Of a topic
        whose configs this user may not read there is UNREADABLE alone.
        """
        if not names:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        found = {}
        asked = self._admin.describe_configs(resources, request_timeout=ANSWER_S)
        for resource, answer in asked.items():
            try:
                values = answered(answer, ANSWER_S)
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    found[str(resource.name)] = {UNREADABLE: error.args[0].str()}
                elif code != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
            else:
                found[str(resource.name)] = {
                    name: str(entry.value) for name, entry in values.items()
                }
        return found

    def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Creates the topic, unless it exists by now."""
        new = NewTopic(name, partitions, config=dict(configs))
        try:
            answered(self._admin.create_topics([new], request_timeout=ANSWER_S)[name], ANSWER_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def create_like(self, topic: Topic, name: str, messages: MessagesSection) -> None:
        """Creates `name` with the partitions of `topic` and the configs that `messages` says."""
        self.create(name, topic.partitions, messages.configs_of_new(topic.configs))

    def grow(self, name: str, partitions: int) -> None:
        new = [NewPartitions(name, partitions)]
        asked = self._admin.create_partitions(new, request_timeout=ANSWER_S)
        answered(asked[name], ANSWER_S)

    def log_starts(self, places: Iterable[Partition]) -> dict[Partition, int]:
        return {place: at for place, (at, _) in self._offsets(places, OFFSET_BEGINNING).items()}

    def log_ends(self, places: Iterable[Partition]) -> dict[Partition, int]:
        """Where committed records end (the last stable offset)."""
        return {place: tail.end for place, tail in self.tails(places).items()}

    def tails(self, places: Iterable[Partition]) -> dict[Partition, Tail]:
        return {place: Tail(*at) for place, at in self._offsets(places, OFFSET_END).items()}

    def high_watermarks(self, places: Iterable[Partition]) -> dict[Partition, int]:
        """Where all records end, also those of open transactions."""
        found = self._offsets(places, OFFSET_END, UNCOMMITTED)
        return {place: at for place, (at, _) in found.items()}

    def cut(
        self, positions: Mapping[Partition, Position], tails: Mapping[Partition, Tail]
    ) -> set[Partition]:
        """The places whose log has lost records before the position, by its epoch. `tails` must be
        younger than the positions.
        """
        asked = {
            place: position
            for place, position in positions.items()
            if tails[place].is_of_another_leader(position.epoch)
        }
        if not asked:
            return set()
        found: set[Partition] = set()
        with closing(self._consumer("keyway-cut", ASKING)) as consumer:
            for part in parted(sorted(asked.items()), PARTITIONS_SCANNED_AT_ONCE):
                answers = tried(consumer, starmap(committing, part), wait_s=ANSWER_S)
                found |= {place for place, error in answers.items() if _is_behind_a_cut(error)}
        starts = self.log_starts(found)  # a position before it is refused, and no log was cut
        return {place for place in found if asked[place].offset >= starts[place]}

    def _offsets(
        self, places: Iterable[Partition], spec: int, isolation: str = COMMITTED
    ) -> dict[Partition, tuple[int, int]]:
        """`offsets_for_times` hands the two special times of ListOffsets to Kafka as they are. The
        admin client's `list_offsets` takes twenty times the CPU: a future for each partition.
        """
        wanted = list(places)
        idle, kept = self._asking[isolation], None
        with suppress(IndexError):  # A batch does not wait for a look at ten thousand partitions.
            kept = idle.pop()
        if kept is not None:
            try:
                found = _asked(kept, wanted, spec)
            except KafkaException as error:  # It may know old leaders, or no new partitions.
                kept.close()
                if error.args[0].code() == KafkaError._TIMED_OUT:
                    raise
            else:
                idle.append(kept)
                return found
        settings = {**_ASKING, "isolation.level": isolation}
        fresh = self._consumer("keyway-log-ends", settings)
        found = _asked(fresh, wanted, spec)
        idle.append(fresh)
        return found

    def positions(self, group: str, places: Iterable[Partition]) -> dict[Partition, Position]:
        """The committed offsets of `group`, for the places that have one."""
        wanted = [TopicPartition(*place) for place in places]
        if not wanted:
            return {}
        with self.consumer(group) as consumer:
            found: dict[Partition, Position] = {}
            for part in parted(wanted, POSITIONS_AT_ONCE):
                found |= _committed(consumer, part)
            return found

    def set_positions(
        self,
        group: str,
        positions: Mapping[Partition, Position],
        stood: Mapping[Partition, Position] | None = None,
    ) -> None:
        """Commits the positions as they are, also backwards. The link must not run meanwhile: with
        `stood`, the positions that were read before, it looks right before each commit, and raises
        if they are others.
        """
        if not positions:
            return
        places = starmap(committing, positions.items())
        with self.consumer(group) as consumer:

            def commit(part: list[TopicPartition]) -> list[TopicPartition]:
                if stood is not None:  # also before a repetition: it may be half a minute later
                    _require_unmoved(_committed(consumer, part), part, stood)
                return consumer.commit(offsets=part, asynchronous=False)

            for part in parted(places, POSITIONS_AT_ONCE):
                _by_coordinator(commit, part)

    @contextmanager
    def consumer(self, group: str, **settings: object) -> Iterator[Consumer]:
        """A consumer that never subscribes."""
        named = {name.replace("_", "."): value for name, value in settings.items()}
        consumer = self._consumer(group, named)
        try:
            yield consumer
        finally:
            consumer.close()

    def _consumer(self, group: str, settings: Mapping[str, object]) -> Consumer:
        own = {"group.id": group, "enable.auto.commit": False, "log_level": QUIET}
        return Consumer({**self.settings, **own, **settings})


def committing(place: Partition, position: Position) -> TopicPartition:
    """The commit of a position, by the target's topic."""
    return TopicPartition(*place, position.offset, position.metadata, position.epoch)


def position_of(committed: TopicPartition) -> Position:
    return Position.of(committed.offset, committed.metadata, committed.leader_epoch)


def _by_coordinator(
    ask: Callable[[list[TopicPartition]], list[TopicPartition]], places: list[TopicPartition]
) -> list[TopicPartition]:
    """The answer about positions. A broker that has just become the group's coordinator, as on a
    new cluster or after a restart, says for a moment that it is none. librdkafka tells its caller,
    and has looked for the coordinator when it is asked again.
    """
    end_s = monotonic() + ANSWER_S
    while True:
        try:
            found = ask(places)
            for place in found:
                if place.error is not None:
                    raise KafkaException(place.error)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_COORDINATOR or monotonic() > end_s:
                raise
            sleep(COORDINATOR_LOOK_S)
        else:
            return found


def _committed(consumer: Consumer, places: list[TopicPartition]) -> dict[Partition, Position]:
    """The positions of the consumer's group, for the places that have one."""
    found = _by_coordinator(partial(consumer.committed, timeout=ANSWER_S), places)
    return {(at.topic, at.partition): position_of(at) for at in found if at.offset >= 0}


def _require_unmoved(
    now: Mapping[Partition, Position],
    places: Iterable[TopicPartition],
    stood: Mapping[Partition, Position],
) -> None:
    asked = ((place.topic, place.partition) for place in places)
    if moved := sorted(place for place in asked if now.get(place) != stood.get(place)):
        listed = ", ".join(f"{topic}-{at}" for topic, at in moved[:5])
        told = f"positions have moved meanwhile, by another process of the link: {listed}"
        raise KafkaException(KafkaError(KafkaError._STATE, told))


def _is_behind_a_cut(error: KafkaError | None) -> bool:
    """Raises KafkaException for any other error."""
    if error is not None and error.code() != BEHIND_A_CUT:
        raise KafkaException(error)
    return error is not None


def _asked(
    consumer: Consumer, places: Sequence[Partition], spec: int
) -> dict[Partition, tuple[int, int]]:
    """(offset, the leader's epoch) of each place."""
    consumer.poll(0)  # its errors are of no interest, and take room
    found = {}
    for part in parted(places, OFFSETS_AT_ONCE):
        wanted = [TopicPartition(*place, spec) for place in part]
        for answer in consumer.offsets_for_times(wanted, ANSWER_S):
            if answer.error is not None:
                raise KafkaException(answer.error)
            epoch = cast("int | None", answer.leader_epoch)
            known = UNKNOWN_EPOCH if epoch is None else epoch
            found[answer.topic, answer.partition] = (int(answer.offset), known)
    return found


def chosen(values: Mapping[str, str], configs: Iterable[str]) -> dict[str, str]:
    """The configs of a topic that are compared, and `configs`."""
    wanted = {*COMPARED_CONFIGS, *configs}
    return {name: value for name, value in values.items() if name in wanted}


def parted(wanted: Iterable[_Wanted], count: int) -> Iterator[list[_Wanted]]:
    """Splits a question into parts of at most `count`. librdkafka looks up each partition of a
    question in the list of all of them, so one question about 10,000 takes ten times the CPU of 40
    short ones.
    """
    every = list(wanted)
    for first in range(0, len(every), count):
        yield every[first : first + count]


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
        f"\\{ord(char):03o}" if ord(char) < ord(" ") else f"\\{char}" if char in '"\\' else char
        for char in text
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
