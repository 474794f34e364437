"""A stock librdkafka producer in a process of its own: numbered records of some keys, at a pace,
until its standard input ends.

    python -m tests.rig.clients.keyed_producer BOOTSTRAP TOPIC FIRST_KEY KEYS RATE PROPERTY=VALUE...

Two are no properties of the client. `sent.before=n`: it goes on behind n records of another such
producer. `transaction.records=n`: it writes transactions of n records; every fourth one it aborts,
and its records have a value of -1; one that fails it aborts, too, and sends its records once more.
If that ends the client, it opens another one: when what is before Kafka dies, be it Keyway or a
plain TCP relay, librdkafka sometimes sends two batches of one partition again out of order, and
Kafka's OUT_OF_ORDER_SEQUENCE_NUMBER is fatal to it.
Its last line: how many records were acknowledged, how many were not, and of each key its number of
records (KeyedProducer.java prints the same).
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer


@dataclass(slots=True)
class Sender:
    open: Callable[[], Producer]
    topic: str
    first: int
    keys: int
    rate: int
    sent: int
    transaction: int  # records of each; 0: there are none
    failed: list[str] = field(default_factory=list)
    tried: int = 0  # transactions
    producer: Producer = field(init=False)

    def __post_init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.producer = self.open()
        if self.transaction:
            self.producer.init_transactions()

    def go_on(self) -> None:
        """With the next record, or transaction."""
        if not self.transaction:
            self._send(self.sent, b"%d" % (self.sent // self.keys))
            self.sent += 1
        elif self._is_whole():
            self.sent += self.transaction

    def _send(self, at: int, value: bytes) -> None:
        key = b"key-%d" % (self.first + at % self.keys)
        self.producer.produce(self.topic, key=key, value=value, on_delivery=self._told)
        self.producer.poll(0)
        time.sleep(1 / self.rate)

    def _told(self, error: object, message: Any) -> None:
        if error is not None and not self.transaction:  # else the transaction fails
            self.failed.append(f"{message.value()!r}: {error}")

    def _is_whole(self) -> bool:
        """Whether the next transaction is committed. Raises KafkaException: it is fenced."""
        try:
            return self._commits()
        except KafkaException as failure:
            if not failure.args[0].fatal() or failure.args[0].code() == KafkaError._FENCED:
                raise
            self.producer.purge()
            self._begin()
            return False

    def _commits(self) -> bool:
        """Raises KafkaException, too, if the client is at its end."""
        self.tried += 1
        aborts = self.tried % 4 == 0
        self.producer.begin_transaction()
        try:
            for at in range(self.sent, self.sent + self.transaction):
                self._send(at, b"-1" if aborts else b"%d" % (at // self.keys))
            if not aborts:
                patiently(self.producer.commit_transaction)
                return True
        except KafkaException as failure:
            if failure.args[0].fatal():
                raise
        patiently(self.producer.abort_transaction)
        return False


def main(bootstrap: str, topic: str, first: int, keys: int, rate: int, config: list[str]) -> None:
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    properties: dict[str, Any] = dict(item.split("=", 1) for item in config)
    sent, transaction = (
        int(properties.pop(word, 0)) for word in ("sent.before", "transaction.records")
    )
    properties = {"bootstrap.servers": bootstrap, "linger.ms": "5", **properties}
    sender = Sender(lambda: Producer(properties), topic, first, keys, rate, sent, transaction)
    try:
        while not ended.is_set():
            sender.go_on()
    except KafkaException as failure:
        sender.failed.append(repr(failure))
    left = sender.producer.flush(150)
    named = {f"key-{first + at}": (sender.sent - at + keys - 1) // keys for at in range(keys)}
    told_last = {"sent": sender.sent, "failed": sender.failed, "left": left, "keys": named}
    sys.stdout.write(json.dumps(told_last) + "\n")


def patiently(act: Callable[[], None]) -> None:
    """Asked again while the client says that it may be."""
    for left in reversed(range(20)):
        try:
            return act()
        except KafkaException as failure:
            if not failure.args[0].retriable() or not left:
                raise


if __name__ == "__main__":
    _, where, what, first_key, key_count, pace, *rest = sys.argv
    main(where, what, int(first_key), int(key_count), int(pace), rest)
