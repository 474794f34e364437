"""The windows in memory: find one, open one, drop one.

A window opens when a member fetches from its partition. It is dropped when its topic is gone, when
it was idle for long, or when the group's position is set by hand. Other parts write its state, tick
it, commit for it: they hear when a window is dropped.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice

import structlog

from dispatcher.core.life.idle_windows import IdleWindows
from dispatcher.core.steps import Snapshot
from dispatcher.store.base import WindowKey
from gateway.core.cluster.topology import Topic, TopicPartition
from gateway.core.routing.ownership import Standing
from gateway.members.groups import Groups
from gateway.windows.dependencies import Dependencies
from gateway.windows.limits import (
    CONNECTION_WINDOWS_MAX,
    WINDOW_IDLE_MS_MAX,
    WINDOWS_MAX,
    WINDOWS_TOLD_MS,
)
from gateway.windows.parked_counts import ParkedCounts
from gateway.windows.tick_schedule import TickSchedule
from gateway.windows.watched_topics import WatchedTopics
from gateway.windows.window import NOBODY, Window
from gateway.windows.window_keys import topic_id_text
from gateway.windows.window_task import run_window

log = structlog.get_logger("keyway.windows")


class WindowTable:
    def __init__(
        self,
        dependencies: Dependencies,
        groups: Groups,
        tasks: asyncio.TaskGroup,
        *,
        key_filters_loaded: Callable[[], bool],
        persist_soon: Callable[[Window], None],
    ) -> None:
        self.dependencies = dependencies
        self.parked = ParkedCounts()
        self.ticks = TickSchedule()
        self.idle = IdleWindows(self._has_members, WINDOW_IDLE_MS_MAX)
        self.topics = WatchedTopics(dependencies.upstream)
        self.stopping = False  # no window opens any more
        self.version = 0  # grows with each window that opens or is dropped
        self._groups = groups
        self._tasks = tasks
        self._key_filters_loaded = key_filters_loaded
        self._persist_soon = persist_soon
        self._on_loaded: list[Callable[[Window, Snapshot], None]] = []
        self._on_dropped: list[Callable[[Window], None]] = []
        self._windows: dict[WindowKey, Window] = {}
        self._by_group: dict[str, dict[WindowKey, Window]] = {}
        self._by_topic: dict[tuple[str, str], dict[Window, None]] = {}  # of a group
        # Absent: others than when they were sorted.
        self._ordered: list[Window] | None = None
        self._ordered_of: dict[str, list[Window]] = {}
        self._running: dict[Window, asyncio.Task[None]] = {}
        self._asked_by: Counter[int] = Counter()  # windows, by connection
        self._full_ms = 0  # when the log last told of windows that are too many
        self._frozen: Counter[str] = Counter()  # groups whose positions are being set
        # Fetches from frozen groups: the connection of each, by topic and partition.
        self._held_up: dict[str, dict[tuple[str, int], int]] = {}

    def on_loaded(self, callback: Callable[[Window, Snapshot], None]) -> None:
        """`callback` is called each time a window is up, with what it was loaded from."""
        self._on_loaded.append(callback)

    def on_dropped(self, callback: Callable[[Window], None]) -> None:
        self._on_dropped.append(callback)

    # ----------------------------------------------------------------------------------------- find

    def get(self, group: str, topic_id: bytes, partition: int) -> Window | None:
        return self._windows.get(WindowKey(group, topic_id_text(topic_id), partition))

    def find(self, key: WindowKey) -> Window | None:
        return self._windows.get(key)

    def all(self) -> list[Window]:
        """All windows, in the order of their keys."""
        if self._ordered is None:
            self._ordered = [self._windows[key] for key in sorted(self._windows)]
        return list(self._ordered)

    @property
    def count(self) -> int:
        return len(self._windows)

    def of_group(self, group: str) -> list[Window]:
        """In the order of their keys."""
        ordered = self._ordered_of.get(group)
        if ordered is None:
            windows = self._by_group.get(group, {})
            ordered = [windows[key] for key in sorted(windows)]
            if ordered:
                self._ordered_of[group] = ordered
        return list(ordered)

    def of_topic(self, group: str, topic: str) -> list[Window]:
        """The windows of a topic, also of partitions that upstream does not show at the moment."""
        return list(self._by_topic.get((group, topic), ()))

    def count_of(self, group: str) -> int:
        return len(self._by_group.get(group, ()))

    def names(self) -> list[str]:
        """The groups that have windows."""
        return list(self._by_group)

    def in_turn(self, count: int) -> list[Window]:
        """At most `count` windows, other ones each time until all have had their turn."""
        chosen = list(islice(self._windows, count))
        for key in chosen:
            self._windows[key] = self._windows.pop(key)
        return [self._windows[key] for key in chosen]

    def _has_members(self, window: Window) -> bool:
        return self._groups.has_members(window.key.group, window.partition.topic)

    # ----------------------------------------------------------------------------------------- open

    def wanted(self, group: str, topic: str, partition: int, connection: int) -> bool:
        """A member fetches over `connection` from a partition that has no window; False: there are
        too many.
        """
        if not self._groups.has_members(group, topic):
            return True  # it has left, or never subscribed
        if self.count >= WINDOWS_MAX or self._asked_by[connection] >= CONNECTION_WINDOWS_MAX:
            self._tell_full(group, topic)
            return False
        found = self.dependencies.upstream.topology.topics.get(topic)
        if found is not None and partition in found.partitions:
            self.open(group, found, partition, connection=connection)
        return True

    def _tell_full(self, group: str, topic: str) -> None:
        now_ms = self.dependencies.now_ms()
        if now_ms - self._full_ms >= WINDOWS_TOLD_MS:
            self._full_ms = now_ms
            log.warning("too_many_windows", group=group, topic=topic, windows=self.count)

    def open_all(self, group: str, topic: Topic) -> None:
        """The windows of a group that fetches, as far as there is room for more."""
        for partition in sorted(topic.partitions):
            if self.count < WINDOWS_MAX:
                self.open(group, topic, partition)

    def open(self, group: str, topic: Topic, partition: int, *, connection: int = NOBODY) -> None:
        """Opens the window, also without members: it leaves memory again when it has been idle."""
        key = WindowKey(group, topic_id_text(topic.topic_id), partition)
        if key in self._windows:
            return
        if group in self._frozen:
            self._held_up.setdefault(group, {})[topic.name, partition] = connection
        elif self.may_open(topic.partitions[partition].virtual_leader):
            window = Window(
                key,
                TopicPartition(topic.name, topic.topic_id, partition),
                partial(self._groups.members, group, topic.name),
                self.dependencies,
                persist_soon=self._persist_soon,
                stirred=self.ticks.stir,
                when_loaded=self._loaded,
                partitions=max(topic.partitions) + 1,
                asked_by=connection,
            )
            window.leader = topic.partitions[partition].virtual_leader
            self._add(window)

    def may_open(self, leader: int) -> bool:
        """The one place that decides whether this node may have a window now. A member whose window
        is refused fetches again, or is told which node has the window.
        """
        owned = self.dependencies.owners.standing(leader) is Standing.OWNED
        return owned and not self.stopping and self._key_filters_loaded()

    def _add(self, window: Window) -> None:
        group, topic = window.key.group, window.partition.topic
        self.topics.upstream.watch([topic])
        self.version += 1
        self._windows[window.key] = window
        self._ordered = None
        self._ordered_of.pop(group, None)
        self._asked_by[window.asked_by] += 1
        self._by_group.setdefault(group, {})[window.key] = window
        self._by_topic.setdefault((group, topic), {})[window] = None
        self.idle.look_at([window])
        self.ticks.stir(window)
        self._running[window] = self._tasks.create_task(
            run_window(window, self.dependencies), name=repr(window)
        )

    def _loaded(self, window: Window, snapshot: Snapshot) -> None:
        self.ticks.stir(window)
        for callback in self._on_loaded:
            callback(window, snapshot)

    # ----------------------------------------------------------------------------------------- drop

    def drop(self, key: WindowKey) -> None:
        """Out of memory, at once, without persisting; the state in the store stays."""
        window = self._windows.pop(key, None)
        if window is None:
            return
        self.version += 1
        self.parked.note(window)
        window.close()
        self._running.pop(window).cancel()  # it may wait for the store, or upstream
        self._ordered = None
        self._ordered_of.pop(key.group, None)
        self._asked_by[window.asked_by] -= 1
        if not self._asked_by[window.asked_by]:
            del self._asked_by[window.asked_by]
        self.idle.forget(window)
        self.ticks.forget(window)
        windows = self._by_group[key.group]
        del windows[key]
        if not windows:
            del self._by_group[key.group]
            self.ticks.forget_group(key.group)
        place = (key.group, window.partition.topic)
        del self._by_topic[place][window]
        if not self._by_topic[place]:
            del self._by_topic[place]
        for callback in self._on_dropped:
            callback(window)

    def drop_unused(self, window: Window) -> None:
        """The store has lost the window, or another node has deleted its group. Without members it
        is not made anew: that would bring the group back.
        """
        if not self._has_members(window):
            self.drop(window.key)

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
