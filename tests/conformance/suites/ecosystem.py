"""What stands on Kafka's clients: Streams' word count, Connect with files, MirrorMaker 2, each the
program that Kafka publishes, as it is.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from gateway.embedded.jars import java
from gateway.embedded.process import free_ports, kill_child, start_child
from tests.conformance.suites.compared import Verdicts
from tests.conformance.suites.front import Front, fresh
from tests.conformance.suites.programs import ended, verdicts
from tests.rig.clients.java_jars import jars
from tests.rig.clients.java_programs import JVM_OPTIONS
from tests.rig.patience import wait_until

LINES = [f"all streams lead to kafka {number % 7}" for number in range(600)]
WORDS = Counter(word for line in LINES for word in line.split())
PARTITIONS = 4
DONE_S_MAX = 60.0
TEXT, COUNTS = "streams-plaintext-input", "streams-wordcount-output"  # fixed in the demo
STRING = "org.apache.kafka.connect.storage.StringConverter"
_MODULES = ("connect-file", "connect-runtime", "connect-mirror", "kafka-streams-examples")


class Ecosystem:
    def __init__(self, front: Front, version: str) -> None:
        self.front = front
        modules = [f"org.apache.kafka:{name}:{version}" for name in _MODULES]
        self._libs = jars(f"ecosystem-{version}", *modules)

    def streams(self, guarantee: str, protocol: str, *, killed: bool) -> None:
        """Each word is counted upwards by one, from 1 to as often as it is there. At least once may
        count more.
        """
        for topic in (TEXT, COUNTS):
            topics(self.front, topic)
        settings = {
            "application.id": f"words-{guarantee}-{protocol}",
            "bootstrap.servers": self.front.bootstrap,
            "processing.guarantee": guarantee,
            "group.protocol": protocol,
            "commit.interval.ms": 500,
            "statestore.cache.max.bytes": 0,  # each count goes out
            "state.dir": self.front.directory / f"state-{guarantee}-{protocol}",
            **({"session.timeout.ms": 10_000} if killed else {}),
            **self.front.java(),
        }
        name = f"streams-{guarantee}-{protocol}"
        path = self.front.properties(name, settings)
        main = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
        half, once = len(LINES) // 2, guarantee == "exactly_once_v2"
        send(self.front, TEXT, LINES[:half])
        with ended(self._started(name, main, path)) as first:
            wait_until(
                lambda: self._alive(first) and sum(map(len, self._counts().values())) > 0,
                what="the first counts",
                deadline_s=DONE_S_MAX,
                every_s=1,
            )
            send(self.front, TEXT, LINES[half:])
            if killed:
                kill_child(first)
            else:
                self._counted(first, once)
        if killed:
            with ended(self._started(name, main, path)) as second:
                self._counted(second, once)

    def _counted(self, program: subprocess.Popen[bytes], once: bool) -> None:
        expected = sum(WORDS.values())
        wait_until(
            lambda: self._alive(program) and sum(map(len, self._counts().values())) >= expected,
            what="every word is counted",
            deadline_s=2 * DONE_S_MAX,
            every_s=2,
        )
        found = self._counts()
        wrong = [
            word
            for word, count in WORDS.items()
            if (found[word] != [*range(1, count + 1)] if once else max(found[word]) < count)
        ]
        assert not wrong, f"{wrong[:3]}: {found[wrong[0]][:20]}, {len(found[wrong[0]])} counts"

    def _counts(self) -> dict[str, list[int]]:
        """Of each word, what was said of it in the order it was said."""
        found: dict[str, list[int]] = {word: [] for word in WORDS}
        for key, value in read(self.front, COUNTS):
            assert key is not None
            assert value is not None
            found[key.decode()].append(int.from_bytes(value, "big"))
        return found

    def files(self) -> None:
        """A file into a topic, and out of it into another file, line by line, also those that come
        later.
        """
        topic, folder = "connect-lines", self.front.directory / "connect"
        folder.mkdir(exist_ok=True)
        topics(self.front, topic, partitions=1)
        source, sink = folder / "source.txt", folder / "sink.txt"
        source.write_text("".join(f"{line}\n" for line in LINES))
        worker = {
            "bootstrap.servers": self.front.bootstrap,
            "key.converter": STRING,
            "value.converter": STRING,
            "offset.storage.file.filename": folder / "offsets",
            "offset.flush.interval.ms": 1000,
            "plugin.discovery": "service_load",  # a look at every class takes half a minute
            "listeners": f"http://127.0.0.1:{free_ports(1)}",
        }
        for prefix in ("", "producer.", "consumer."):
            worker |= {f"{prefix}{name}": value for name, value in self.front.java().items()}
        one = {"name": "in", "connector.class": "FileStreamSource", "tasks.max": 1}
        other = {"name": "out", "connector.class": "FileStreamSink", "tasks.max": 1}
        paths = [
            self.front.properties("connect", worker),
            self.front.properties("source", {**one, "file": source, "topic": topic}),
            self.front.properties("sink", {**other, "file": sink, "topics": topic}),
        ]
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        with ended(self._started("connect", main, *paths)) as worker_process:

            def arrived(lines: Sequence[str]) -> Callable[[], bool]:
                return lambda: (
                    self._alive(worker_process)
                    and sink.exists()
                    and sink.read_text().splitlines() == lines
                )

            wait_until(arrived(LINES), what="all lines", deadline_s=2 * DONE_S_MAX, every_s=1)
            with source.open("a") as file:
                file.write("one more\n")
            more = [*LINES, "one more"]
            wait_until(arrived(more), what="the line of later", deadline_s=DONE_S_MAX, every_s=1)
        assert [value for _, value in read(self.front, topic)] == [line.encode() for line in more]

    def mirror_maker(self) -> None:
        """Into a second Kafka, through a gateway of its own where there is one before the first."""
        topic = "mirrored"
        topics(self.front, topic)
        send(self.front, topic, LINES)
        setting = self.front.setting
        with fresh(setting, self.front.way, self.front.directory / "second", {}) as second:
            settings: dict[str, object] = {
                "clusters": "a,b",
                "a.bootstrap.servers": self.front.bootstrap,
                "b.bootstrap.servers": second.bootstrap,
                "a->b.enabled": "true",
                "b->a.enabled": "false",
                "a->b.topics": topic,
                "replication.factor": setting.brokers,
                "emit.heartbeats.enabled": "false",
                "replication.policy.class": "org.apache.kafka.connect.mirror."
                "IdentityReplicationPolicy",
                "a.consumer.auto.offset.reset": "earliest",
            }
            stores = [f"{name}.topic" for name in ("checkpoints", "offset-syncs", "heartbeats")]
            stores += [f"{name}.storage" for name in ("offset", "status", "config")]
            settings |= {f"{store}.replication.factor": setting.brokers for store in stores}
            for name, front in (("a", self.front), ("b", second)):
                settings |= {f"{name}.{key}": value for key, value in front.java().items()}
            path = self.front.properties("mirror", settings)
            main = "org.apache.kafka.connect.mirror.MirrorMaker"
            with ended(self._started("mirror", main, path, "--clusters", "b")) as program:
                wait_until(
                    lambda: self._alive(program) and len(read(second, topic)) >= len(LINES),
                    what="every record is copied",
                    deadline_s=3 * DONE_S_MAX,
                    every_s=2,
                )
            assert read(second, topic) == read(self.front, topic)

    def _started(self, name: str, main: str, *words: object) -> subprocess.Popen[bytes]:
        command = [java(), *JVM_OPTIONS, "-cp", f"{self._libs}/*", main, *map(str, words)]
        return start_child(command, log=self._log(name))

    def _log(self, name: str) -> Path:
        return self.front.directory / f"{name}.log"

    @staticmethod
    def _alive(program: subprocess.Popen[bytes]) -> bool:
        assert program.poll() is None, f"ended with {program.returncode}"
        return True


def topics(front: Front, name: str, partitions: int = PARTITIONS) -> None:
    """The topic anew and empty."""
    admin = AdminClient({**front.librdkafka(), "log_level": 0})
    if name in admin.list_topics(timeout=DONE_S_MAX).topics:
        admin.delete_topics([name])[name].result(DONE_S_MAX)
        wait_until(
            lambda: name not in admin.list_topics(timeout=DONE_S_MAX).topics,
            what="the topic is gone",
            deadline_s=DONE_S_MAX,
            every_s=0.5,
        )
    new = NewTopic(name, partitions, front.setting.brokers)
    admin.create_topics([new])[name].result(DONE_S_MAX)


def send(front: Front, topic: str, lines: Sequence[str]) -> None:
    """Spread over all partitions: records without keys, sent at once, would go into one."""
    spread = {"sticky.partitioning.linger.ms": 0}
    producer = Producer({**front.librdkafka(), **spread, "log_level": 0})
    for line in lines:
        producer.produce(topic, line.encode())
    assert producer.flush(DONE_S_MAX) == 0, "not all sent"


def read(front: Front, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """What is committed in all partitions, one after the other."""
    settings: dict[str, Any] = {
        **front.librdkafka(),
        "group.id": "conformance-reads",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
        "log_level": 0,
    }
    consumer = Consumer(settings)
    count = len(consumer.list_topics(topic, timeout=DONE_S_MAX).topics[topic].partitions)
    found: list[tuple[int, bytes | None, bytes | None]] = []
    ends = 0
    consumer.assign([TopicPartition(topic, number, 0) for number in range(count)])
    while count and ends < count:
        for message in consumer.consume(1_000, 0.2):
            if message.error() is None:
                found.append((message.partition() or 0, message.key(), message.value()))
            else:
                ends += 1
    consumer.close()
    found.sort(key=lambda place: place[0])  # stable: a partition's records keep their order
    return [(key, value) for _, key, value in found]


def ecosystem(version: str, front: Front, only: Sequence[str]) -> Verdicts:
    parts = Ecosystem(front, version)
    checks: dict[str, Callable[[], None]] = {
        "Streams, at least once": partial(parts.streams, "at_least_once", "classic", killed=False),
        "Streams, exactly once v2, killed": partial(
            parts.streams, "exactly_once_v2", "classic", killed=True
        ),
        "Streams, KIP-1071": partial(parts.streams, "exactly_once_v2", "streams", killed=False),
        "Connect, file source and sink": parts.files,
        "MirrorMaker 2": parts.mirror_maker,
    }
    return verdicts((name, check) for name, check in checks.items() if not only or name in only)
