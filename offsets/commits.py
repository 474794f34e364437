"""The commits of groups on one cluster, from one of two sources, as the same changes.

`TailedCommits` reads `__consumer_offsets`: it misses nothing, and each commit has its time.
`ListedCommits` asks for all groups and their offsets at an interval, for clusters that let nobody
read that topic. It sees a commit at its next question, and takes the time of that question for the
commit's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import structlog
from confluent_kafka import Consumer, KafkaError, TopicPartition

from keyway.kafka.compacted import consumed
from keyway.kafka.log_ends import Partition
from keyway.kafka.to_ends import NOT_KNOWN, Unread, place_of
from offsets.client import EMPTY_STATES, ClusterClient, GroupPlace, Refused
from offsets.core.consumer_offsets import (
    GroupDeleted,
    GroupMembers,
    MemberSeen,
    OffsetCommitted,
    OffsetDeleted,
    Unreadable,
    decode,
)
from offsets.core.plan import Committed
from offsets.errors import NotReadable
from offsets.limits import LEADERS_WAITED_S, LOGGED_PLACES_MAX, READ_S_MAX

log = structlog.get_logger("keyway.offsets")

CONSUMER_OFFSETS = "__consumer_offsets"
Change = OffsetCommitted | OffsetDeleted


class CommitSource(Protocol):
    def poll(self) -> Collection[Change]:
        """The latest change of each place since the last poll. Raises ClusterAway, NotReadable."""

    def latest(self, place: GroupPlace) -> Committed | None:
        """The commit of `place` as of the last poll."""

    @property
    def caught_up(self) -> bool:
        """Whether everything that was committed before the start has been seen."""

    @property
    def timed(self) -> bool:
        """Whether each commit has its own time, and not that of a look at it."""

    @property
    def working(self) -> Collection[str]:
        """Groups that have members, as far as this source tells."""

    def close(self) -> None: ...


class TailedCommits:
    """`wanted`: whether a group is followed."""

    def __init__(self, client: ClusterClient, wanted: Callable[[str], bool]) -> None:
        self._client = client
        self._wanted = wanted
        self._consumer: Consumer | None = None
        self._latest: dict[GroupPlace, OffsetCommitted] = {}
        self._classic: dict[str, int] = {}  # members by group
        self._members: dict[str, set[str]] = {}  # of groups of the newer kinds
        self._unread = Unread()
        self._away: set[Partition] = set()  # those among the unread that nobody can read now
        self._looked_s = 0.0  # for leaders, of a monotonic clock
        self._nothing_yet = False  # nobody has committed anything
        self.unreadable = 0

    @property
    def timed(self) -> bool:
        return True

    @property
    def caught_up(self) -> bool:
        read = self._consumer is not None and self._unread.ends.keys() <= self._away
        return self._nothing_yet or read

    @property
    def working(self) -> Collection[str]:
        classic = {group for group, members in self._classic.items() if members}
        return classic | {group for group, members in self._members.items() if members}

    def latest(self, place: GroupPlace) -> Committed | None:
        found = self._latest.get(place)
        if found is None:
            return None
        return Committed(found.offset, found.metadata, found.committed_ms)

    def poll(self) -> Collection[Change]:
        if self._consumer is None and not self._start():
            return ()
        assert self._consumer is not None
        changes: dict[GroupPlace, Change] = {}
        until = time.monotonic() + READ_S_MAX
        while True:
            with self._client.asking(CONSUMER_OFFSETS):
                messages = consumed(self._consumer, 0.0 if self.caught_up else 0.1)
            for message in messages:
                place, error = place_of(message), message.error()
                if error is None:
                    self._away.discard(place)
                    self._take(message.key(), message.value(), changes)
                elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise NotReadable(f"{self._client.name}: {CONSUMER_OFFSETS}: {error.str()}")
                self._unread.read(place, message)
            if not messages or time.monotonic() > until:
                break
        self._look_for_leaders()
        return changes.values()

    def _look_for_leaders(self) -> None:
        """The groups of a partition without a leader have no coordinator either. They wait, and
        keep no other waiting. Once it has a leader again, all wait until it is read: its later
        commits are still to come.
        """
        now_s = time.monotonic()
        if not self._unread.ends or now_s - self._looked_s < LEADERS_WAITED_S:
            return
        self._looked_s = now_s
        leaderless = {
            (CONSUMER_OFFSETS, at) for at in self._client.without_leader(CONSUMER_OFFSETS)
        }
        away = self._unread.ends.keys() & leaderless
        if new := sorted(at for _, at in away - self._away):
            where = {"cluster": self._client.name, "topic": CONSUMER_OFFSETS}
            log.warning("groups_wait_for_leader", **where, partitions=new)
        self._away = away
        back = [place for place, end in self._unread.ends.items() if end == NOT_KNOWN]
        self._unread.ends |= self._client.ends_here(place for place in back if place not in away)

    def _start(self) -> bool:
        """Returns False while the topic does not exist: nobody has committed yet."""
        # By its name: a list lacks topics that this user may not see, and would look the same.
        count = self._client.partitions_of(CONSUMER_OFFSETS)
        self._nothing_yet = count is None
        if count is None:
            return False
        places = [(CONSUMER_OFFSETS, at) for at in range(count)]
        ends = self._client.ends_here(places)
        self._consumer = self._client.consumer()
        self._unread = Unread({place: end for place, end in ends.items() if end > 0})
        self._looked_s = time.monotonic()
        self._consumer.assign([TopicPartition(*place, 0) for place in places])
        return True

    def _take(
        self, key: bytes | None, value: bytes | None, changes: dict[GroupPlace, Change]
    ) -> None:
        change = decode(key, value)
        if change is None:
            return
        if isinstance(change, Unreadable):
            self.unreadable += 1
            log.warning("commit_record_unreadable", reason=change.reason)
            return
        if not self._wanted(change.group):
            return
        if isinstance(change, OffsetCommitted):
            place = (change.group, change.topic, change.partition)
            self._latest[place] = change
            changes[place] = change
        elif isinstance(change, OffsetDeleted):
            place = (change.group, change.topic, change.partition)
            if self._latest.pop(place, None) is not None:
                changes[place] = change
        elif isinstance(change, GroupMembers):
            self._classic[change.group] = change.members
        elif isinstance(change, GroupDeleted):
            self._classic.pop(change.group, None)
        elif isinstance(change, MemberSeen):
            members = self._members.setdefault(change.group, set())
            (members.add if change.present else members.discard)(change.member_id)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


@dataclass(slots=True)
class ListedCommits:
    """`now_ms` is the wall clock: Kafka does not say when a commit was made."""

    client: ClusterClient
    wanted: Callable[[str], bool]
    now_ms: Callable[[], int]
    interval_ms: int
    caught_up: bool = False
    working: Collection[str] = ()
    _asked_ms: float = 0.0
    _latest: dict[GroupPlace, Committed] = field(default_factory=dict)
    _unknown: set[str] = field(default_factory=set)  # groups whose commits were not told

    @property
    def timed(self) -> bool:
        return False

    def latest(self, place: GroupPlace) -> Committed | None:
        return self._latest.get(place)

    def poll(self) -> Collection[Change]:
        now = time.monotonic() * 1_000
        if self.caught_up and now - self._asked_ms < self.interval_ms:
            return ()
        self._asked_ms = now
        states = self.client.group_states()
        self.working = {name for name, state in states.items() if state not in EMPTY_STATES}
        listed = {group for group in states if self.wanted(group)}
        # A group that is not listed is asked for by its name before its commits count as deleted.
        known = {group for group, _, _ in self._latest}
        answers = self.client.committed_each(sorted(listed | known))
        unknown = {group for group, answer in answers.items() if isinstance(answer, Refused)}
        self._tell({group: answers[group] for group in unknown - self._unknown})
        self._unknown = unknown
        found = {
            (group, topic, partition): committed
            for group, answer in answers.items()
            if not isinstance(answer, Refused)
            for (topic, partition), committed in answer.items()
        }
        changes = [*self._committed(found), *self._deleted(found)]
        self.caught_up = True
        return changes

    @staticmethod
    def _tell(unknown: Mapping[str, object]) -> None:
        if unknown:
            shown = [f"{group}: {why}" for group, why in sorted(unknown.items())]
            log.warning("commits_not_listed", groups=len(unknown), first=shown[:LOGGED_PLACES_MAX])

    def _committed(self, found: dict[GroupPlace, Committed]) -> list[Change]:
        changes: list[Change] = []
        seen_ms = self.now_ms()
        for place, committed in found.items():
            before = self._latest.get(place)
            same = before is not None and (before.offset, before.metadata) == (
                committed.offset,
                committed.metadata,
            )
            if not same:
                self._latest[place] = Committed(committed.offset, committed.metadata, seen_ms)
                changes.append(
                    OffsetCommitted(*place, committed.offset, -1, committed.metadata, seen_ms)
                )
        return changes

    def _deleted(self, found: dict[GroupPlace, Committed]) -> list[Change]:
        """A commit that is not listed may be there all the same: of a topic that this user may not
        describe any more. So it is asked for by its name before it counts as deleted.
        """
        absent = [
            place for place in self._latest if place not in found and place[0] not in self._unknown
        ]
        gone = sorted(self.client.without_commit(absent))
        for place in gone:
            del self._latest[place]
        return [OffsetDeleted(*place) for place in gone]

    def close(self) -> None:
        """There is nothing to close."""
