"""All windows of the node: their opening and closing, the round trips of their steps, the watchdog,
the commits to Kafka.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import structlog

from dispatcher.core.idle_windows import IdleWindows
from dispatcher.core.missed_sessions import missed_ends, open_sessions
from dispatcher.core.model import (
    Event,
    MemberId,
    SessionClosed,
    SessionLost,
    SessionOpened,
    Snapshot,
)
from dispatcher.store.base import WindowKey
from gateway.config import Config, GroupSection
from gateway.core.cluster.topology import Topic, TopicPartition, Topology
from gateway.core.share.sessions import ShareSession
from gateway.core.wire.errors import ErrorCode
from gateway.members.groups import Groups, TopicMembersChanged
from gateway.members.limits import TICK_MS
from gateway.windows.committing import GroupCommits, States
from gateway.windows.dependencies import Dependencies
from gateway.windows.limits import (
    ASKED_AT_REST,
    CONNECTION_WINDOWS_MAX,
    TICKED_AT_ONCE,
    TOPIC_UNUSED_MS,
    WINDOW_IDLE_MS_MAX,
    WINDOWS_MAX,
    WINDOWS_TOLD_MS,
)
from gateway.windows.member_changes import MemberChanges
from gateway.windows.parked_counts import ParkedCounts
from gateway.windows.persisting import Persisting
from gateway.windows.tick_schedule import TickSchedule
from gateway.windows.window import NOBODY, Window
from gateway.windows.window_keys import topic_id_text

log = structlog.get_logger("keyway.windows")

TOPIC_GONE_ERRORS = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


@dataclass(slots=True)
class Windows:
    config: Config
    topology: Callable[[], Topology]
    groups: Groups
    dependencies: Dependencies
    tasks: asyncio.TaskGroup
    key_filters_loaded: Callable[[], bool]
    watch: Callable[[Iterable[str]], None]  # topics upstream is asked about from now on ...
    unwatch: Callable[[Iterable[str]], None]  # ... and no more
    watched: Callable[[], Iterable[str]]
    _windows: dict[WindowKey, Window] = field(default_factory=dict)
    _by_group: dict[str, dict[WindowKey, Window]] = field(default_factory=dict)
    _by_topic: dict[tuple[str, str], dict[Window, None]] = field(default_factory=dict)  # of a group
    _ordered: list[Window] | None = None  # all; None: others than when they were sorted
    _partitions_before: dict[bytes, frozenset[int]] = field(default_factory=dict)  # by topic id
    _unused: set[str] = field(default_factory=set)  # topics nobody had a use for at the last sweep
    _ticks: TickSchedule = field(default_factory=TickSchedule)
    _idle: IdleWindows[Window] = field(init=False)
    _uncommitted: dict[Window, None] = field(default_factory=dict)  # ticked since the last commit
    _running: dict[Window, asyncio.Task[None]] = field(default_factory=dict)
    _member_changes: MemberChanges = field(init=False)
    asked_for: set[str] = field(default_factory=set)  # topics whose lag is shown (operations)
    parked: ParkedCounts = field(default_factory=ParkedCounts)
    _stopping: bool = False
    _frozen: Counter[str] = field(
        default_factory=Counter
    )  # no windows open while positions are set
    _held_up: dict[str, dict[tuple[str, int], int]] = field(
        default_factory=dict
    )  # fetches meanwhile
    # Held by a commit: a position set by hand must not be overtaken by the old one.
    committing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _group_commits: GroupCommits = field(init=False)
    persisting: Persisting = field(init=False)
    _full_ms: int = 0  # when the log last told of windows that are too many
    _asked_by: Counter[int] = field(default_factory=Counter)  # windows, by connection
    # Partitions from this number on are younger than the members of (group, topic id).
    _added_from: dict[tuple[str, bytes], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._member_changes = MemberChanges(self.dependencies.spawn)
        self._group_commits = GroupCommits(self.dependencies.commits)
        self.persisting = Persisting(self.dependencies.store)
        self._idle = IdleWindows(self._has_members, WINDOW_IDLE_MS_MAX)

    # ------------------------------------------------------------------------ opening and closing

    def get(self, group: str, topic_id: bytes, partition: int) -> Window | None:
        return self._windows.get(WindowKey(group, topic_id_text(topic_id), partition))

    def find(self, key: WindowKey) -> Window | None:
        return self._windows.get(key)

    def all(self) -> list[Window]:
        """In the order of their keys."""
        if self._ordered is None:
            self._ordered = [self._windows[key] for key in sorted(self._windows)]
        return list(self._ordered)

    @property
    def count(self) -> int:
        return len(self._windows)

    def of_group(self, group: str) -> list[Window]:
        windows = self._by_group.get(group, {})
        return [windows[key] for key in sorted(windows)]

    def count_of(self, group: str) -> int:
        return len(self._by_group.get(group, ()))

    def names(self) -> list[str]:
        """The groups that have windows."""
        return list(self._by_group)

    def rest_of(self, group: str) -> int | None:
        """The same number as before: all figures of the group's windows are as they were then, but
        for those of the reader and the dead letters. None: something happens in them.
        """
        return self._ticks.rest_of(group)

    def section_of(self, group: str) -> GroupSection:
        """The group's settings, as far as they are known now."""
        return self.dependencies.settings.of(group)

    def membership_moved(self, moved: TopicMembersChanged) -> None:
        """Tells the windows that are open. To join opens none: `wanted` does."""
        # All windows there are, also of partitions that upstream does not show at the moment.
        known = list(self._by_topic.get((moved.group, moved.topic), ()))
        if moved.members:
            self.watch([moved.topic])
            for window in known:
                if self._idle.woken(window):
                    window.look_again()
        else:
            self._idle.look_at(known)
            for place in [it for it in self._added_from if it[0] == moved.group]:
                del self._added_from[place]
        self._member_changes.tell(moved, known)

    def wanted(self, group: str, topic: str, partition: int, connection: int) -> bool:
        """A member fetches over `connection` from a partition that has no window; False: there are
        too many.
        """
        if not self.groups.has_members(group, topic):
            return True  # it has left, or never subscribed
        if self.count >= WINDOWS_MAX or self._asked_by[connection] >= CONNECTION_WINDOWS_MAX:
            self._tell_full(group, topic)
            return False
        found = self.topology().topics.get(topic)
        if found is not None and partition in found.partitions:
            self.open(group, found, partition, connection=connection)
        return True

    def _tell_full(self, group: str, topic: str) -> None:
        now_ms = self.dependencies.now_ms()
        if now_ms - self._full_ms >= WINDOWS_TOLD_MS:
            self._full_ms = now_ms
            log.warning("too_many_windows", group=group, topic=topic, windows=self.count)

    def topology_changed(self, topology: Topology) -> None:
        """Opens windows of partitions that are new for groups that fetch, closes those of topics
        that are gone.
        """
        if self._stopping:
            return
        for window in self.all():
            topic = topology.topics.get(window.partition.topic)
            gone = (
                topic is not None
                and topic.error == 0
                and topic.topic_id != window.partition.topic_id
            )
            if gone or (topic is not None and topic.error in TOPIC_GONE_ERRORS):
                place = window.partition
                self.dependencies.log.note(
                    window.key.group, "topic_gone", topic=place.topic, partition=place.partition
                )
                self._close(window)
            elif topic is not None:
                self._tell_leader(window, topic)
        for group in self.groups.all():
            fetches = bool(self.groups.sessions.of_group(group.name))
            for name in group.topics():
                topic = topology.topics.get(name)
                if topic is not None and topic.partitions:
                    self._note_added(group.name, topic)
                    if fetches:
                        self._open(group.name, topic)
        self._partitions_before = {
            topic.topic_id: frozenset(topic.partitions)
            for topic in topology.topics.values()
            if topic.partitions
        }

    def waits_for_topics(self) -> bool:
        """Some member subscribes to a topic that upstream did not have when it was last asked."""
        topics = self.topology().topics
        return any(
            name not in topics or not topics[name].partitions
            for group in self.groups.all()
            for name in group.topics()
        )

    def _tell_leader(self, window: Window, topic: Topic) -> None:
        """A leader that moved takes its members to sessions with another virtual broker: their
        records of the old ones are given back after the grace, not only when its locks run out.
        Those with the new leader may be of before it moved away the last time, and are alive again.
        """
        info = topic.partitions.get(window.partition.partition)
        if info is None or info.leader in (-1, window.leader):
            return  # none for the moment, or the same
        window.leader = info.leader
        self._tell_sessions(window)

    def _note_added(self, group: str, topic: Topic) -> None:
        before = self._partitions_before.get(topic.topic_id)
        if before is not None and len(before) < len(topic.partitions):
            added = min(topic.partitions.keys() - before)
            self._added_from.setdefault((group, topic.topic_id), added)

    def _open(self, group: str, topic: Topic) -> None:
        known, topic_id = self._by_group.get(group, {}), topic_id_text(topic.topic_id)
        for partition in sorted(topic.partitions):
            if WindowKey(group, topic_id, partition) not in known and self.count < WINDOWS_MAX:
                self.open(group, topic, partition)

    def open(self, group: str, topic: Topic, partition: int, *, connection: int = NOBODY) -> None:
        """Also without members: the window leaves memory again when it has been idle."""
        key = WindowKey(group, topic_id_text(topic.topic_id), partition)
        if group in self._frozen:
            self._held_up.setdefault(group, {})[topic.name, partition] = connection
            return
        if key in self._windows or self._stopping:
            return
        if not self.key_filters_loaded():
            return  # the member fetches again
        added_from = self._added_from.get((group, topic.topic_id), partition + 1)
        window = Window(
            key,
            TopicPartition(topic.name, topic.topic_id, partition),
            partial(self.groups.members, group, topic.name),
            self.dependencies,
            persist_soon=self.persisting.soon,
            stirred=self._ticks.stir,
            when_loaded=self.catch_up,
            added_while_reading=partition >= added_from,
            asked_by=connection,
        )
        self.watch([topic.name])
        window.leader = topic.partitions[partition].leader
        self._windows[key] = window
        self._ordered = None
        self._idle.look_at([window])
        self._asked_by[connection] += 1
        self._by_group.setdefault(group, {})[key] = window
        self._by_topic.setdefault((group, topic.name), {})[window] = None
        self._ticks.stir(window)
        self._running[window] = self.tasks.create_task(window.run(), name=repr(window))

    @contextmanager
    def frozen(self, group: str) -> Iterator[None]:
        """No window of the group opens inside the block; members that fetch meanwhile get theirs
        after it.
        """
        self._frozen[group] += 1
        try:
            yield
        finally:
            self._frozen[group] -= 1
            if not self._frozen[group]:
                del self._frozen[group]
                for (topic, partition), connection in self._held_up.pop(group, {}).items():
                    self.wanted(group, topic, partition, connection)

    def drop(self, key: WindowKey) -> None:
        """Out of memory, at once, without persisting; the state in the store stays."""
        window = self._windows.get(key)
        if window is not None:
            self._close(window)

    def _close(self, window: Window) -> None:
        self.parked.note(window)
        window.close()
        if (running := self._running.pop(window, None)) is not None:
            running.cancel()  # it may wait for the store, or upstream
        self._member_changes.knows(window)
        self.persisting.forget(window)
        self._ticks.forget(window)
        self._idle.forget(window)
        self._uncommitted.pop(window, None)
        if self._windows.pop(window.key, None) is not None:
            self._ordered = None
            self._asked_by[window.asked_by] -= 1
            if not self._asked_by[window.asked_by]:
                del self._asked_by[window.asked_by]
            windows = self._by_group[window.key.group]
            del windows[window.key]
            if not windows:
                del self._by_group[window.key.group]
                self._ticks.forget_group(window.key.group)
            place = (window.key.group, window.partition.topic)
            del self._by_topic[place][window]
            if not self._by_topic[place]:
                del self._by_topic[place]

    # ------------------------------------------------------------------------------- share sessions

    def session_lost(self, session: ShareSession) -> None:
        now_ms = self.dependencies.now_ms()
        self._tell(session, SessionLost(session.member_id, session.session_id, now_ms))

    def session_opened(self, session: ShareSession) -> None:
        """In the windows its broker leads, nothing else of this member can be alive."""
        opened = SessionOpened(session.member_id, session.session_id, self.dependencies.now_ms())
        for window in self.of_group(session.group):
            if window.leader == session.key[0]:
                window.post(opened)

    def catch_up(self, window: Window, snapshot: Snapshot) -> None:
        """Tells a window that was just loaded of sessions that ended meanwhile and of open ones."""
        self._ticks.stir(window)
        self._member_changes.knows(window)
        ended, now_ms = self.groups.sessions.ended, self.dependencies.now_ms()
        for event in missed_ends(snapshot.leases, ended, now_ms):
            window.post(event)
        self._tell_sessions(window)

    def _tell_sessions(self, window: Window) -> None:
        """Tells the window the open sessions on its leader, and the others."""
        sessions = [
            (it.member_id, it.session_id, it.key[0])
            for it in self.groups.sessions.of_group(window.key.group)
        ]
        for event in open_sessions(sessions, window.leader, self.dependencies.now_ms()):
            window.post(event)

    def session_closed(self, session: ShareSession) -> None:
        now_ms = self.dependencies.now_ms()
        self._tell(session, SessionClosed(session.member_id, session.session_id, now_ms))

    def _tell(self, session: ShareSession, event: Event) -> None:
        # All windows of the group: a partition that left the session may still have leases of it.
        for window in self.of_group(session.group):
            window.post(event)

    # ------------------------------------------------------------------------------------- settings

    def settings_changed(self, group: str, section: GroupSection) -> None:
        for window in self.of_group(group):
            window.retune(section)

    # ------------------------------------------------------------------------------------- watchdog

    async def watch_forever(self) -> None:
        swept_ms = self.dependencies.now_ms()
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            self.dependencies.log.write_due()
            now_ms = self.dependencies.now_ms()
            if now_ms - swept_ms >= TOPIC_UNUSED_MS:
                swept_ms = now_ms
                self._sweep_topics()
            await self._tick(now_ms)
            # Members evicted now were not held up by their locks before.
            await self.groups.tick(now_ms)
            await self._close_idle(now_ms)

    async def _tick(self, now_ms: int) -> None:
        """The windows in which something has happened, or is due."""
        waiting: dict[tuple[str, int], frozenset[MemberId]] = {}
        for at, window in enumerate(self._ticks.take(now_ms), 1):
            if self._windows.get(window.key) is window:
                self._uncommitted[window] = None
                place = (window.key.group, window.leader)
                if place not in waiting:
                    waiting[place] = self.dependencies.ready.waiting(*place)
                self._ticks.rests(window, window.tick(now_ms, waiting[place]), now_ms)
            if at % TICKED_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _close_idle(self, now_ms: int) -> None:
        for at, window in enumerate(self._idle.tick(now_ms), 1):
            if self._idle.still_idle(window) and window.may_leave:
                log.info("window_closed_idle", window=repr(window))
                self._close(window)
            if at % TICKED_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _has_members(self, window: Window) -> bool:
        return self.groups.has_members(window.key.group, window.partition.topic)

    def _sweep_topics(self) -> None:
        """Clients may name topics that do not exist, or leave: those that no group and no window
        has had a use for since the last sweep are not asked about any more. One that a join just
        asked for is not among them.
        """
        used = {window.partition.topic for window in self._windows.values()} | self.asked_for
        for group in self.groups.all():
            used.update(group.topics())
        unused = set(self.watched()) - used
        self.unwatch(sorted(unused & self._unused))
        self._unused = unused

    # -------------------------------------------------------------------------------------- commits

    async def commit_forever(self) -> None:
        while True:
            await asyncio.sleep(self.config.state.commit_interval_ms / 1000)
            await self.commit()

    async def commit(self) -> None:
        """Commits the records settled since the last time: cursor as offset, bitmap as metadata,
        per group.
        """
        async with self.committing:
            await self._commit()

    async def _commit(self) -> None:
        asked = self._to_commit()
        for window in asked:
            window.want_commit()
        await self.persisting.persist()
        by_group: dict[str, States] = {}
        for window in asked:
            state = window.take_committable()
            if state is not None:
                by_group.setdefault(window.key.group, []).append((window, state))
        for group, states in by_group.items():
            await self._group_commits.commit(group, states)

    def _to_commit(self) -> list[Window]:
        """Those in which something has happened that Kafka may not know of. A few others ask the
        store in turn: one that has lost their state is found out also while nothing happens, and
        then all ask it.
        """
        lost, self.persisting.lost = self.persisting.lost, False
        if lost:
            return self.all()
        stirred = {**self._uncommitted, **self._ticks.stirred}
        self._uncommitted = {window: None for window in stirred if window.commit_due}
        asked = dict(self._uncommitted)
        for key in list(islice(self._windows, ASKED_AT_REST)):
            window = self._windows[key] = self._windows.pop(key)
            asked[window] = None
        return sorted(asked, key=_key_of)

    def commits_failing(self) -> list[str]:
        """Groups whose last commit Kafka did not take, and that still have something to commit."""
        return sorted(self._group_commits.failing.keys() & self._by_group.keys())

    async def stop(self) -> None:
        """Persists and commits everything, then closes all windows. Leases stay in the store for
        the next start.
        """
        self._stopping = True
        for window in self.all():
            window.read_no_more()
        try:
            while await self.persisting.persist():
                pass
            await self.commit()
        finally:
            for window in self.all():
                self._close(window)
            self.dependencies.log.write_rest()


def _key_of(window: Window) -> WindowKey:
    return window.key
