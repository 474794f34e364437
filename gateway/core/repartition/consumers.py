"""Up to where consumers of plain groups see the new partitions of a topic that grows.

A group has passed an offset of an old partition when it has committed it. So its committed offsets
are its report of the old partition (holding.py), without keys: from them follows the end of each
new partition for it. To its members the records behind that end do not exist yet: a Fetch finds
none, and the end is where ListOffsets says it is.

A Fetch names no group. Its client is known by address and client id, and the groups of a client
are those that it has named in requests about groups, on any of its connections. A member cannot be
given a new partition without such a request, so on a node that stands alone whoever fetches one as
a member is known, but for a while after a start. Of several nodes each hears only the members of
the groups that its brokers coordinate: a client that has named one there may be another consumer
of the same address and client id (librdkafka's is `rdkafka`). A client of which not all is known
gets what all groups have passed, and only what was there for `settle_ms`. So
Spark, which asks for all ends at once and reads up to there, has the earlier record of a key in the
same micro-batch or in one before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from gateway.core.repartition.limits import CLIENT_GROUPS_MAX, CLIENTS_MAX
from gateway.core.wire.long_bytes import Stretch, view_of

_BATCH_HEAD: Final = Struct(">qi")  # base offset, bytes behind this
Client = tuple[str, str | None]  # address, client id
ClientOf = tuple[Client, str]  # and a group
MayRead = set[
    tuple[str, str]
]  # "group" or "topic", and its name: as upstream has told a connection
ANYBODY: Final = ""  # no group has this name: the ends for clients of which none is known


@dataclass(slots=True)
class GroupsOfClients:
    """The groups that clients have named. It forgets nothing while it is used: a client whose
    groups it knew only in part could read too far.
    """

    _known: dict[Client, frozenset[str]] = field(default_factory=dict)
    _too_many: set[Client] = field(default_factory=set)
    _elsewhere: dict[Client, frozenset[str]] = field(default_factory=dict)

    def named(self, client: Client, groups: Iterable[str]) -> None:
        before = self._known.get(client, frozenset())
        known = before.union(groups)
        if len(known) == len(before) or client in self._too_many:
            return
        if len(known) > CLIENT_GROUPS_MAX or (not before and len(self._known) >= CLIENTS_MAX):
            self._known.pop(client, None)
            if len(self._too_many) < CLIENTS_MAX:
                self._too_many.add(client)
            return
        self._known[client] = known

    def tells(self, client: Client) -> bool:
        """Whether it is of use to know more of its groups."""
        return client not in self._too_many

    def of(self, client: Client) -> frozenset[str]:
        """Empty: none is known, or too many to tell."""
        return self._known.get(client, frozenset())

    def anywhere(self, client: Client) -> frozenset[str]:
        """Also those that it has named to other nodes, a while ago."""
        return self.of(client) | self._elsewhere.get(client, frozenset())

    def clients_of(self, groups: Collection[str]) -> set[ClientOf]:
        """For other nodes."""
        return {
            (client, group)
            for client, known in self._known.items()
            for group in known & set(groups)
        }

    def heard(self, told: Iterable[ClientOf]) -> None:
        """By all nodes."""
        groups: dict[Client, set[str]] = {}
        for client, group in told:
            groups.setdefault(client, set()).add(group)
        self._elsewhere = {client: frozenset(named) for client, named in groups.items()}


@dataclass(slots=True)
class ConsumerEnds:
    """The ends of new partitions, by their numbers (record.py). `groups`: whose order is kept."""

    groups: frozenset[str]
    before: int  # the number of old partitions
    into: str = ""  # the topic of the new ones, if it is another
    # Where clients of groups fetch from old partitions: by group and partition, the last place.
    fetched: dict[tuple[str, int], int] = field(default_factory=dict)
    _passed: set[str] = field(default_factory=set)
    _ends: dict[tuple[str, int], int] = field(default_factory=dict)  # by group and partition

    def put(self, group: str, partition: int, end: int) -> None:
        """It moves forward only."""
        place = (group, partition)
        self._ends[place] = max(end, self._ends.get(place, 0))

    def passed(self, group: str) -> None:
        """None of its members waits any more."""
        self._passed.add(group)

    def number(self, topic: str, partition: int) -> int:
        return partition + self.before if topic == self.into else partition

    def fetches(self, groups: frozenset[str], partition: int, offset: int) -> None:
        """A client of these groups asks for records of an old partition from there on."""
        for group in self.waiting & groups:
            self.fetched[group, partition] = offset

    @property
    def waiting(self) -> frozenset[str]:
        return self.groups - self._passed

    def end_for(self, groups: frozenset[str], partition: int) -> int | None:
        """The end for a client with these groups (empty: not known). None: where it is upstream."""
        if partition < self.before:
            return None
        waiting = self.waiting & groups if groups else self.waiting | {ANYBODY}
        return min((self._ends.get((group, partition), 0) for group in waiting), default=None)


def records_before(records: bytes | Stretch | None, end: int) -> bytes:
    """The batches of a Fetch answer that begin before `end`. An end is one of the log, as it was
    seen once: no batch lies across it.
    """
    data = memoryview(b"") if records is None else view_of(records)
    at = 0
    while at + _BATCH_HEAD.size <= len(data):
        base_offset, size = _BATCH_HEAD.unpack_from(data, at)
        if base_offset >= end:
            return bytes(data[:at])
        at += _BATCH_HEAD.size + size
    return bytes(data)
