"""The demo's verdict: the consumers' own logs against the topic as it is in Kafka.

Pure: nothing here asks the gateway. A consumer writes one line per record before it acknowledges
it, so a line says "this consumer processed this record then". Times are CLOCK_MONOTONIC, which all
processes of one machine share; a record's line is written before its acknowledgement and the next
record of its key may only be handed out after that, so on a right run the lines of a key, ordered
by time, have offsets that never step back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class TopicRecord(NamedTuple):
    """A record as read from Kafka directly. `checksum`: CRC-32 of its value."""

    offset: int
    key: bytes | None
    checksum: int


class Delivery(NamedTuple):
    """One line of a consumer's log. `times` is Kafka's delivery count (1 = first)."""

    consumer: str
    at_ns: int
    partition: int
    offset: int
    times: int
    checksum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    records: int  # in the topic
    keys: int  # distinct, the null key not among them
    unkeyed: int  # records with a null key: each is its own order unit
    consumers: int  # that processed something
    delivered: int  # lines in all logs
    redelivered: int  # of them with a delivery count above 1
    repeated: int  # of them processed before already, by any consumer
    lost: int  # records in no log
    altered: int  # lines whose checksum is not the record's
    unknown: int  # lines of records that are not in the topic
    keys_out_of_order: int
    first_fault: str = ""

    @property
    def passed(self) -> bool:
        return not (self.lost or self.altered or self.unknown or self.keys_out_of_order)


def log_line(delivery: Delivery) -> str:
    """A line of a consumer's log, with its newline; the consumer's name is the log's."""
    return (
        f"{delivery.at_ns} {delivery.partition} {delivery.offset}"
        f" {delivery.times} {delivery.checksum}\n"
    )


def parse_log(consumer: str, text: str) -> list[Delivery]:
    """Every whole line; a last one without its newline was cut off by a kill and does not count."""
    whole = text[: text.rfind("\n") + 1]
    return [
        Delivery(consumer, *(int(field) for field in line.split())) for line in whole.splitlines()
    ]


def audit(topic: Mapping[int, Sequence[TopicRecord]], deliveries: Iterable[Delivery]) -> Report:
    """Judges all logs of one group against the whole topic (partition -> its records)."""
    known = {
        (partition, record.offset): record
        for partition, records in topic.items()
        for record in records
    }
    in_time = sorted(deliveries, key=lambda delivery: delivery.at_ns)
    faults: list[str] = []
    seen: set[tuple[int, int]] = set()
    altered = unknown = repeated = 0
    highest: dict[tuple[int, bytes], Delivery] = {}
    stepped_back: dict[tuple[int, bytes], int] = defaultdict(int)
    for delivery in in_time:
        place = (delivery.partition, delivery.offset)
        record = known.get(place)
        if record is None:
            unknown += 1
            faults.append(f"{_said(delivery)}: no such record")
            continue
        if record.checksum != delivery.checksum:
            altered += 1
            faults.append(f"{_said(delivery)}: not the value that is in the topic")
        repeated += place in seen
        seen.add(place)
        if record.key is None:
            continue
        unit = (delivery.partition, record.key)
        before = highest.get(unit)
        if before is not None and delivery.offset < before.offset:
            stepped_back[unit] += 1
            faults.append(f"key {record.key!r}: {_said(delivery)} after {_said(before)}")
        else:
            highest[unit] = delivery
    lost = known.keys() - seen
    for partition, offset in sorted(lost)[:1]:
        faults.append(f"partition {partition} offset {offset}: in no log")
    keys = {record.key for record in known.values() if record.key is not None}
    return Report(
        records=len(known),
        keys=len(keys),
        unkeyed=sum(record.key is None for record in known.values()),
        consumers=len({delivery.consumer for delivery in in_time}),
        delivered=len(in_time),
        redelivered=sum(delivery.times > 1 for delivery in in_time),
        repeated=repeated,
        lost=len(lost),
        altered=altered,
        unknown=unknown,
        keys_out_of_order=len(stepped_back),
        first_fault=faults[0] if faults else "",
    )


def _said(delivery: Delivery) -> str:
    return f"partition {delivery.partition} offset {delivery.offset} by {delivery.consumer}"
