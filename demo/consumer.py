"""A stock share consumer: nothing in it knows of Keyway.

`python -m demo.consumer BOOTSTRAP GROUP TOPIC LOG` processes records until SIGTERM.
Processing a record is appending a line to LOG; only then it is acknowledged.
"""

from __future__ import annotations

import signal
import sys
import time
import zlib
from pathlib import Path
from types import FrameType

from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer

from demo.audit import Delivery, log_line


def processed(message: Message[bytes, bytes]) -> Delivery:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    checksum = zlib.crc32(message.value() or b"")
    times = message.delivery_count() or 1
    return Delivery("", time.monotonic_ns(), partition, offset, times, checksum)


def main(bootstrap_servers: str, group: str, topic: str, log: Path) -> None:
    stopping = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    consumer = ShareConsumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "client.id": log.stem,
            "share.acknowledgement.mode": "explicit",
        }
    )
    consumer.subscribe([topic])
    with log.open("a", encoding="ascii") as lines:
        while not stopping:
            for message in consumer.poll(timeout=0.2):
                error = message.error()
                if error is not None:
                    if error.fatal():
                        raise KafkaException(error)
                    continue  # librdkafka goes on by itself
                lines.write(log_line(processed(message)))
                consumer.acknowledge(message, AcknowledgeType.ACCEPT)
            # Acknowledgements leave with the next poll; the lines are in the file before that.
            lines.flush()
    consumer.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
