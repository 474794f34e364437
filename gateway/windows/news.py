"""News for windows: of the topology, of members and their share sessions, of settings."""

from __future__ import annotations

import random

from dispatcher.core.life.missed_sessions import missed_ends, open_sessions
from dispatcher.core.model import Event, SessionClosed, SessionLost, SessionOpened
from dispatcher.core.steps import Snapshot
from gateway.config.groups import GroupSection
from gateway.core.cluster.topology import Topic, Topology
from gateway.core.share.sessions import ShareSession
from gateway.members.groups import Groups, TopicMembersChanged
from gateway.windows.failures import TOPIC_GONE_ERRORS
from gateway.windows.member_changes import MemberChanges
from gateway.windows.table import WindowTable
from gateway.windows.window import Window


class WindowNews:
    def __init__(self, table: WindowTable, groups: Groups) -> None:
        self._table = table
        self._groups = groups
        self._now_ms = table.dependencies.now_ms
        self._member_changes = MemberChanges(table.dependencies.spawn, self._now_ms)
        table.on_loaded(self.catch_up)
        table.on_dropped(self._member_changes.knows)

    # ------------------------------------------------------------------------------------- topology

    def topology_changed(self, topology: Topology) -> None:
        """Opens windows of partitions that are new for groups that fetch, drops those of topics
        that are gone.
        """
        if self._table.stopping:
            return
        for window in self._table.all():
            topic = topology.topics.get(window.partition.topic)
            if topic is None:
                continue
            if _is_gone(topic, window):
                place = window.partition
                self._table.dependencies.log.note(
                    window.key.group, "topic_gone", topic=place.topic, partition=place.partition
                )
                self._table.drop(window.key)
            else:
                self._tell_leader(window, topic)
        for group in self._groups.all():
            if not self._groups.sessions.of_group(group.name):
                continue
            for name in group.topics():
                topic = topology.topics.get(name)
                if topic is not None:
                    self._table.open_all(group.name, topic)

    def waits_for_topics(self) -> bool:
        """Some member subscribes to a topic that upstream did not have when it was last asked."""
        topics = self._table.dependencies.upstream.topology.topics
        return any(
            name not in topics or not topics[name].partitions
            for group in self._groups.all()
            for name in group.topics()
        )

    def watch_topics(self) -> None:
        """All that members subscribe to: for some there was perhaps no room when they joined. In
        no order: of more names than there is room for, each has its turn.
        """
        names = [*{name for group in self._groups.all() for name in group.topics()}]
        random.shuffle(names)
        self._table.dependencies.upstream.watch(names)

    def _tell_leader(self, window: Window, topic: Topic) -> None:
        """When the leader moves, members open sessions with the new leader's virtual broker. Their
        records of the old sessions are given back after the grace, not only when the locks run out.
        If the leader moved back, sessions from its earlier time there are valid again.
        """
        info = topic.partitions.get(window.partition.partition)
        leader = -1 if info is None else info.virtual_leader
        if leader in (-1, window.leader):
            return  # none for the moment, or the same
        if not self._table.may_open(leader):
            self._table.drop(window.key)  # another node is to have it
            return
        window.leader = leader
        self._tell_sessions(window)

    # ------------------------------------------------------------------------- members and settings

    def membership_moved(self, moved: TopicMembersChanged) -> None:
        """Tells the windows that are open. A join opens none: a fetch does."""
        table = self._table
        known = table.of_topic(moved.group, moved.topic)
        if moved.members:
            table.topics.upstream.watch([moved.topic])
            for window in known:
                if table.idle.woken(window):
                    window.look_again()
        else:
            table.idle.look_at(known)
        self._member_changes.tell(moved, known)

    def group_forgotten(self, group: str) -> None:
        """Deleted, perhaps by another node: its windows are to leave nothing behind anew."""
        for window in self._table.of_group(group):
            self._table.drop(window.key)

    def settings_changed(self, group: str, section: GroupSection) -> None:
        for window in self._table.of_group(group):
            window.retune(section)

    # ------------------------------------------------------------------------------- share sessions

    def session_opened(self, session: ShareSession) -> None:
        """In the windows its broker leads, nothing else of this member can be alive."""
        opened = SessionOpened(session.member_id, session.session_id, self._now_ms())
        for window in self._table.of_group(session.group):
            if window.leader == session.key[0]:
                window.post(opened)

    def session_lost(self, session: ShareSession) -> None:
        self._tell(session, SessionLost(session.member_id, session.session_id, self._now_ms()))

    def session_closed(self, session: ShareSession) -> None:
        """Its last acknowledgements are in the windows that are up."""
        self._tell(session, SessionClosed(session.member_id, session.session_id, self._now_ms()))

    def session_over(self, session: ShareSession) -> None:
        """It was closed, and its last acknowledgements no longer wait for a window either."""
        self._groups.sessions.remember_closed(session)
        self.session_closed(session)

    def _tell(self, session: ShareSession, event: Event) -> None:
        # All windows of the group: a partition may have left the session and still have leases.
        for window in self._table.of_group(session.group):
            if window.has_session(session.member_id, session.session_id):
                window.post(event)

    def catch_up(self, window: Window, snapshot: Snapshot) -> None:
        """Tells a window that was just loaded of sessions that ended meanwhile and of open ones."""
        self._member_changes.knows(window)
        sessions = self._groups.sessions
        known = (sessions.ended, sessions.closed, sessions.left)
        for event in missed_ends(snapshot.leases, *known, self._now_ms()):
            window.post(event)
        self._tell_sessions(window)

    def _tell_sessions(self, window: Window) -> None:
        """Tells the window of the open sessions, those with its leader and the others."""
        sessions = [
            (session.member_id, session.session_id, session.key[0])
            for session in self._groups.sessions.of_group(window.key.group)
        ]
        for event in open_sessions(sessions, window.leader, self._now_ms()):
            window.post(event)


def _is_gone(topic: Topic, window: Window) -> bool:
    """Deleted, or replaced by another topic of the same name."""
    replaced = topic.error == 0 and topic.topic_id != window.partition.topic_id
    return replaced or topic.error in TOPIC_GONE_ERRORS
