"""Kafka's own programs: those that its system tests drive, and the tools of its admins.

Each runs in a JVM of its own with the jars of one version of Kafka, which need not be the broker's.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from functools import partial

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from gateway.embedded.jars import KAFKA_VERSION, java, kafka_libs, shared_classes
from tests.conformance.suites.compared import Verdicts
from tests.conformance.suites.front import Front
from tests.conformance.suites.programs import ran, verdicts
from tests.rig.clients.java_programs import JVM_OPTIONS

TOOLS = "org.apache.kafka.tools"
RECORDS = 500
ANSWER_S_MAX = 120.0
SHARE_SINCE = "4.2"  # VerifiableShareConsumer with Kafka's final share groups


class KafkaTools:
    def __init__(self, front: Front, version: str) -> None:
        self.front, self.version = front, version
        self._libs = kafka_libs(version)
        self._properties = str(front.java_properties())
        self._new_names = version >= "4.2"  # of options, KIP-1147
        self._topics = 0

    def tool(self, name: str, *words: str, stdin: str = "") -> str:
        main = name if name.startswith("kafka.") else f"{TOOLS}.{name}"
        shared = shared_classes() if self.version == KAFKA_VERSION else ()
        options = (*shared, *JVM_OPTIONS, "-cp", f"{self._libs}/*")
        return ran([java(), *options, main, *words], stdin=stdin)

    def client(self, name: str, *words: str, config: str = "--command-config") -> str:
        """A tool with a bootstrap address and client settings."""
        where = ("--bootstrap-server", self.front.bootstrap, config, self._properties)
        return self.tool(name, *where, *words)

    def topic(self, partitions: int = 1) -> str:
        self._topics += 1
        name = f"tools-{uuid.uuid4().hex[:6]}-{self._topics}"
        admin = AdminClient({**self.front.librdkafka(), "log_level": 4})
        new = NewTopic(name, partitions, self.front.setting.brokers)
        admin.create_topics([new])[name].result(ANSWER_S_MAX)
        return name

    def filled(self, count: int = RECORDS, partitions: int = 1) -> str:
        topic = self.topic(partitions)
        producer = Producer({**self.front.librdkafka(), "log_level": 4})
        for number in range(count):
            producer.produce(topic, str(number).encode(), partition=number % partitions)
        assert producer.flush(ANSWER_S_MAX) == 0, "not all sent"
        return topic

    # The checks.

    def verifiable_producer(self) -> None:
        topic = self.topic(3)
        said = self.client(
            "VerifiableProducer",
            *("--topic", topic, "--max-messages", str(RECORDS)),
            config=self._config("producer"),
        )
        acked = [event["acked"] for event in _events(said, "tool_data")]
        assert acked == [RECORDS], f"{acked} of {RECORDS} acknowledged"

    def verifiable_consumer(self, protocol: str) -> None:
        topic = self.filled(partitions=3)
        words = (
            "--topic",
            topic,
            "--group-id",
            f"{topic}-{protocol}",
            "--group-protocol",
            protocol,
        )
        said = self.client(
            "VerifiableConsumer",
            *words,
            *("--max-messages", str(RECORDS), "--reset-policy", "earliest"),
            config=self._config("consumer"),
        )
        read = sum(event["count"] for event in _events(said, "records_consumed"))
        assert read == RECORDS, f"{read} of {RECORDS} read"

    def verifiable_share_consumer(self) -> None:
        topic = self.filled()
        words = ("--topic", topic, "--group-id", f"{topic}-share", "--max-messages", str(RECORDS))
        said = self.client("VerifiableShareConsumer", *words, "--offset-reset-strategy", "earliest")
        read = sum(event["count"] for event in _events(said, "records_consumed"))
        assert read >= RECORDS, f"{read} of {RECORDS} read"

    def transactional_copier(self) -> None:
        source, target = self.filled(), self.topic()
        words = ["--broker-list", self.front.bootstrap, "--transactional-id", f"{source}-copier"]
        words += ["--input-topic", source, "--input-partition", "0", "--output-topic", target]
        words += ["--consumer-group", f"{source}-copied", "--transaction-size", "50"]
        self.tool("TransactionalMessageCopier", *words, "--use-group-metadata")
        said = self._console(target, RECORDS, "--isolation-level", "read_committed")
        assert sorted(map(int, said)) == list(range(RECORDS)), f"{len(said)} copied"

    def end_to_end_latency(self) -> None:
        words = (self.front.bootstrap, self.topic(), "100", "all", "64", self._properties)
        said = self.tool("EndToEndLatency", *words)
        assert "Percentiles" in said, said

    def client_compatibility(self) -> None:
        features = ["offsets-for-times", "cluster-id", "create-topics", "describe-acls"]
        features += ["describe-configs", "idempotent-producer"]
        words = [word for feature in features for word in (f"--{feature}-supported", "True")]
        words += ["--expect-record-too-large-exception", "False"]
        words += ["--num-cluster-nodes", str(self.front.setting.brokers)]
        words += ["--topic", self.topic(), "--bootstrap-server", self.front.bootstrap]
        self.tool("ClientCompatibilityTest", *words)

    def perf(self) -> None:
        topic = self.topic()
        where = f"bootstrap.servers={self.front.bootstrap}"
        words = ["--topic", topic, "--num-records", "2000", "--record-size", "100"]
        words += ["--throughput", "-1", self._config("producer"), self._properties]
        said = self.tool("ProducerPerformance", *words, "--producer-props", where)
        assert "2000 records sent" in said, said
        self.client(
            "ConsumerPerformance",
            *("--topic", topic, "--num-records" if self._new_names else "--messages", "2000"),
            config=self._config("consumer"),
        )

    def console(self) -> None:
        topic = self.topic()
        lines = [f"line {number}" for number in range(50)]
        where = ("--bootstrap-server", self.front.bootstrap, "--topic", topic)
        config = (self._config("producer"), self._properties)
        patient = ("--request-timeout-ms", "60000")
        main = "ConsoleProducer" if self.version >= "4" else "kafka.tools.ConsoleProducer"
        self.tool(main, *where, *config, *patient, stdin="\n".join([*lines, ""]))
        assert self._console(topic, len(lines)) == lines

    def consumer_groups(self) -> None:
        topic = self.filled(20)
        group = f"{topic}-moved"
        words = ("consumer.group.ConsumerGroupCommand", *_PATIENT)
        where = ("--group", group, "--topic", topic, "--to-offset", "7")
        said = self.client(*words, "--reset-offsets", "--execute", *where)
        assert topic in said.split(), f"nothing was reset: {said}"
        row = row_with(topic, self.client(*words, "--describe", "--group", group))
        assert row[3:6] == ["7", "20", "13"], row
        self.client(*words, "--delete", "--group", group)
        assert group not in self.client(*words, "--list")

    def offsets(self) -> None:
        topic = self.filled(20, partitions=2)
        said = self.client("GetOffsetShell", "--topic", topic)
        ends = [line.rpartition(":")[2] for line in said.split() if line.startswith(topic)]
        assert sum(map(int, ends)) == 20, said

    def configs(self) -> None:
        topic = self.topic()
        what = ("--entity-type", "topics", "--entity-name", topic)
        main = "kafka.admin.ConfigCommand" if self.version < "4.4" else "ConfigCommand"
        self.client(main, *what, "--alter", "--add-config", "retention.ms=12345")
        assert "retention.ms=12345" in self.client(main, *what, "--describe")
        broker = ("--entity-type", "brokers", "--entity-name", "1")
        assert "num.io.threads" in self.client(main, *broker, "--describe", "--all")

    def topics(self) -> None:
        topic = self.topic(2)
        self.client("TopicCommand", "--alter", "--topic", topic, "--partitions", "5")
        said = self.client("TopicCommand", "--describe", "--topic", topic)
        assert said.count("Leader:") == 5, said
        self.client("TopicCommand", "--delete", "--topic", topic)
        assert topic not in self.client("TopicCommand", "--list").split()

    def reassignment(self) -> None:
        topic = self.topic()
        wanted = {"topic": topic, "partition": 0, "replicas": [self.front.setting.brokers]}
        path = self.front.directory / "reassignment.json"
        path.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
        main = "reassign.ReassignPartitionsCommand"
        self.client(main, "--reassignment-json-file", str(path), "--execute")
        said = self.client("TopicCommand", "--describe", "--topic", topic)
        assert f"Leader: {self.front.setting.brokers}" in said or "Adding" in said, said

    def cluster(self) -> None:
        said = self.client("BrokerApiVersionsCommand" if self.version >= "4" else _VERSIONS_3)
        assert said.count("id:") == self.front.setting.brokers, said
        assert self.front.bootstrap.rpartition(":")[0] in said
        assert "LeaderId" in self.client("MetadataQuorumCommand", "describe", "--status")
        assert "broker" in self.client("LogDirsCommand", "--describe")

    def _console(self, topic: str, count: int, *more: str) -> list[str]:
        ends = ("--max-messages", str(count), "--timeout-ms", "60000", "--from-beginning")
        main = "consumer.ConsoleConsumer"
        words = ("--topic", topic, *ends, *more)
        return self.client(main, *words, config=self._config("consumer")).splitlines()

    def _config(self, of: str) -> str:
        return "--command-config" if self._new_names else f"--{of}.config"


_VERSIONS_3 = "kafka.admin.BrokerApiVersionsCommand"
# Its own bound is 5 s, after which it tells so and ends with 0.
_PATIENT = ("--timeout", str(int(1_000 * ANSWER_S_MAX)))


def row_with(word: str, said: str) -> list[str]:
    """The words of the first line that has this one."""
    rows = [line.split() for line in said.splitlines() if word in line.split()]
    assert rows, f"no line with {word}: {said}"
    return rows[0]


def _events(said: str, name: str) -> list[dict[str, int]]:
    found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return [event for event in found if event.get("name") == name]


def kafka_tools(version: str, front: Front, only: Sequence[str]) -> Verdicts:
    tools = KafkaTools(front, version)
    checks: dict[str, Callable[[], None]] = {
        "VerifiableProducer": tools.verifiable_producer,
        "VerifiableConsumer, classic": partial(tools.verifiable_consumer, "CLASSIC"),
        "VerifiableConsumer, KIP-848": partial(tools.verifiable_consumer, "CONSUMER"),
        "VerifiableShareConsumer": tools.verifiable_share_consumer,
        "EndToEndLatency": tools.end_to_end_latency,
        "ProducerPerformance, ConsumerPerformance": tools.perf,
        "ConsoleProducer, ConsoleConsumer": tools.console,
        "ConsumerGroupCommand": tools.consumer_groups,
        "GetOffsetShell": tools.offsets,
        "ConfigCommand": tools.configs,
        "TopicCommand": tools.topics,
        "ReassignPartitionsCommand": tools.reassignment,
        "BrokerApiVersions, MetadataQuorum, LogDirs": tools.cluster,
        "TransactionalMessageCopier": tools.transactional_copier,
        "ClientCompatibilityTest": tools.client_compatibility,
    }
    if front.ca_file is not None:  # they take no settings of a client
        del checks["TransactionalMessageCopier"], checks["ClientCompatibilityTest"]
    if version < SHARE_SINCE:
        del checks["VerifiableShareConsumer"]
    if version < "3.8":
        del checks["VerifiableConsumer, KIP-848"]
    return verdicts((name, check) for name, check in checks.items() if not only or name in only)
