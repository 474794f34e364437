"""A stock share consumer at work for hours: nothing in it knows of Keyway.

`python -m demo.tracker BOOTSTRAP GROUP TOPIC CLIENT_ID SECONDS` takes that long for each
record, until SIGTERM. What is no flight in JSON it gives back, each time it gets it.
"""

from __future__ import annotations

import json
import signal
import sys
import threading

from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer


def verdict(message: Message[bytes, bytes]) -> AcknowledgeType:
    try:
        json.loads(message.value() or b"")
    except ValueError:
        return AcknowledgeType.RELEASE
    return AcknowledgeType.ACCEPT


def main(bootstrap_servers: str, group: str, topic: str, client_id: str, seconds: float) -> None:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stopping.set())
    consumer = ShareConsumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "client.id": client_id,
            "share.acknowledgement.mode": "explicit",
        }
    )
    consumer.subscribe([topic])
    while not stopping.is_set():
        for message in consumer.poll(timeout=0.2):
            error = message.error()
            if error is not None:
                if error.fatal():
                    raise KafkaException(error)
                continue  # librdkafka goes on by itself
            stopping.wait(seconds)
            consumer.acknowledge(message, verdict(message))
    consumer.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], float(sys.argv[5]))
