"""The share groups this node coordinates: the shell around gateway/core/share.

Membership lives here and moves the dispatchers: each change of a group's members becomes one
MembersChanged event for every window of the topics it touches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import structlog

from dispatcher.core.model import Member, MemberId, Reason
from gateway.config.groups import GroupSection
from gateway.core.limits import FILTERS_COST_MAX
from gateway.core.share.declared_filters import check_cost, cost
from gateway.core.share.errors import GroupFull
from gateway.core.share.membership import (
    EVERYBODY,
    JOIN_EPOCH,
    Heartbeat,
    HeartbeatAnswer,
    ShareGroup,
    ShareMember,
    TopicByName,
    possible,
)
from gateway.core.share.sessions import ShareSession, ShareSessions
from gateway.core.share.subscriptions import Subscription, distinct, joined, touched
from gateway.members.carried_members import Carried
from gateway.members.group_settings import GroupSettings
from gateway.members.limits import (
    CONNECTION_MEMBERS_MAX,
    CONNECTION_TOPIC_NAMES_MAX,
    DEPARTED_LOOK_MS,
    GROUP_MEMBERS_MAX,
    MEMBERS_MAX,
    PRINCIPAL_MEMBERS_MAX,
    REFUSED_TOLD_MS,
    RESTART_GRACE_MS,
)
from gateway.members.listening import Listening
from gateway.members.saved_members import SavedGroup

log = structlog.get_logger("keyway.groups")

T = TypeVar("T")


def _every_group(_name: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class TopicMembersChanged:
    """The members of one topic of one group, in join order, and why the ones that are gone went."""

    group: str
    topic: str
    members: tuple[Member, ...]
    reason: Reason


# Long: a callback for each kind of news, and a question for each room above.
@dataclass(slots=True)
class Groups:
    settings: GroupSettings
    sessions: ShareSessions
    key_filters: Callable[[str, str], tuple[bytes, ...]]  # of a group's member, by its client.id
    start_ms: int = 0  # the first members of a group wait so long for each other
    leads: Callable[[str], bool] = _every_group  # whether this node coordinates a group
    _on_topic_members: list[Callable[[TopicMembersChanged], None]] = field(default_factory=list)
    _on_session_lost: list[Callable[[ShareSession], None]] = field(default_factory=list)
    _on_change: list[Callable[[ShareGroup], None]] = field(default_factory=list)
    _on_forgotten: list[Callable[[str], None]] = field(default_factory=list)
    _groups: dict[str, ShareGroup] = field(default_factory=dict)
    carried: Carried = field(default_factory=Carried)
    listening: Listening = field(default_factory=Listening)
    kept: bool = False  # the node is about to stop: nobody is evicted any more
    _members: int = 0  # of all groups
    _refused_ms: int = 0  # when the log last told of a member that was one too many

    def on_topic_members(self, callback: Callable[[TopicMembersChanged], None]) -> None:
        """The members of a topic, or their key filters, have changed."""
        self._on_topic_members.append(callback)

    def on_session_lost(self, callback: Callable[[ShareSession], None]) -> None:
        """A share session ended without its member closing it."""
        self._on_session_lost.append(callback)

    def on_change(self, callback: Callable[[ShareGroup], None]) -> None:
        """The members of a group, or their epochs, have changed."""
        self._on_change.append(callback)

    def on_forgotten(self, callback: Callable[[str], None]) -> None:
        self._on_forgotten.append(callback)

    def keep_members(self) -> None:
        """The node is about to stop: it hangs up, not its members. Nobody is evicted and no session
        is lost any more, so that leases stay for the next start, as promised.
        """
        self.kept = True

    def heartbeat(
        self, group_name: str, beat: Heartbeat, topic_by_name: TopicByName, now_ms: int
    ) -> HeartbeatAnswer:
        """Raises GroupError."""
        group = self._groups.get(group_name) or self._new(group_name)
        known = group.members.get(beat.member_id)
        before: Subscription = () if known is None else known.topics
        everybody = EVERYBODY in group.departed
        if known is None and beat.member_epoch == JOIN_EPOCH:
            self._check_room(group_name, beat, now_ms)
        if beat.member_epoch >= JOIN_EPOCH and (own := self._topics_of(group_name, beat)):
            beat = replace(beat, topics=own)
        if beat.member_epoch >= 0 and (known is None or known.client_id != beat.client_id):
            self._check_filters(group, beat)
        count = len(group.members)
        answer = group.heartbeat(beat, topic_by_name, self.listening.of(now_ms))
        self._members += len(group.members) - count
        if beat.member_id in group.members:
            self.carried.add(beat.connection, group_name, beat.member_id)
            self.carried.beats(group_name, beat.member_id, beat.principal)
        elif known is not None:
            self.carried.forget(group_name, known)
            self.sessions.member_left(group_name, beat.member_id)
        self._groups[group_name] = group  # a new one only now: a refused join creates none
        if answer.members_changed:
            log.info(
                "member_left"
                if beat.member_epoch < 0
                else "member_changed"
                if known is not None
                else "member_joined",
                group=group_name,
                member=beat.member_id,
                client_id=beat.client_id,
                members=len(group.members),
            )
            # Of its own topics alone: a group may have 100,000, and each is looked at.
            member = group.members.get(beat.member_id)
            topics = {*before, *(() if member is None else member.topics)}
            if everybody is not (EVERYBODY in group.departed):
                topics.update(group.topics())
            self._moved(group, topics, Reason.MEMBER_LEFT)
        elif answer.assignment is not None:
            _tell(self._on_change, group)  # epochs may have moved
        return answer

    def _check_room(self, group: str, beat: Heartbeat, now_ms: int) -> None:
        """Raises GroupFull if this member would be one too many."""
        if self.carried.count(beat.connection) >= CONNECTION_MEMBERS_MAX:
            why = (
                f"One connection carries at most {CONNECTION_MEMBERS_MAX} members of share groups."
            )
        elif beat.principal and self.carried.count_of(beat.principal) >= PRINCIPAL_MEMBERS_MAX:
            why = f"One principal has at most {PRINCIPAL_MEMBERS_MAX} members of share groups."
        elif self._members >= MEMBERS_MAX:
            why = f"The share groups of the node have {MEMBERS_MAX} members, which is the maximum."
        else:
            return
        if now_ms - self._refused_ms >= REFUSED_TOLD_MS:
            self._refused_ms = now_ms
            log.warning("too_many_members", group=group, client=beat.client_host, reason=why)
        raise GroupFull(why)

    def _topics_of(self, group: str, beat: Heartbeat) -> Subscription:
        """The topics that it names, if they may be any; the texts are those of another member, if
        that has the same. Raises GroupFull if those of its connection are too many.
        """
        if not beat.topics:
            return ()
        here = self.carried.of(beat.connection)
        beside = (self.member(*one) for one in here if one != (group, beat.member_id))
        others = [member.topics for member in beside if member is not None]
        whose = "The members whose requests this connection carries"
        return joined(possible(beat.topics), others, CONNECTION_TOPIC_NAMES_MAX, whose)

    def _check_filters(self, group: ShareGroup, beat: Heartbeat) -> None:
        """Raises InvalidKeyFilters."""
        own = self.key_filters(group.name, beat.client_id)
        if own:
            members = (one for one in group.members.values() if one.member_id != beat.member_id)
            check_cost([own, *(self.key_filters(group.name, one.client_id) for one in members)])

    def _new(self, name: str) -> ShareGroup:
        section = self.settings.of(name)
        return ShareGroup(
            name=name,
            session_timeout_ms=section.session_timeout_ms,
            disconnect_grace_ms=section.disconnect_grace_ms,
            members_max=GROUP_MEMBERS_MAX,
            assignment_interval_ms=section.assignment_interval_ms,
            start_ms=self.start_ms,
        )

    def _create(self, name: str) -> ShareGroup:
        group = self._groups[name] = self._new(name)
        return group

    def settings_changed(self, name: str, section: GroupSection) -> None:
        group = self._groups.get(name)
        if group is not None:
            group.session_timeout_ms = section.session_timeout_ms
            group.assignment_interval_ms = section.assignment_interval_ms
            self.filters_changed(name)  # `unmatched_wait_ms` may say now that nobody is awaited

    def restore(self, saved: Mapping[str, SavedGroup], now_ms: int) -> list[str]:
        """Members of the run before, evicted unless they show themselves soon. Returns the topics
        they subscribe to.
        """
        topics: dict[str, None] = {}
        for name, group_saved in saved.items():
            group = self._create(name)
            self._members += len(group_saved.members)
            group.restore(
                group_saved.epoch,
                group_saved.members,
                self.listening.of(now_ms),
                RESTART_GRACE_MS,
                group_saved.departed,
            )
            topics.update(dict.fromkeys(group.topics()))
        return list(topics)

    def restore_late(self, saved: Mapping[str, SavedGroup], now_ms: int) -> None:
        """As `restore`, of a node that could not read it when it started. In a group that has
        members by now the others of before count as departed.
        """
        unknown = {name: one for name, one in saved.items() if name not in self._groups}
        self.restore(unknown, now_ms)
        for name, one in saved.items():
            group = self._groups[name]
            if name not in unknown:
                group.came_before(one.members, one.departed, self.listening.of(now_ms))
                self._moved(group, group.topics(), Reason.MEMBER_LEFT)

    def copy(self, name: str, saved: SavedGroup, now_ms: int, evicted: Iterable[str] = ()) -> None:
        """The members that another node, which coordinates the group, has saved. `evicted`: who was
        evicted there since the last copy.
        """
        group = self._groups.get(name) or self._create(name)
        gone_there = [
            group.members[member_id] for member_id in sorted(evicted) if member_id in group.members
        ]
        if gone_there:
            for member in gone_there:
                group.remove(member.member_id, self.listening.of(now_ms))
            self.evicted(group, gone_there)
        before, departed, count = _subscribed(group), set(group.departed), len(group.members)
        changed, gone = group.copy(
            saved.epoch, saved.members, self.listening.of(now_ms), saved.departed
        )
        self._members += len(group.members) - count
        for member in gone:
            self.carried.forget(name, member)
            self.sessions.member_left(name, member.member_id)
        if changed or gone:
            topics = touched(before, _subscribed(group))
            for _, names in group.departed.keys() - departed:
                topics.update(names or group.topics())
            self._moved(group, topics, Reason.MEMBER_LEFT)

    def drop_copy(self, name: str, now_ms: int) -> None:
        """The node that coordinates the group has forgotten it."""
        self.copy(name, SavedGroup(0, []), now_ms)
        self.forget(name)

    def take_over(self, name: str, now_ms: int, grace_ms: int) -> int:
        """This node coordinates the group from now on. Its members have `grace_ms` to show
        themselves. Returns how many there are.
        """
        group = self._groups.get(name)
        if group is None:
            return 0
        members = list(group.members.values())
        listened_ms = self.listening.of(now_ms)
        group.restore(group.epoch, members, listened_ms, grace_ms, group.departed)
        for member in members:
            if member.connections:  # it fetches from this node already
                member.gone_since_ms = None
        return len(members)

    def evicted(self, group: ShareGroup, members: Sequence[ShareMember]) -> None:
        """These members were taken out of the group. Windows hear of it with the news of members,
        and give back what they held; of a thousand sessions nobody needs to tell a thousand
        windows.
        """
        topics = set[str]().union(*distinct(member.topics for member in members))
        if EVERYBODY in group.departed:
            topics.update(group.topics())
        for member in members:
            self._members -= 1
            self.carried.forget(group.name, member)
            self.sessions.member_gone(group.name, member.member_id)
        self._moved(group, topics, Reason.MEMBER_EVICTED)

    def connection_lost(self, connection: int, now_ms: int) -> None:
        if self.kept:
            return
        for group_name, member_id in self.carried.lost(connection):
            group = self._groups.get(group_name)
            if group is not None:
                group.connection_lost(member_id, connection, self.listening.of(now_ms))
        for session in self.sessions.connection_lost(connection):
            _tell(self._on_session_lost, session)

    def connected(self, group_name: str, member_id: str, connection: int) -> None:
        group = self._groups.get(group_name)
        if group is not None and member_id in group.members:
            group.connected(member_id, connection)
            self.carried.add(connection, group_name, member_id)

    def _moved(self, group: ShareGroup, topics: Iterable[str], reason: Reason) -> None:
        _tell(self._on_change, group)
        for topic, members in self._members_of(group, topics).items():
            self._tell_members(group, topic, members, reason)

    def _tell_members(
        self, group: ShareGroup, topic: str, members: tuple[Member, ...], reason: Reason
    ) -> None:
        _tell(self._on_topic_members, TopicMembersChanged(group.name, topic, members, reason))

    def _members_of(
        self, group: ShareGroup, topics: Iterable[str]
    ) -> dict[str, tuple[Member, ...]]:
        """By topic; those with the same members have one tuple."""
        found: dict[str, tuple[Member, ...]] = {}
        for alike in group.by_subscribers(topics):
            found.update(dict.fromkeys(alike, self.members(group.name, alike[0])))
        return found

    def members(self, group_name: str, topic: str) -> tuple[Member, ...]:
        """Behind them those that are awaited, if some keys are accepted by no member."""
        group = self._groups.get(group_name)
        if group is None:
            return ()
        there = tuple(
            Member(MemberId(member.member_id), self.key_filters(group_name, member.client_id))
            for member in group.subscribers(topic)
        )
        section = self.settings.of(group_name)
        if not section.unmatched_wait_ms or not section.reliable or not there:
            return there
        if not all(member.filters for member in there):
            return there  # One takes every key.
        filters = {
            () if client is None else self.key_filters(group_name, client)
            for client in group.awaited(topic)
        }
        missing = sorted(filters - {member.filters for member in there})
        if sum(map(cost, missing)) > FILTERS_COST_MAX:
            missing = [()]  # Who left did not count at a join: too many to ask, so any key waits.
        return there + tuple([Member(MemberId(""), one, awaited=True) for one in missing])

    def forget_departed(self, name: str, now_ms: int) -> None:
        """Nobody waits any longer for members that left so long ago. `now_ms`: as listened."""
        group = self._groups.get(name)
        if group is None or not group.departed or not group.members:
            return
        wait_ms = self.settings.of(name).unmatched_wait_ms
        overdue = group.overdue(now_ms, wait_ms)
        if overdue or now_ms - group.departed_looked_ms >= DEPARTED_LOOK_MS:
            group.await_departed_anew(now_ms)
            overdue = group.overdue(now_ms, wait_ms)
        if not overdue:
            return
        filters = (self.key_filters(name, one.client_id) for one in group.members.values())
        topics = group.topics() if any(filters) else []  # else nobody is awaited
        before = self._members_of(group, topics)
        for one in overdue:
            del group.departed[one]
        _tell(self._on_change, group)
        for topic, members in self._members_of(group, topics).items():
            if members != before[topic]:
                self._tell_members(group, topic, members, Reason.MEMBER_LEFT)

    def has_members(self, group_name: str, topic: str) -> bool:
        """Cheap: each window asks with each tick."""
        group = self._groups.get(group_name)
        return group is not None and group.has_subscribers(topic)

    def ensure(self, name: str) -> ShareGroup:
        """The group, empty if nobody knew it."""
        group = self._groups.get(name)
        if group is None:
            group = self._create(name)
            _tell(self._on_change, group)
        return group

    def forget(self, name: str) -> None:
        """The group was deleted, or stayed empty for very long."""
        assert not self._groups[name].members, "only an empty group is deleted"
        del self._groups[name]
        _tell(self._on_forgotten, name)

    def filters_changed(self, name: str) -> None:
        """The members are the same; their key filters may differ."""
        group = self._groups.get(name)
        if group is not None:
            for topic, members in self._members_of(group, group.topics()).items():
                self._tell_members(group, topic, members, Reason.MEMBER_LEFT)

    def topics(self, name: str) -> list[str]:
        """The topics that the members of the group subscribe to."""
        group = self._groups.get(name)
        return [] if group is None else group.topics()

    def names(self) -> list[str]:
        return sorted(self._groups)

    def get(self, name: str) -> ShareGroup | None:
        return self._groups.get(name)

    def all(self) -> list[ShareGroup]:
        return [self._groups[name] for name in sorted(self._groups)]

    def member(self, group_name: str, member_id: str) -> ShareMember | None:
        group = self._groups.get(group_name)
        return None if group is None else group.members.get(member_id)


def _subscribed(group: ShareGroup) -> dict[str, tuple[Subscription, str]]:
    members = group.members.values()
    return {member.member_id: (member.topics, member.client_id) for member in members}


def _tell(callbacks: Iterable[Callable[[T], None]], subject: T) -> None:
    for callback in callbacks:
        callback(subject)
