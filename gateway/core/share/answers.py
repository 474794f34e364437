"""Parts of ShareFetch and ShareAcknowledge answers: acquired ranges, partition rows (KIP-932)."""

from __future__ import annotations

from typing import Final

from gateway.core.cluster.topology import PartitionInfo
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.long_bytes import LongBytes
from gateway.core.wire.schema import Message

# An int16 on the wire; given back cleanly, a record may come oftener.
DELIVERY_COUNT_MAX: Final = 2**15 - 1


def acquired_ranges(offsets: list[int], attempts: list[int]) -> list[tuple[int, int, int]]:
    """(first offset, last offset, delivery count): ascending, disjoint, covering exactly `offsets`.

    A range that is wider than the records sent makes clients acknowledge records that they never
    saw, a descending one makes the Java client lose records (ShareCompletedFetch).
    """
    ranges: list[tuple[int, int, int]] = []
    if not offsets:
        return ranges
    first = last = offsets[0]
    attempt = attempts[0]
    for index in range(1, len(offsets)):
        offset = offsets[index]
        if offset == last + 1 and attempts[index] == attempt:
            last = offset
            continue
        ranges.append((first, last, min(attempt, DELIVERY_COUNT_MAX)))
        first = last = offset
        attempt = attempts[index]
    ranges.append((first, last, min(attempt, DELIVERY_COUNT_MAX)))
    return ranges


def fair_shares(ready: list[int], total: int) -> list[int]:
    """Max-min fair split of `total`, capped by the ready records of each; the remainder goes to the
    first.

    A fetch that empties one partition and leaves the next alone would take long tails of scattered
    records instead of the oldest of each.
    """
    level = 0
    left = total
    for nth, has in enumerate(sorted(ready)):
        level = min(has, left // (len(ready) - nth))
        if level < has:
            break
        left -= has
    shares = [min(has, level) for has in ready]
    left = total - sum(shares)
    for at in range(len(ready)):
        if left > 0 and shares[at] < ready[at]:
            shares[at] += 1
            left -= 1
    return shares


def fetch_row(
    partition: int,
    *,
    error: ErrorCode = ErrorCode.NONE,
    acknowledge_error: ErrorCode = ErrorCode.NONE,
    acknowledge_message: str | None = None,
    leader: PartitionInfo | None = None,
    records: bytes | LongBytes = b"",
    acquired: list[tuple[int, int, int]] | None = None,
) -> Message:
    """One partition of a ShareFetch response. Records are empty bytes when there are none, never
    null.
    """
    return {
        "PartitionIndex": partition,
        "ErrorCode": int(error),
        "AcknowledgeErrorCode": int(acknowledge_error),
        "AcknowledgeErrorMessage": acknowledge_message,
        "CurrentLeader": _leader(leader),
        "Records": records,
        "AcquiredRecords": acquired or [],
    }


def acknowledge_row(
    partition: int,
    *,
    error: ErrorCode = ErrorCode.NONE,
    message: str | None = None,
    leader: PartitionInfo | None = None,
) -> Message:
    """One partition of a ShareAcknowledge response."""
    return {
        "PartitionIndex": partition,
        "ErrorCode": int(error),
        "ErrorMessage": message,
        "CurrentLeader": _leader(leader),
    }


def _leader(leader: PartitionInfo | None) -> Message:
    """A broker writes 0 and 0 where it names nobody, by the default of its fields. franz-go takes
    that beside an error for a move to broker 0, and never asks for the partition again.
    """
    if leader is None:
        return {"LeaderId": -1, "LeaderEpoch": -1}
    return {"LeaderId": leader.virtual_leader, "LeaderEpoch": leader.leader_epoch}


def by_topic(rows: list[tuple[bytes, Message]]) -> list[Message]:
    """Groups (topic id, partition row) by topic, in the order the topics came."""
    topics: dict[bytes, list[Message]] = {}
    for topic_id, row in rows:
        topics.setdefault(topic_id, []).append(row)
    return [{"TopicId": topic_id, "Partitions": parts} for topic_id, parts in topics.items()]


def node_endpoints(advertised: dict[int, tuple[str, int]]) -> list[Message]:
    """Where the virtual brokers are."""
    return [
        {"NodeId": broker_id, "Host": advertised[broker_id][0], "Port": advertised[broker_id][1]}
        for broker_id in sorted(advertised)
    ]
