"""Hosts confluent-kafka ShareConsumers for a test:
`python -m tests.rig.clients.librdkafka_share_host`.

The protocol is in share_lines.py. Each member lives on its own thread, since a ShareConsumer
belongs to one thread.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer

from tests.rig.clients.share_lines import Delivery, delivery_line

_output_lock = threading.Lock()


def say(*fields: object) -> None:
    line = "\t".join(str(field) for field in fields)
    with _output_lock:
        sys.stdout.write(line + "\n")


def flush() -> None:
    with _output_lock:
        sys.stdout.flush()


def error_text(error: object) -> str:
    if isinstance(error, KafkaException):
        error = error.args[0]
    name = getattr(error, "name", None)
    text = name() if callable(name) else f"{type(error).__name__}: {error}"
    return text.replace("\t", " ").replace("\n", " ")


class HostedMember:
    """One share consumer and the commands it understands."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.explicit = False
        self.consumer: Any = None
        self.stopping = threading.Event()
        self.commands: queue.Queue[list[str]] = queue.Queue()

    def run(self) -> None:
        verbs: Mapping[str, Callable[..., None]] = {
            "open": self.open,
            "poll": self.poll,
            "ack": self.ack,
            "commit": self.commit,
            "consume": self.consume,
            "close": self.close,
        }
        while True:
            verb, *arguments = self.commands.get()
            try:
                verbs[verb](*arguments)
                say(self.name, "done")
            except Exception as error:  # noqa: BLE001  # the test judges failures
                say(self.name, "failed", error_text(error))
            flush()
            if verb == "close":
                return

    def open(self, group: str, topics: str, *properties: str) -> None:
        config: dict[str, Any] = dict(item.split("=", 1) for item in properties)
        self.explicit = config.get("share.acknowledgement.mode") == "explicit"
        # Errors come as events of poll(); librdkafka's own log lines would only fill stderr.
        self.consumer = ShareConsumer({"group.id": group, "log_level": 3, **config})
        self.consumer.set_acknowledgement_commit_callback(self.on_acked)
        self.consumer.subscribe(topics.split(","))

    def on_acked(self, offsets: dict[Any, set[int]], error: KafkaException | None) -> None:
        now = time.monotonic_ns()
        answer = "OK" if error is None else error_text(error)
        for place, numbers in offsets.items():
            for offset in sorted(numbers):
                say(self.name, "acked", now, place.topic, place.partition, offset, answer)

    def read(self, timeout_ms: float) -> list[Any]:
        messages = self.consumer.poll(timeout_ms / 1000)
        now = time.monotonic_ns()
        records = []
        for message in messages:
            if message.error() is not None:
                say(self.name, "note", now, error_text(message.error()))
                continue
            records.append(message)
            say(delivery_line(self.delivery_of(message, now)))
        flush()
        return records

    def delivery_of(self, message: Any, now: int) -> Delivery:
        return Delivery(
            self.name,
            now,
            message.topic(),
            message.partition(),
            message.offset(),
            message.delivery_count(),
            message.timestamp()[1],
            message.key(),
            message.value(),
            tuple(message.headers() or ()),
        )

    def poll(self, timeout_ms: str) -> None:
        self.read(float(timeout_ms))

    def ack(self, verdict: str, topic: str, partition: str, offsets: str) -> None:
        for offset in offsets.split(","):
            self.consumer.acknowledge_offset(
                topic, int(partition), int(offset), AcknowledgeType[verdict]
            )

    def commit(self, timeout_ms: str) -> None:
        results = self.consumer.commit_sync(float(timeout_ms) / 1000)
        for place, error in results.items():
            answer = "OK" if error is None else error_text(error)
            say(self.name, "committed", time.monotonic_ns(), place.topic, place.partition, answer)

    def consume(self, total_ms: str) -> None:
        deadline = time.monotonic() + int(total_ms) / 1000
        while not self.stopping.is_set() and time.monotonic() < deadline:
            records = self.read(100)
            for record in records if self.explicit else ():
                self.consumer.acknowledge(record, AcknowledgeType.ACCEPT)
        self.stopping.clear()
        self.consumer.commit_sync(10.0)

    def close(self) -> None:
        self.consumer.close()


def main() -> None:
    members: dict[str, HostedMember] = {}
    for line in sys.stdin:
        name, *command = line.rstrip("\n").split("\t")
        if name not in members or command[0] == "open":
            members[name] = HostedMember(name)
            threading.Thread(target=members[name].run, daemon=True).start()
        if command[0] == "stop":
            members[name].stopping.set()
        else:
            members[name].commands.put(command)


if __name__ == "__main__":
    main()
