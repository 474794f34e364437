"""Upstream changes under stock Java clients: leaders move, brokers are upgraded one by one."""

from __future__ import annotations

import itertools
import json
import subprocess
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich import print as show

from gateway.core.wire.apis import ApiKey
from gateway.embedded.jars import KAFKA_VERSION, java, kafka_libs
from gateway.embedded.process import kill_child, start_child, stop_child
from tests.conformance.suites.compared import Verdicts
from tests.conformance.suites.ecosystem import read
from tests.conformance.suites.front import NEWEST, Front
from tests.conformance.suites.kafka_tools import TOOLS, KafkaTools
from tests.conformance.suites.programs import verdicts
from tests.rig.clients.java_programs import JVM_OPTIONS
from tests.rig.clients.wire_client import WireClient
from tests.rig.patience import patient_s, wait_until

BROKERS = 3
PER_S = 100  # records of the producer
STARTED_S_MAX = 60.0
ENDED_S_MAX = 60.0
# A client that has to ask for metadata asks after this at the earliest, once it has asked before.
BACKOFF_MS = 30_000
STALL_MS_MAX = BACKOFF_MS / 3
LEADER_CHANGES = 5


@dataclass(frozen=True, slots=True)
class Program:
    """One of Kafka's Verifiable*; it tells a line of JSON for each record."""

    child: subprocess.Popen[bytes]
    log: Path
    event: str

    def events(self) -> list[dict[str, object]]:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        told = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [event for event in told if event.get("name") == self.event]

    def count(self) -> int:
        """Of its events: cheaper than to read each."""
        return self.log.read_text(errors="replace").count(f'"name":"{self.event}"')

    def values(self) -> set[object]:
        return {event["value"] for event in self.events()}

    def stalls_ms(self, since: Sequence[int]) -> list[int]:
        """The longest time between two of its records from each of these times on (ms of the
        clock, rising) until the next.
        """
        times = sorted(int(str(event["timestamp"])) for event in self.events())
        found = [0] * len(since)
        for soon, late in itertools.pairwise(times):
            if (at := bisect_left(since, late) - 1) >= 0:
                found[at] = max(found[at], late - soon)
        return found


