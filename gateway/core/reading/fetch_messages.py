"""Fetch requests from places, their answers by partition, and reasons for a missing leader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b

from gateway.core.cluster.topology import TopicPartition, Topology
from gateway.core.limits import (
    FETCH_PARTITION_BYTES_MAX,
    LONG_STEP_RECORDS,
    SCAN_BYTES_MAX,
)
from gateway.core.reading.cache import Source
from gateway.core.reading.fetching import Fetch, FetchPosition
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.long_bytes import Stretch, view_of
from gateway.core.wire.records import Batch, CorruptBatch, Scan, TooLargeBatch
from gateway.core.wire.schema import Message

Records = bytes | Stretch  # of one partition's answer

_LAST_DELTA = 23  # of a batch: where its last offset delta (4 bytes) stands
_LENGTH_END = 12  # of a batch: base offset (8 bytes), length of the rest (4)
_NO_ANSWER: Message = {"ErrorCode": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Records": None}


def fetch_request(fetch: Fetch) -> Message:
    """A full fetch without a session. No current leader epoch: the choice of the leader is the
    topology's business.
    """
    topics: dict[tuple[str, bytes], list[Message]] = {}
    for place in fetch.places:
        tp = place.source.tp
        entry = {
            "Partition": tp.partition,
            "FetchOffset": place.position,
            "LastFetchedEpoch": place.epoch,
            "PartitionMaxBytes": min(FETCH_PARTITION_BYTES_MAX, fetch.bytes_max),
        }
        topics.setdefault((tp.topic, tp.topic_id), []).append(entry)
    return {
        "MaxWaitMs": fetch.max_wait_ms,
        "MinBytes": 1,
        "MaxBytes": fetch.bytes_max,
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


def divergence(answer: Message) -> tuple[int, int] | None:
    """Where the leader's log parts from the one that was read, and the epoch of its last record
    before. None: it does not, or the broker does not say (before version 12).
    """
    said = answer.get("DivergingEpoch")
    return None if not said or said["EndOffset"] < 0 else (said["EndOffset"], said["Epoch"])


def brings_nothing(answer: Message) -> bool:
    """No records, and no error: as most answers about quiet partitions."""
    if answer["ErrorCode"] or answer["Records"]:
        return False
    return divergence(answer) is None


def shortest_first(
    places: Iterable[FetchPosition], answers: Mapping[TopicPartition, Message]
) -> list[FetchPosition]:
    """A long answer takes many turns of the event loop: no short one waits for it."""
    return sorted(places, key=lambda place: len(answers[place.source.tp].get("Records") or b""))


class Damages:
    """Batches of answers, and the damaged or too large ones: they are asked for again and again,
    but scanned only once. To find a fault at the end of a large compressed batch takes most of a
    second.
    """

    def __init__(self) -> None:
        self._known: dict[Source, _Damage] = {}

    def undamaged(self, place: FetchPosition, records: Records) -> UndamagedScan:
        """Scans the batches of an answer up to the first damaged one. The batches before that can
        be read like any other. Raises CorruptBatch if the very first is known to be damaged.
        """
        known = self._known.get(place.source)
        if known is not None and known.digest == _digest(records):
            kind = TooLargeBatch if known.too_large else CorruptBatch
            raise kind(known.reason)  # the next read may ask from inside the batch
        if known is not None and known.position == place.position:
            del self._known[place.source]
        return UndamagedScan(self, place, records)

    def note(self, place: FetchPosition, records: Records, error: CorruptBatch) -> None:
        """The first batch is damaged, or too large."""
        large = isinstance(error, TooLargeBatch)
        damage = _Damage(place.position, _digest(records), str(error), too_large=large)
        self._known[place.source] = damage

    def forget(self, source: Source) -> None:
        self._known.pop(source, None)


class UndamagedScan:
    """A step is short; records beyond SCAN_BYTES_MAX, decompressed, are left for the next fetch."""

    def __init__(self, damages: Damages, place: FetchPosition, records: Records) -> None:
        self._damages = damages
        self._place = place
        self._records = records
        self._scan = Scan(records, enough=SCAN_BYTES_MAX)

    @property
    def batches(self) -> list[Batch]:
        return self._scan.batches

    @property
    def long_next(self) -> bool:
        """The next step takes some 100 ms, in which other threads run."""
        return self._scan.long_next

    def step(self) -> bool:
        """False: it was the last. Raises CorruptBatch if the first batch is damaged, TooLargeBatch
        likewise: `end_of_first` says where the batch ends.
        """
        try:
            return self._scan.step(LONG_STEP_RECORDS)
        except CorruptBatch as error:
            if self.batches:
                return False
            self._damages.note(self._place, self._records, error)
            raise


@dataclass(frozen=True, slots=True)
class _Damage:
    position: int
    digest: bytes  # of the damaged batch, so that a mended batch is not taken for it
    reason: str
    too_large: bool


def end_of_first(records: Records) -> int:
    """The offset behind the first batch of an answer, from its header."""
    view = view_of(records)
    base = int.from_bytes(view[:8], "big")
    return base + int.from_bytes(view[_LAST_DELTA : _LAST_DELTA + 4], "big") + 1


def _digest(records: Records) -> bytes:
    """A digest of the first batch alone: later ones grow."""
    view = view_of(records)
    end = _LENGTH_END + int.from_bytes(view[_LENGTH_END - 4 : _LENGTH_END], "big")
    return blake2b(view[:end], digest_size=16).digest()


def why_unplaced(topology: Topology, tp: TopicPartition) -> int:
    topic = topology.topics.get(tp.topic)
    if topic is None or topic.error:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
    if topic.topic_id != tp.topic_id:
        return ErrorCode.UNKNOWN_TOPIC_ID
    known = tp.partition in topic.partitions
    return ErrorCode.LEADER_NOT_AVAILABLE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
