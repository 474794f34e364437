"""Membership of one share group: joins, epochs, assignments, evictions (KIP-932,
ShareGroupHeartbeat).

Every member is assigned all partitions of its subscribed topics; the dispatcher chooses its keys. A
member's epoch grows when its own assignment does: nothing else that concerns a member ever changes.
Member ids are UUIDs that clients choose, one per client instance.

A member that joins others within `assignment_interval_ms` of another join is answered without
partitions, and its next heartbeat brings them, as Kafka batches assignments (KIP-1263,
share.assignment.interval.ms). Until then no key goes to it.

The first members of a group share its start: those that join within `start_ms` of the first, at
most START_MEMBERS_MAX, are answered together at its end, with their partitions. Otherwise the first
would read alone until the next heartbeats of the others. So a member of a crowd that leaves at
once never had partitions: librdkafka does not get rid of those that reach it while it leaves.

A member is evicted when its heartbeats stop for the session timeout, or when none of its
connections is left for the disconnect grace: a killed process frees its keys long before its
session times out.

Members that left not long ago are awaited: what only their key filters accept is not skipped. So is
anybody, for a while, where members may be on their way that nobody has seen: when a group begins
with a topic, perhaps after Redis has lost its members, or on another cluster.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from gateway.core.cluster.topic_names import is_topic_name
from gateway.core.cluster.topology import Topic
from gateway.core.limits import GROUP_TOPIC_NAMES_MAX
from gateway.core.share.errors import (
    FencedMemberEpoch,
    GroupFull,
    InvalidRequest,
    UnknownMember,
)
from gateway.core.share.subscriptions import Subscription, distinct, joined, names_in

LEAVE_EPOCH = -1
JOIN_EPOCH = 0

# More members that start at once are a crowd: their partitions come with the next heartbeat.
START_MEMBERS_MAX = 10

# Of members that left: their client ids, with the topics that they had.
DEPARTED_MAX = 1_000

# Clients that lost their node are back within 13 s, and members that are deployed together come
# together. Keys that nobody shall have are not kept for longer: they would fill the windows.
UNSEEN_MS_MAX = 20_000

# Who is awaited: a client id, and topics. No client id: anybody, whatever the keys.
Awaited = tuple[str | None, tuple[str, ...]]
EVERYBODY: Final[Awaited] = (None, ())  # in all topics: more have left than are known one by one

Assignment = dict[bytes, tuple[int, ...]]  # topic id (16 bytes) -> partitions
TopicByName = Callable[[str], Topic | None]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    member_id: str
    member_epoch: int
    rack_id: str | None
    topics: tuple[str, ...] | None  # None: unchanged
    client_id: str
    client_host: str
    connection: int
    principal: str | None = None  # None: nobody has told who it is


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    member_epoch: int
    assignment: Assignment | None  # None: unchanged
    members_changed: bool  # the dispatchers must hear of the change
    wait_ms: int = 0  # a join that is answered later: ask again then, with the new epoch


@dataclass(slots=True)
class ShareMember:
    member_id: str
    client_id: str
    client_host: str
    rack_id: str | None
    topics: tuple[str, ...]  # ascending
    epoch: int
    previous_epoch: int
    assignment: Assignment
    last_heartbeat_ms: int
    assigned_later: bool = False  # joined a crowd: the next heartbeat brings its partitions
    connections: set[int] = field(default_factory=set)
    gone_since_ms: int | None = None

    def subscribes(self, topic: str) -> bool:
        at = bisect_left(self.topics, topic)
        return at < len(self.topics) and self.topics[at] == topic


# Long: a method for each thing that may happen to a member, and a question for each room above.
@dataclass(slots=True)
class ShareGroup:
    name: str
    session_timeout_ms: int
    disconnect_grace_ms: int
    members_max: int
    assignment_interval_ms: int
    start_ms: int = 0
    epoch: int = 0
    members: dict[str, ShareMember] = field(default_factory=dict)  # in join order
    # When the last member of a client id, with these topics, left; the earliest first.
    departed: dict[Awaited, int] = field(default_factory=dict)
    departed_looked_ms: int = 0  # when their topics were last looked at
    _joined_ms: int | None = None  # the newest join
    _started_ms: int | None = None  # the join of the first of the present members

    def heartbeat(
        self, beat: Heartbeat, topic_by_name: TopicByName, now_ms: int
    ) -> HeartbeatAnswer:
        """Raises GroupError. The answer has the assignment on a join and whenever it changed."""
        if not beat.member_id:
            raise InvalidRequest("MemberId can't be empty.")
        if beat.member_epoch == LEAVE_EPOCH:
            return self._leave(beat.member_id, now_ms)
        if beat.member_epoch == JOIN_EPOCH:
            return self._join(beat, topic_by_name, now_ms)
        if beat.member_epoch < 0:
            raise InvalidRequest("MemberEpoch is invalid.")
        return self._continue(beat, topic_by_name, now_ms)

    def _leave(self, member_id: str, now_ms: int) -> HeartbeatAnswer:
        if member_id not in self.members:
            raise UnknownMember(f"Member {member_id} is not a member of group {self.name}.")
        self.remove(member_id, now_ms)
        self.epoch += 1
        return HeartbeatAnswer(LEAVE_EPOCH, None, members_changed=True)

    def remove(self, member_id: str, now_ms: int) -> ShareMember:
        """Takes a member out of the group."""
        member = self.members.pop(member_id)
        self._note_departed(member, now_ms)
        return member

    def _note_departed(self, member: ShareMember, now_ms: int) -> None:
        self._await((member.client_id, member.topics), now_ms)

    def _await(self, one: Awaited, now_ms: int) -> None:
        self.departed.pop(one, None)
        self.departed[one] = now_ms
        names = names_in(topics for _, topics in self.departed)
        if len(self.departed) > DEPARTED_MAX or names > GROUP_TOPIC_NAMES_MAX:
            self.departed.pop(EVERYBODY, None)
            while len(self.departed) >= DEPARTED_MAX or names > GROUP_TOPIC_NAMES_MAX:
                del self.departed[next(iter(self.departed))]
                names = names_in(topics for _, topics in self.departed)
            self.departed[EVERYBODY] = now_ms

    def _await_unseen(self, topics: Iterable[str], now_ms: int) -> None:
        """Awaits anybody in those of the topics that no known member reads or has read. O(topics of
        all members), but as a rule the first one reads them.
        """
        unseen = set(topics)
        for subscribed in self._subscriptions():
            if not unseen:
                return
            unseen.difference_update(subscribed)
        for _, known in self.departed:
            unseen.difference_update(known)
        if unseen:
            self._await((None, tuple(sorted(unseen))), now_ms)

    def _change_client(self, member: ShareMember, client_id: str, now_ms: int) -> bool:
        """As Kafka, takes the client id of the last heartbeat. It may declare other key filters."""
        if client_id == member.client_id:
            return False
        self._note_departed(member, now_ms)
        member.client_id = client_id
        return True

    def _change_topics(self, member: ShareMember, topics: tuple[str, ...], now_ms: int) -> None:
        """Who gives a topic up may come back to it, as one that left."""
        if not set(member.topics) <= set(topics):
            self._note_departed(member, now_ms)
        member.topics = topics

    def await_departed_anew(self, now_ms: int) -> None:
        """While nobody subscribes to a topic its records wait, so the time of those who left it
        does not run. O(topics of all members and of all who left).
        """
        read = set[str]().union(*self._subscriptions())
        kept = {one: at for one, at in self.departed.items() if not read.isdisjoint(one[1] or read)}
        self.departed = kept | {one: now_ms for one in self.departed if one not in kept}
        self.departed_looked_ms = now_ms

    def overdue(self, now_ms: int, wait_ms: int) -> list[Awaited]:
        """Whom nobody awaits any more, `wait_ms` after they left. O(all who left)."""
        unseen_ms = min(wait_ms, UNSEEN_MS_MAX)
        return [
            one
            for one, at in self.departed.items()
            if now_ms - at >= (unseen_ms if one[0] is None and one[1] else wait_ms)
        ]

    def _join(self, beat: Heartbeat, topic_by_name: TopicByName, now_ms: int) -> HeartbeatAnswer:
        if not beat.topics:
            raise InvalidRequest("SubscribedTopicNames must be set in first request.")
        known = self.members.get(beat.member_id)
        if known is None and len(self.members) >= self.members_max:
            raise GroupFull(f"The group has reached its maximum of {self.members_max} members.")
        topics = self._subscription(beat.member_id, beat.topics)
        changed = known is None or known.topics != topics
        if changed:
            self.epoch += 1
        assignment = assign(topics, topic_by_name)
        if not self.members:
            self._started_ms = now_ms
            self.await_departed_anew(now_ms)
        self._await_unseen(topics, now_ms)
        wait_ms = self._start_left_ms(now_ms) if known is None and assignment else 0
        later = known is None and bool(assignment) and (wait_ms > 0 or self._is_crowd(now_ms))
        if known is None:
            self._joined_ms = now_ms
            known = ShareMember(
                member_id=beat.member_id,
                client_id=beat.client_id,
                client_host=beat.client_host,
                rack_id=beat.rack_id,
                topics=topics,
                epoch=self.epoch,
                previous_epoch=self.epoch,
                assignment={},
                last_heartbeat_ms=now_ms,
            )
            self.members[beat.member_id] = known
        else:
            changed = self._change_client(known, beat.client_id, now_ms) or changed
            self._change_topics(known, topics, now_ms)
        known.assignment = {} if later else assignment
        changed = changed or known.assigned_later
        known.assigned_later = later
        self._move_epoch(known)
        self._seen(known, beat.connection, now_ms)
        return HeartbeatAnswer(known.epoch, known.assignment, changed, wait_ms)

    def _subscription(self, member_id: str, topics: Iterable[str]) -> Subscription:
        """Raises GroupFull."""
        members = self.members.values()
        others = (member.topics for member in members if member.member_id != member_id)
        return joined(possible(topics), others)

    def _subscriptions(self) -> Collection[Subscription]:
        return distinct(member.topics for member in self.members.values())

    def _start_left_ms(self, now_ms: int) -> int:
        """The time until the end of the group's start; 0: it is over, or the group is a crowd."""
        if self._started_ms is None or len(self.members) >= START_MEMBERS_MAX:
            return 0
        start_ms = min(self.start_ms, self.assignment_interval_ms)
        return max(0, self._started_ms + start_ms - now_ms)

    def _is_crowd(self, now_ms: int) -> bool:
        """Does a member that joins now join others, just after another join?"""
        joined_ms = self._joined_ms
        if joined_ms is None or not self.members:
            return False
        return now_ms - joined_ms < self.assignment_interval_ms

    def _continue(
        self, beat: Heartbeat, topic_by_name: TopicByName, now_ms: int
    ) -> HeartbeatAnswer:
        member = self.members.get(beat.member_id)
        if member is None:
            raise UnknownMember(f"Member {beat.member_id} is not a member of group {self.name}.")
        # An answer may have been lost: the epoch before is still good (KIP-848 rule).
        if beat.member_epoch not in (member.epoch, member.previous_epoch):
            raise FencedMemberEpoch(
                f"The share group member has epoch {beat.member_epoch}, expected {member.epoch}."
            )
        topics = member.topics
        if beat.topics is not None:
            topics = self._subscription(beat.member_id, beat.topics)
        self._seen(member, beat.connection, now_ms)
        changed = self._change_client(member, beat.client_id, now_ms) or member.assigned_later
        member.assigned_later = False
        if topics != member.topics:
            self._await_unseen(topics, now_ms)
            self._change_topics(member, topics, now_ms)
            self.epoch += 1
            changed = True
        assignment = assign(member.topics, topic_by_name)
        if assignment != member.assignment:
            member.assignment = assignment
            self.epoch += 1
            self._move_epoch(member)
            return HeartbeatAnswer(member.epoch, assignment, members_changed=changed)
        if beat.member_epoch != member.epoch or beat.topics is not None:
            return HeartbeatAnswer(member.epoch, assignment, members_changed=changed)
        return HeartbeatAnswer(member.epoch, None, members_changed=changed)

    def _move_epoch(self, member: ShareMember) -> None:
        member.previous_epoch = member.epoch
        member.epoch = self.epoch

    def _seen(self, member: ShareMember, connection: int, now_ms: int) -> None:
        member.last_heartbeat_ms = now_ms
        self.connected(member.member_id, connection)

    def connected(self, member_id: str, connection: int) -> None:
        """A connection carries requests of this member."""
        member = self.members.get(member_id)
        if member is not None:
            member.connections.add(connection)
            member.gone_since_ms = None

    def connection_lost(self, member_id: str, connection: int, now_ms: int) -> None:
        """One of the member's connections is gone."""
        member = self.members.get(member_id)
        if member is not None and connection in member.connections:
            member.connections.discard(connection)
            if not member.connections:
                member.gone_since_ms = now_ms

    def has_due(self, now_ms: int) -> bool:
        """Would `evict_due` take anybody out?"""
        return any(self._is_due(member, now_ms) for member in self.members.values())

    def evict_due(self, now_ms: int) -> list[ShareMember]:
        """Takes out the members whose session timed out or whose connections are gone for the
        grace.
        """
        due = [member for member in self.members.values() if self._is_due(member, now_ms)]
        for member in due:
            self.remove(member.member_id, now_ms)
        if due:
            self.epoch += 1
        return due

    def _is_due(self, member: ShareMember, now_ms: int) -> bool:
        return self._is_silent(member, now_ms) or self._is_gone(member, now_ms)

    def _is_silent(self, member: ShareMember, now_ms: int) -> bool:
        return now_ms - member.last_heartbeat_ms >= self.session_timeout_ms

    def _is_gone(self, member: ShareMember, now_ms: int) -> bool:
        gone = member.gone_since_ms
        return gone is not None and now_ms - gone >= self.disconnect_grace_ms

    def gone(self, now_ms: int) -> list[str]:
        """Members that are due only because none of their connections is left."""
        members = self.members.values()
        gone = [member for member in members if self._is_gone(member, now_ms)]
        return [member.member_id for member in gone if not self._is_silent(member, now_ms)]

    def connected_elsewhere(self, member_id: str, now_ms: int) -> None:
        """Another node has a connection of it: the grace begins anew."""
        member = self.members.get(member_id)
        if member is not None and member.gone_since_ms is not None:
            member.gone_since_ms = now_ms

    def restore(
        self,
        epoch: int,
        members: Iterable[ShareMember],
        now_ms: int,
        grace_ms: int,
        departed: Iterable[Awaited] = (),
    ) -> None:
        """Members as they were before a restart; one that is not heard of within `grace_ms` is
        evicted. Those who had left could not come back meanwhile: they are awaited anew.
        """
        self.departed = dict.fromkeys(departed, now_ms)
        self.epoch = epoch
        for member in _with_shared_topics(members):
            member.last_heartbeat_ms = now_ms
            member.gone_since_ms = now_ms + grace_ms - self.disconnect_grace_ms
            self.members[member.member_id] = member

    def came_before(
        self, members: Iterable[ShareMember], departed: Iterable[Awaited], now_ms: int
    ) -> None:
        """Who was there, or had left, before a restart that is found out late."""
        for one in departed:
            self._await(one, now_ms)
        for member in members:
            if member.member_id not in self.members:
                self._note_departed(member, now_ms)

    def copy(
        self,
        epoch: int,
        members: Iterable[ShareMember],
        now_ms: int,
        departed: Iterable[Awaited] = (),
    ) -> tuple[bool, list[ShareMember]]:
        """Members as another node has them: whether a window must hear of it, and those that are
        gone. The connections are those of this node.
        """
        if not self.members:
            self.await_departed_anew(now_ms)
        before, self.members, self.epoch = self.members, {}, epoch
        changed = False
        for member in _with_shared_topics(members):
            known = before.pop(member.member_id, None)
            if known is None:
                known = member
                known.last_heartbeat_ms = now_ms
                changed = True
            elif known.topics != member.topics or known.client_id != member.client_id:
                changed = True
                self._change_client(known, member.client_id, now_ms)
                self._change_topics(known, member.topics, now_ms)
            known.epoch, known.previous_epoch = member.epoch, member.previous_epoch
            self.members[member.member_id] = known
        for member in before.values():
            self._note_departed(member, now_ms)
        for one in departed:
            if one not in self.departed:  # this node was not there yet
                self.departed[one] = now_ms
                changed = True
        return changed, list(before.values())

    def subscribers(self, topic: str) -> list[ShareMember]:
        """Members that subscribe to `topic` and have its partitions, in join order."""
        members = self.members.values()
        return [
            member for member in members if member.subscribes(topic) and not member.assigned_later
        ]

    def by_subscribers(self, topics: Iterable[str]) -> list[list[str]]:
        """The topics, in groups of those that the same members subscribe to, or did until not long
        ago: most members of a group subscribe to the same ones.
        """
        wanted = set(topics)
        chosen = {*self._subscriptions(), *distinct(topics for _, topics in self.departed)}
        sets = [found for one in chosen if (found := wanted.intersection(one))]
        alike: dict[tuple[bool, ...], list[str]] = {}
        for topic in sorted(wanted):
            alike.setdefault(tuple([topic in one for one in sets]), []).append(topic)
        return list(alike.values())

    def awaited(self, topic: str) -> list[str | None]:
        """Client ids of members that subscribe to `topic` and will have its partitions soon, or
        left not long ago. None: anybody may come.
        """
        later: list[str | None] = [
            member.client_id
            for member in self.members.values()
            if member.assigned_later and member.subscribes(topic)
        ]
        return later + [one[0] for one in self.departed if topic in one[1] or one == EVERYBODY]

    def has_subscribers(self, topic: str) -> bool:
        """Quick as a rule: the first member subscribes."""
        return any(member.subscribes(topic) for member in self.members.values())

    def topics(self) -> list[str]:
        return sorted({topic for subscribed in self._subscriptions() for topic in subscribed})

    @property
    def state(self) -> str:
        return "Stable" if self.members else "Empty"


def possible(topics: Iterable[str]) -> tuple[str, ...]:
    """Ascending; the very tuple, if it is so already. A name that no topic can have, such as a
    pattern of a client that knows none (`^orders`), is left out without an error, as Kafka finds no
    topic for it.
    """
    found = tuple(sorted(filter(is_topic_name, set(topics))))
    return topics if isinstance(topics, tuple) and topics == found else found


def _with_shared_topics(members: Iterable[ShareMember]) -> Iterator[ShareMember]:
    """Members that have just been read: those with the same topics get one tuple."""
    same: dict[Subscription, Subscription] = {}
    for member in members:
        member.topics = same.setdefault(member.topics, member.topics)
        yield member


def assign(topics: Iterable[str], topic_by_name: TopicByName) -> Assignment:
    assignment: Assignment = {}
    for name in topics:
        topic = topic_by_name(name)
        if topic is not None and topic.partitions:
            assignment[topic.topic_id] = tuple(sorted(topic.partitions))
    return assignment