class UpstreamChanges:
    def __init__(self, front: Front) -> None:
        assert front.cluster is not None
        self.front, self.cluster = front, front.cluster
        self._tools = KafkaTools(front, KAFKA_VERSION)
        where = self.cluster.bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": where, "log_level": 4})

    def leaders_move(self) -> None:
        """With the addresses in the answer (KIP-951) nobody waits until it may ask for them, after
        most changes: after some both wait, direct as well.
        """
        topic = self._topic("leaders", 1)
        patient = {"retry.backoff.ms": BACKOFF_MS, "retry.backoff.max.ms": BACKOFF_MS}
        began = []
        with self._producer(topic, patient) as producer, self._consumer(topic, patient) as reader:
            self._goes_on((producer, reader))
            for change in range(LEADER_CHANGES):
                began.append(time.time_ns() // 1_000_000)
                self._lead(topic, 1 + (change + 1) % BROKERS)
                self._goes_on((producer, reader))
            self._all_read(topic, producer, [reader])
        stalls = {"producer": producer.stalls_ms(began), "consumer": reader.stalls_ms(began)}
        show(f"      the longest stall of each change, ms: {stalls}")
        for name, found in stalls.items():
            assert median(found) < STALL_MS_MAX, f"the {name} stalled for {found} ms"

    def upgrade(self) -> None:
        """Each broker is stopped and comes back in the next version; the features follow."""
        topic = self._topic("upgrade", 2 * BROKERS)
        libs = kafka_libs(NEWEST)
        with ExitStack() as stack:
            producer = stack.enter_context(self._producer(topic, {}))
            readers = [
                stack.enter_context(self._consumer(topic, {}, protocol))
                for protocol in ("CLASSIC", "CONSUMER")
            ]
            readers.append(stack.enter_context(self._share_consumer(topic)))
            for broker in self.cluster.brokers:
                broker.stop()
                broker.libs = libs
                broker.start()
                self.cluster.wait_ready()
                self._replicated(topic)
                self._goes_on((producer, *readers))
                show(f"      broker {broker.node_id} speaks {NEWEST}: {self._versions()}")
            tools = KafkaTools(self.front, NEWEST)
            tools.client("FeatureCommand", "upgrade", "--release-version", NEWEST[:3])
            self._goes_on((producer, *readers))
            self._all_read(topic, producer, readers)

    def _versions(self) -> str:
        """How many APIs two brokers offer in different versions, at most."""
        offers = []
        for broker in self.cluster.brokers:
            with WireClient(broker.address) as client:
                keys = client.call(ApiKey.API_VERSIONS, 0, {})["ApiKeys"]
            offers.append({(api["ApiKey"], api["MinVersion"], api["MaxVersion"]) for api in keys})
        different = {api[0] for one in offers for other in offers for api in one ^ other}
        return f"{len(different)} APIs differ between the brokers"

    def _all_read(self, topic: str, producer: Program, readers: Sequence[Program]) -> None:
        stop_child(producer.child, grace_s=patient_s(ENDED_S_MAX))
        sent = producer.values()
        assert len(sent) > PER_S, f"only {len(sent)} records were acknowledged"
        kept = [value.decode() for _, value in read(self.front, topic) if value is not None]
        lost = sent - set(kept)
        again = len(kept) - len(set(kept))
        show(f"      {len(sent):,} acknowledged, {len(lost)} lost, {again} twice in the log")
        assert not lost, f"{len(lost)} acknowledged records are not in the log"
        assert not again, f"{again} records are in the log twice"
        for reader in readers:
            wait_until(
                lambda reader=reader: _alive(reader) and sent <= reader.values(),  # type: ignore[misc]
                what=f"{reader.log.stem} has read all that was acknowledged",
                deadline_s=ENDED_S_MAX,
                every_s=1,
            )

    def _goes_on(self, programs: Sequence[Program]) -> None:
        """Each has told of records that it had not told of yet."""
        before = [program.count() for program in programs]
        for program, count in zip(programs, before, strict=True):
            wait_until(
                lambda program=program, count=count: (  # type: ignore[misc]
                    _alive(program) and program.count() > count + PER_S
                ),
                what=f"{program.log.stem} goes on",
                deadline_s=STARTED_S_MAX,
                every_s=0.5,
            )

    @contextmanager
    def _producer(self, topic: str, settings: Mapping[str, object]) -> Iterator[Program]:
        more = {"retries": 2**31 - 1, "delivery.timeout.ms": 600_000, **settings}
        words = ("--throughput", str(PER_S), "--topic", topic)
        yield from self._runs("VerifiableProducer", "producer_send_success", words, more)

    @contextmanager
    def _consumer(
        self, topic: str, settings: Mapping[str, object], protocol: str = "CLASSIC"
    ) -> Iterator[Program]:
        words = ["--topic", topic, "--group-id", f"{topic}-{protocol}", "--verbose"]
        words += ["--reset-policy", "earliest", "--group-protocol", protocol]
        yield from self._runs("VerifiableConsumer", "record_data", words, settings)

    @contextmanager
    def _share_consumer(self, topic: str) -> Iterator[Program]:
        words = ["--topic", topic, "--group-id", f"{topic}-share", "--verbose"]
        words += ["--offset-reset-strategy", "earliest"]
        yield from self._runs("VerifiableShareConsumer", "record_data", words, {})

    def _runs(
        self, name: str, event: str, words: Sequence[str], settings: Mapping[str, object]
    ) -> Iterator[Program]:
        """Yields once a producer tells of records; a reader, at once."""
        called = "-".join(word for word in words if not word.startswith("--"))
        path = self.front.properties(f"{name}-{called}", {**settings, **self.front.java()})
        where = ("--bootstrap-server", self.front.bootstrap, "--command-config", str(path))
        command = [java(), *JVM_OPTIONS, "-cp", f"{kafka_libs(KAFKA_VERSION)}/*"]
        log = self.front.directory / f"{path.stem}.log"
        child = start_child([*command, f"{TOOLS}.{name}", *where, *words], log=log)
        program = Program(child, log, event)
        try:
            wait_until(
                lambda: _alive(program) and (name != "VerifiableProducer" or program.count() > 0),
                what=f"{name} works",
                deadline_s=STARTED_S_MAX,
                every_s=0.5,
            )
            yield program
        finally:
            kill_child(child)

    def _topic(self, name: str, partitions: int) -> str:
        config = {"min.insync.replicas": "2"}
        assignment = [
            [1 + (number + at) % BROKERS for at in range(BROKERS)] for number in range(partitions)
        ]
        new = NewTopic(name, partitions, replica_assignment=assignment, config=config)
        self._admin.create_topics([new])[name].result(patient_s(60))
        return name

    def _lead(self, topic: str, leader: int) -> None:
        """The same replicas, with another one first, which is then elected."""
        order = [leader, *(number for number in (1, 2, 3) if number != leader)]
        wanted = {"topic": topic, "partition": 0, "replicas": order}
        path = self.front.directory / "leader.json"
        path.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
        main = "reassign.ReassignPartitionsCommand"
        self._tools.client(main, "--reassignment-json-file", str(path), "--execute")
        place = TopicPartition(topic, 0)
        self._admin.elect_leaders(ElectionType.PREFERRED, [place]).result(patient_s(30))
        wait_until(
            lambda: self._leader(topic) == leader,
            what=f"broker {leader} leads",
            deadline_s=30,
            every_s=0.2,
        )

    def _leader(self, topic: str) -> int:
        found = self._admin.list_topics(topic, timeout=patient_s(30)).topics[topic]
        return int(found.partitions[0].leader)

    def _replicated(self, topic: str) -> None:
        def done() -> bool:
            found = self._admin.list_topics(topic, timeout=patient_s(30)).topics[topic].partitions
            return all(len(partition.isrs) == BROKERS for partition in found.values())

        wait_until(done, what="all replicas are in sync", deadline_s=60, every_s=0.5)


def _alive(program: Program) -> bool:
    ended = program.child.poll()
    assert ended is None, f"{program.log.stem} ended with {ended}: {program.log.read_text()[-300:]}"
    return True


def upstream_changes(front: Front, only: Sequence[str]) -> Verdicts:
    changes = UpstreamChanges(front)
    checks: dict[str, Callable[[], None]] = {"Leaders move (KIP-951)": changes.leaders_move}
    if front.setting.kafka == KAFKA_VERSION:  # last: the brokers are of another version then
        checks[f"Rolling upgrade to {NEWEST}"] = changes.upgrade
    return verdicts((name, check) for name, check in checks.items() if not only or name in only)
