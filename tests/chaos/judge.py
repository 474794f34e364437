"""The verdict on a round: the members' own reports against the topic as it is in Kafka.

A record is *processed* when its application is done with it: with poll() in implicit mode, with the
work before acknowledge() in explicit mode. In order means: no record was delivered before every
earlier one of its key had been processed at least once. A record is *confirmed* when a client was
told that its acknowledgement was taken; it may come again only if Redis was flushed after that (or
came back with older files), and only if it was not in the offset and bitmap committed to Kafka
before.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from demo import audit
from tests.rig.clients.order import by_key
from tests.rig.clients.share_lines import Acked, Delivery, TopicPartitionOffset

# (offset, key, value), as `tests.rig.kafka.read_partition` returns them, per partition.
Topic = Mapping[int, Sequence[tuple[int, bytes | None, bytes | None]]]

# A commit falls due once an interval; records confirmed while one is under way wait for the next.
COMMIT_SLACK_MS = 3_000


@dataclass(frozen=True, slots=True)
class Processed:
    """A delivery and when the application was done with it; None: it never was (killed)."""

    delivery: Delivery
    done_ns: int | None


@dataclass(frozen=True, slots=True)
class Flush:
    """Redis lost everything, or the last of it. Times on the members' monotonic clock."""

    at_ns: int
    back_ns: int  # gateway or Redis was started again; earlier confirmations are from before
    committed: frozenset[TopicPartitionOffset]  # read from Kafka just before
    calm: tuple[tuple[int, int], ...]  # from when to when gateway, Redis and broker were all up
    commit_interval_ms: int


@dataclass(frozen=True, slots=True)
class Verdict:
    records: int
    delivered: int
    again: int  # deliveries of a record that had been delivered before
    confirmed_again: int  # of them after the acknowledgement had been confirmed; flushes do that
    lost: int
    reordered: int  # keys with a record delivered before an earlier one was processed
    faults: tuple[str, ...] = field(default=())

    @property
    def passed(self) -> bool:
        return not self.faults


def judge(
    topic_name: str,
    topic: Topic,
    processed: Sequence[Processed],
    acked: Sequence[Acked],
    flushes: Sequence[Flush],
) -> Verdict:
    firsts = _first_processings(processed)
    report = audit.audit(
        {
            partition: [
                audit.TopicRecord(offset, key, zlib.crc32(value or b""))
                for offset, key, value in records
            ]
            for partition, records in topic.items()
        },
        [
            audit.Delivery(
                first.member, done, first.partition, first.offset, 1, zlib.crc32(first.value or b"")
            )
            for first, done in firsts.values()
        ],
    )
    faults = [] if report.passed else [report.first_fault]
    deliveries = [done.delivery for done in processed]
    early = _early({place: done for place, (_, done) in firsts.items()}, deliveries)
    faults += early
    again, unfounded = _confirmed_again(deliveries, acked, flushes)
    faults += unfounded
    places = [delivery.place for delivery in deliveries]
    foreign = sum(delivery.topic != topic_name for delivery in deliveries)
    if foreign:
        faults.append(f"{foreign} records of another topic")
    return Verdict(
        records=report.records,
        delivered=len(places),
        again=len(places) - len(set(places)),
        confirmed_again=again,
        lost=report.lost,
        reordered=max(report.keys_out_of_order, len(early)),
        faults=tuple(faults),
    )


def _first_processings(
    processed: Sequence[Processed],
) -> dict[TopicPartitionOffset, tuple[Delivery, int]]:
    firsts: dict[TopicPartitionOffset, tuple[Delivery, int]] = {}
    for done in processed:
        before = firsts.get(done.delivery.place)
        if done.done_ns is not None and (before is None or done.done_ns < before[1]):
            firsts[done.delivery.place] = (done.delivery, done.done_ns)
    return firsts


def _early(done: Mapping[TopicPartitionOffset, int], deliveries: Sequence[Delivery]) -> list[str]:
    """One line per key of which a record was delivered before an earlier one had been processed."""
    found = []
    for (_, partition, key), sequence in by_key(deliveries).items():
        places = {delivery.offset: delivery.place for delivery in sequence}
        for at, later in enumerate(sequence):
            waiting = [
                offset
                for offset, place in places.items()
                if offset < later.offset and not done.get(place, later.at_ns + 1) <= later.at_ns
            ]
            if waiting:
                trail = " ".join(
                    f"{delivery.offset}@{delivery.member}"
                    for delivery in sequence[max(0, at - 8) :][:16]
                )
                found.append(
                    f"key {key!r} of partition {partition}: {later.offset} to {later.member}"
                    f" before {waiting[0]} was processed: {trail}"
                )
                break
    return found


def _confirmed_again(
    deliveries: Sequence[Delivery], acked: Sequence[Acked], flushes: Sequence[Flush]
) -> tuple[int, list[str]]:
    """How many deliveries came after a confirmed acknowledgement; those that no flush explains."""
    confirmed: dict[TopicPartitionOffset, list[Acked]] = {}
    for answer in acked:
        if answer.error is None:
            confirmed.setdefault(answer.place, []).append(answer)
    count = 0
    unfounded = []
    for delivery in deliveries:
        before = [ack for ack in confirmed.get(delivery.place, ()) if ack.at_ns < delivery.at_ns]
        if not before:
            continue
        count += 1
        last = max(before, key=lambda ack: ack.at_ns)
        if not any(_explains(flush, delivery, last) for flush in flushes):
            unfounded.append(
                f"{delivery.place} to {delivery.member} (delivery {delivery.delivery_count})"
                f" {(delivery.at_ns - last.at_ns) / 1e6:.0f} ms after {last.member} was told"
                " that it is acknowledged"
            )
    return count, unfounded


def _explains(flush: Flush, delivery: Delivery, confirmed: Acked) -> bool:
    if not confirmed.at_ns <= flush.back_ns or delivery.at_ns < flush.at_ns:
        return False
    return delivery.place not in flush.committed and not _was_due(flush, confirmed)


def _was_due(flush: Flush, confirmed: Acked) -> bool:
    """Whether a commit had the time to fall due and to succeed before the flush."""
    due_ns = (flush.commit_interval_ms + COMMIT_SLACK_MS) * 1_000_000
    return any(
        min(end, flush.at_ns) - max(begin, confirmed.at_ns) > due_ns for begin, end in flush.calm
    )
