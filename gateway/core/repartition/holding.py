"""Up to where the records of a new partition may go out, for one group.

Two records of one key: an earlier one in the old partition p, a later one in the new partition q.
What a node knows are looks at the ends of all logs (`LogEnds`), and for each window of an old
partition a `Report`: as of the moment `as_of_ms` these keys still have records there.

The rule: the later record goes out if some look saw it in q at a time t, the report of p is as of
t + settle or later, and does not name its key. If the earlier record was in p by t + settle, the
report's window had read it, so it is settled. A record may thus arrive in p as late as `settle_ms`
after the later one in q, and is still first: a producer that sends a batch again does that.

Once the boundaries are raised nothing of before comes to p any more. So a report of later than that
names all the keys that have anything to wait for.

While producers cannot reach p (its leader is away, or the node that serves it) the earlier record
is late for as long as that lasts. So no look at p counts before `settle_ms` after they can again.

Times are Redis's clock, which each node knows within a bound. A look at p's end counts from the
earliest time at which it may have been asked, one at q's end from the latest at which it may have
been answered, so the bound never lets a record go too early.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from dispatcher.core.hold import HELD_WHOLE, Hold
from dispatcher.core.routing.hashes import key_hash32
from dispatcher.core.routing.kept_keys import is_shortened
from gateway.core.repartition.limits import LOG_END_LOOKS_MAX, REPORTED_KEYS_MAX
from gateway.core.repartition.partitioners import partition_of
from gateway.core.repartition.record import Phase, Repartition

NEVER: Final = -1
WHOLE: Final = 2**63 - 1  # behind every offset
_HEAD: Final = Struct(">qiqB")
_ALL, _SOME = 0, 1


@dataclass(frozen=True, slots=True)
class Look:
    asked_ms: int  # or later
    answered_ms: int  # or earlier
    ends: Mapping[int, int]  # by partition; partitions whose leader did not answer are missing


Way = Hashable


@dataclass(slots=True)
class LogEnds:
    """The log ends of one repartition, as one node has seen them; the oldest look first."""

    _looks: list[Look] = field(default_factory=list)
    _ways: dict[int, Way | None] = field(default_factory=dict)  # by old partition, the last one
    _counts_from_ms: dict[int, int] = field(default_factory=dict)  # by old partition

    def saw(self, look: Look, ways: Mapping[int, Way], record: Repartition) -> None:
        """`ways`: how producers reach the old partitions at this moment; one is missing that they
        do not reach.
        """
        ends = dict(look.ends)
        for partition in range(record.before):
            way = ways.get(partition) if partition in ends else None
            if way != self._ways.setdefault(partition, way):
                self._ways[partition] = way
                self._counts_from_ms[partition] = look.answered_ms + record.pace.settle_ms
            if way is None or look.asked_ms < self._counts_from_ms.get(partition, 0):
                ends.pop(partition, None)
        self._looks.append(Look(look.asked_ms, look.answered_ms, ends))
        if len(self._looks) > LOG_END_LOOKS_MAX:
            del self._looks[1:-1:2]

    def as_of_ms(self, partition: int, known_to: int) -> int:
        """The latest time at which all records of the partition were before `known_to`; NEVER."""
        for look in reversed(self._looks):
            end = look.ends.get(partition)
            if end is not None and end <= known_to:
                return look.asked_ms
        return NEVER

    def end_by(self, partition: int, at_ms: int) -> int:
        """An offset of the partition: records before it were there by `at_ms`."""
        for look in reversed(self._looks):
            if look.answered_ms <= at_ms and partition in look.ends:
                return look.ends[partition]
        return 0


@dataclass(frozen=True, slots=True)
class Report:
    """What the window of one group and old partition says. `below`: keys that move and have
    unsettled records below the boundary. `cursor`: of the window. `keys`: hashes of all keys that
    move and have unsettled records; None: too many to tell, or not told. `unfinished`: how many of
    them the end waits for. A key that perhaps stays has new records here for ever: it counts only
    as one of `below`. Other nodes are not told.
    """

    as_of_ms: int
    below: int
    cursor: int
    keys: frozenset[int] | None
    unfinished: int = field(default=0, compare=False)

    def packed(self) -> bytes:
        head = _HEAD.pack(
            self.as_of_ms, self.below, self.cursor, _ALL if self.keys is None else _SOME
        )
        return head + array("I", sorted(self.keys or ())).tobytes()


def unpacked(data: bytes) -> Report:
    """Raises ValueError."""
    if len(data) < _HEAD.size or (len(data) - _HEAD.size) % 4:
        raise ValueError(f"a report of {len(data)} bytes")
    as_of_ms, below, cursor, kind = _HEAD.unpack_from(data)
    hashes = array("I")
    hashes.frombytes(data[_HEAD.size :])
    return Report(as_of_ms, below, cursor, frozenset(hashes) if kind == _SOME else None)


def report_of(
    record: Repartition,
    partition: int,
    as_of_ms: int,
    cursor: int,
    unsettled: Iterable[tuple[bytes, int]],
) -> Report:
    """`unsettled`: keys with unsettled records, and the offset of the first of each."""
    boundary = record.boundaries[partition] if record.boundaries else 0
    below = unfinished = 0
    hashes: set[int] = set()
    for key, first in unsettled:
        tells = bool(record.into) or (record.partitioner is not None and not is_shortened(key))
        if tells and not moves(record, partition, key):
            continue
        hashes.add(int(key_hash32(key)))
        below += first < boundary
        unfinished += tells or first < boundary
    keys = frozenset(hashes) if len(hashes) <= REPORTED_KEYS_MAX else None
    return Report(as_of_ms, below, cursor, keys, unfinished)


def moves(record: Repartition, partition: int, key: bytes) -> bool:
    """Whether new records of a key that has some in this old partition go elsewhere. A key whose
    partitioner is not known may. All keys of a topic that moves do.
    """
    if record.into or record.partitioner is None:
        return True
    return partition_of(record.partitioner, key, record.after) != partition


def together(reports: Iterable[Report]) -> Report:
    """Of several old partitions, at least one, what all of them have said."""
    first, *others = reports
    as_of_ms, below, cursor, keys = first.as_of_ms, first.below, first.cursor, first.keys
    for each in others:
        as_of_ms = min(as_of_ms, each.as_of_ms)
        below += each.below
        keys = None if keys is None or each.keys is None else keys | each.keys
    return Report(as_of_ms, below, cursor, keys)


def hold_for(record: Repartition, partition: int, report: Report | None, ends: LogEnds) -> Hold:
    """The hold for the window of a new partition. `report`: from the same group's windows of the
    partitions that the keys come from; None: there is none.
    """
    if not record.boundaries or report is None or report.keys is None or report.as_of_ms < 0:
        return HELD_WHOLE
    if record.phase is Phase.DRAINING and report.as_of_ms >= record.raised_ms:
        return Hold(WHOLE, report.keys)
    open_to = ends.end_by(partition, report.as_of_ms - record.pace.settle_ms)
    return Hold(open_to, report.keys)
