"""Fetch requests from places, answers to them by partition, and why a place has no leader."""

from __future__ import annotations

from typing import Any

from gateway.core.fetching import Fetch
from gateway.core.limits import FETCH_BYTES_MAX, FETCH_PARTITION_BYTES_MAX, SCAN_BYTES_MAX
from gateway.core.topology import TopicPartition, Topology
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.records import Batch, CorruptBatch, scan

Message = dict[str, Any]

_LENGTH_END = 12  # of a batch: base offset (8 bytes), length of what follows (4)
_NO_ANSWER: Message = {"ErrorCode": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def fetch_request(fetch: Fetch) -> dict[str, Any]:
    """A full fetch without a session. No leader epoch: which leader to ask is the topology's
    business.
    """
    topics: dict[tuple[str, bytes], list[dict[str, Any]]] = {}
    for place in fetch.places:
        tp = place.source.tp
        entry = {
            "Partition": tp.partition,
            "FetchOffset": place.position,
            "PartitionMaxBytes": FETCH_PARTITION_BYTES_MAX,
        }
        topics.setdefault((tp.topic, tp.topic_id), []).append(entry)
    return {
        "MaxWaitMs": fetch.max_wait_ms,
        "MinBytes": 1,
        "MaxBytes": FETCH_BYTES_MAX,
        "IsolationLevel": fetch.isolation,
        "Topics": [
            {"Topic": name, "TopicId": topic_id, "Partitions": entries}
            for (name, topic_id), entries in topics.items()
        ],
    }


def answers_by_partition(fetch: Fetch, response: Message) -> dict[TopicPartition, Message]:
    """One answer for each partition of the fetch; topics are named by id from version 13 on."""
    found = {
        (topic["Topic"] or topic["TopicId"], answer["PartitionIndex"]): answer
        for topic in response["Responses"]
        for answer in topic["Partitions"]
    }
    return {
        place.source.tp: found.get((place.source.tp.topic_id, place.source.tp.partition))
        or found.get((place.source.tp.topic, place.source.tp.partition))
        or _NO_ANSWER
        for place in fetch.places
    }


def undamaged(records: bytes) -> list[Batch]:
    """The batches of an answer, up to the first that is damaged: what stands before it can be read
    like any other. Raises CorruptBatch if it is the very first. What is beyond SCAN_BYTES_MAX of
    decompressed records is left for the next fetch.
    """
    try:
        return scan(records, enough=SCAN_BYTES_MAX)
    except CorruptBatch:
        at = _end_of_undamaged(records)
        if at == 0:
            raise
        return scan(records[:at], enough=SCAN_BYTES_MAX)


def _end_of_undamaged(records: bytes) -> int:
    """Batch by batch: too slow for every answer."""
    at = 0
    while at + _LENGTH_END <= len(records):
        end = at + _LENGTH_END + int.from_bytes(records[at + 8 : at + _LENGTH_END], "big")
        try:
            whole = scan(records[at:end])
        except CorruptBatch:
            break
        if not whole:
            break
        at = end
    return at


def why_unplaced(topology: Topology, tp: TopicPartition) -> int:
    topic = topology.topics.get(tp.topic)
    if topic is None or topic.error:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
    if topic.topic_id != tp.topic_id:
        return ErrorCode.UNKNOWN_TOPIC_ID
    known = tp.partition in topic.partitions
    return ErrorCode.LEADER_NOT_AVAILABLE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
