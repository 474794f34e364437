"""The line protocol between a test and a process that hosts stock share consumers.

Tab-separated fields, one command or report a line, the member's name first. Commands:

    NAME open GROUP TOPIC[,TOPIC] PROPERTY=VALUE...  the client's own configuration
    NAME poll TIMEOUT_MS                             one poll() call
    NAME ack TYPE TOPIC PARTITION OFFSET[,OFFSET]    ACCEPT, RELEASE, REJECT or RENEW
    NAME commit TIMEOUT_MS                           commitSync()
    NAME consume TOTAL_MS                            poll and accept until `stop` or this long
    NAME stop                                        ends a running consume
    NAME close                                       close(): acknowledge, leave

Reports: `record`, `acked` (from the client's acknowledgement callback), `committed`, `note` (an
error event that does not end the command), and at the end of every command `done` or `failed TEXT`.
Bytes are hex, `-` is null. The first number of a report is the monotonic clock in ns: one clock for
every process of one machine, Java's System.nanoTime() included, so that reports of different
processes can be ordered.
"""

from __future__ import annotations

from dataclasses import dataclass

TopicPartitionOffset = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Delivery:
    """One record as a member's application saw it. `at_ns`: monotonic clock when poll() returned
    it.
    """

    member: str
    at_ns: int
    topic: str
    partition: int
    offset: int
    delivery_count: int | None
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def place(self) -> TopicPartitionOffset:
        return (self.topic, self.partition, self.offset)


@dataclass(frozen=True, slots=True)
class Acked:
    """The cluster's answer to the acknowledgement of one record. `error` is None or the client's
    error text.
    """

    member: str
    at_ns: int
    topic: str
    partition: int
    offset: int
    error: str | None

    @property
    def place(self) -> TopicPartitionOffset:
        return (self.topic, self.partition, self.offset)


def text_of(data: bytes | None) -> str:
    return "-" if data is None else data.hex()


def bytes_of(text: str) -> bytes | None:
    return None if text == "-" else bytes.fromhex(text)


def headers_text(headers: list[tuple[str, bytes | None]]) -> str:
    """Headers as `name=hex;name=hex`; the tests use names without `=` and `;`."""
    return ";".join(f"{name}={text_of(value)}" for name, value in headers)


def headers_of(text: str) -> tuple[tuple[str, bytes | None], ...]:
    pairs = (part.partition("=") for part in text.split(";") if part)
    return tuple((name, bytes_of(value)) for name, _, value in pairs)


def delivery_line(delivery: Delivery) -> str:
    count = "-" if delivery.delivery_count is None else str(delivery.delivery_count)
    fields = (
        delivery.member,
        "record",
        str(delivery.at_ns),
        delivery.topic,
        str(delivery.partition),
        str(delivery.offset),
        count,
        str(delivery.timestamp_ms),
        text_of(delivery.key),
        text_of(delivery.value),
        headers_text(list(delivery.headers)),
    )
    return "\t".join(fields)


def parse_delivery(fields: list[str]) -> Delivery:
    """A `record` report, split at tabs."""
    member, _, at_ns, topic, partition, offset, count, timestamp, key, value, headers = fields
    return Delivery(
        member,
        int(at_ns),
        topic,
        int(partition),
        int(offset),
        None if count == "-" else int(count),
        int(timestamp),
        bytes_of(key),
        bytes_of(value),
        headers_of(headers),
    )


def parse_acked(fields: list[str]) -> Acked:
    """An `acked` report, split at tabs."""
    member, _, at_ns, topic, partition, offset, error = fields
    return Acked(
        member, int(at_ns), topic, int(partition), int(offset), None if error == "OK" else error
    )
