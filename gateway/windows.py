"""All windows of the node: which there are, the round trips of their steps, the watchdog, the
commits to Kafka.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from dispatcher.core.commit import encode as encode_commit
from dispatcher.core.model import Event, SessionClosed, SessionLost, SessionOpened, Ticked
from dispatcher.store.base import WindowKey, Write
from gateway.commits import Commit
from gateway.config import Config
from gateway.core.group.sessions import ShareSession
from gateway.core.limits import TICK_MS, WINDOW_IDLE_MS_MAX
from gateway.core.topology import Topic, TopicPartition, Topology
from gateway.groups import Groups, MembershipMoved
from gateway.window import Surroundings, Window

log = structlog.get_logger("keyway.windows")


def topic_id_text(topic_id: bytes) -> str:
    """Kafka's own text form of a topic id: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


@dataclass(slots=True)
class Windows:
    config: Config
    topology: Callable[[], Topology]
    groups: Groups
    around: Surroundings
    tasks: asyncio.TaskGroup
    _windows: dict[WindowKey, Window] = field(default_factory=dict)
    _dirty: dict[Window, None] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _stopping: bool = False
    _held: set[str] = field(default_factory=set)  # groups in the hands of an operator
    # Who sets a position by hand must not be overtaken by a commit of the position before.
    committing: asyncio.Lock = field(default_factory=asyncio.Lock)

    # ------------------------------------------------------------------------------ which there are

    def get(self, group: str, topic_id: bytes, partition: int) -> Window | None:
        return self._windows.get(WindowKey(group, topic_id_text(topic_id), partition))

    def all(self) -> list[Window]:
        return [self._windows[key] for key in sorted(self._windows)]

    def of_group(self, group: str) -> list[Window]:
        return [window for window in self.all() if window.key.group == group]

    def membership_moved(self, moved: MembershipMoved) -> None:
        """Opens the windows of a topic that has its first members, and tells the others."""
        topic = self.topology().topics.get(moved.topic)
        if topic is None:
            return  # not known upstream yet: `topology_changed` opens them
        known = [self._windows.get(self._key(moved.group, topic, p)) for p in topic.partitions]
        for window in known:
            if window is not None:
                window.members_changed(moved.members, moved.reason)
        if moved.members:
            self._open(moved.group, topic)

    def topology_changed(self, topology: Topology) -> None:
        """Opens windows of partitions that are new, closes those of topics that are gone."""
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
                log.warning("topic_gone", window=repr(window))
                self._close(window)
        for group in self.groups.all():
            for name in group.topics():
                topic = topology.topics.get(name)
                if topic is not None and topic.partitions:
                    self._open(group.name, topic)

    def _key(self, group: str, topic: Topic, partition: int) -> WindowKey:
        return WindowKey(group, topic_id_text(topic.topic_id), partition)

    def _open(self, group: str, topic: Topic) -> None:
        for partition in sorted(topic.partitions):
            self.open(group, topic, partition)

    def open(self, group: str, topic: Topic, partition: int) -> None:
        """Also without members: the window leaves memory again when it has been idle."""
        key = self._key(group, topic, partition)
        if key in self._windows or self._stopping or group in self._held:
            return
        window = Window(
            key,
            TopicPartition(topic.name, topic.topic_id, partition),
            self.config.group(group),
            lambda: self.groups.members(group, topic.name),
            self.around,
        )
        self._windows[key] = window
        self.tasks.create_task(window.run(), name=repr(window))

    @contextmanager
    def held(self, group: str) -> Iterator[None]:
        """No window of the group opens inside the block; members that join meanwhile get theirs
        after it.
        """
        self._held.add(group)
        try:
            yield
        finally:
            self._held.discard(group)
            self.topology_changed(self.topology())

    def drop(self, key: WindowKey) -> None:
        """Out of memory, at once, without persisting; what is in the store stays."""
        window = self._windows.get(key)
        if window is not None:
            self._close(window)

    def _close(self, window: Window) -> None:
        window.close()
        self._windows.pop(window.key, None)
        self._dirty.pop(window, None)

    # ------------------------------------------------------------------------------- share sessions

    def session_lost(self, session: ShareSession) -> None:
        now_ms = self.around.now_ms()
        self._tell(session, SessionLost(session.member_id, session.session_id, now_ms))

    def session_opened(self, session: ShareSession) -> None:
        """In the windows its broker leads, nothing else of this member can be alive."""
        opened = SessionOpened(session.member_id, session.session_id, self.around.now_ms())
        topics = self.topology().topics
        for window in self.of_group(session.group):
            topic = topics.get(window.partition.topic)
            info = None if topic is None else topic.partitions.get(window.partition.partition)
            if info is not None and info.leader == session.key[0]:
                window.post(opened)

    def session_closed(self, session: ShareSession) -> None:
        now_ms = self.around.now_ms()
        self._tell(session, SessionClosed(session.member_id, session.session_id, now_ms))

    def _tell(self, session: ShareSession, event: Event) -> None:
        # All windows of the group: a partition that left the session may still have leases of it.
        for window in self.of_group(session.group):
            window.post(event)

    # ---------------------------------------------------------------------------------- round trips

    def dirty(self, window: Window) -> None:
        self._dirty[window] = None
        self._wake.set()

    async def persist_forever(self) -> None:
        """One round trip at a time, for everything that has gathered since the last one."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self.persist()

    async def persist(self) -> None:
        windows, self._dirty = self._dirty, {}
        writes: list[tuple[Window, Write]] = []
        for window in windows:
            write = window.take_write()
            if write is not None:
                writes.append((window, write))
        if not writes:
            return
        results = await self.around.store.apply([write for _, write in writes])
        for (window, write), error in zip(writes, results, strict=True):
            if error is None:
                window.persisted(write)
            else:
                window.not_persisted(write, error)

    # ------------------------------------------------------------------------------------- watchdog

    async def watch_forever(self) -> None:
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            now_ms = self.around.now_ms()
            self.groups.tick(now_ms)
            for window in self.all():
                window.post(Ticked(now_ms))
                self._close_if_idle(window, now_ms)

    def _close_if_idle(self, window: Window, now_ms: int) -> None:
        if self.groups.members(window.key.group, window.partition.topic):
            window.idle_since_ms = None
        elif window.idle_since_ms is None:
            window.idle_since_ms = now_ms
        elif now_ms - window.idle_since_ms >= WINDOW_IDLE_MS_MAX and not window.uncommitted:
            log.info("window_closed_idle", window=repr(window))
            self._close(window)

    # -------------------------------------------------------------------------------------- commits

    async def commit_forever(self) -> None:
        while True:
            await asyncio.sleep(self.config.state.commit_interval_ms / 1000)
            await self.commit()

    async def commit(self) -> None:
        """Commits what became settled since the last time: cursor as offset, bitmap as metadata,
        per group.
        """
        async with self.committing:
            await self._commit()

    async def _commit(self) -> None:
        for window in self.all():
            window.want_commit()
        await self.persist()
        by_group: dict[str, list[Window]] = {}
        for window in self.all():
            if window.committable is not None:
                by_group.setdefault(window.key.group, []).append(window)
        for group, windows in by_group.items():
            await self._commit_group(group, windows)

    async def _commit_group(self, group: str, windows: Iterable[Window]) -> None:
        chars_max = self.around.commits.metadata_chars_max
        entries: list[tuple[Window, Commit]] = []
        for window in windows:
            state = window.committable
            if state is None or state == window.committed:
                window.committable = None
                continue
            text = encode_commit(state.cursor, state.settled, chars_max=chars_max)
            entries.append((window, Commit(window.partition, state.cursor, text)))
        if not entries:
            return
        errors = await self.around.commits.commit(group, [commit for _, commit in entries])
        for (window, commit), error in zip(entries, errors, strict=True):
            if error == 0:
                window.committed = window.committable
            else:
                log.warning("commit_failed", window=repr(window), offset=commit.offset, error=error)
            window.committable = None

    async def stop(self) -> None:
        """Persists and commits everything, then closes all windows. Leases stay in the store for
        the next start.
        """
        self._stopping = True
        while any(window.busy for window in self.all()):
            await self.persist()
        await self.commit()
        for window in self.all():
            self._close(window)


# UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID
TOPIC_GONE_ERRORS = (3, 100)
