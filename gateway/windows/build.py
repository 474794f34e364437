"""Windows as a part of the node: all windows, their store, the outcomes of their records."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from prometheus_client.registry import Collector

from dispatcher.core.steps import Noticed
from dispatcher.store.base import WindowStore
from gateway.config.file import Config
from gateway.core.cluster.topology import TopicPartition
from gateway.core.health_lines import first_named
from gateway.core.repartition.holds import Holds
from gateway.group_log import GroupLog
from gateway.members.build import MembersRoom
from gateway.members.groups import Groups
from gateway.part import Part, Trouble
from gateway.reading.build import ReadingRoom
from gateway.routing.owners import Owners
from gateway.upstream.build import UpstreamRoom
from gateway.upstream.cluster import Upstream
from gateway.upstream.errors import UpstreamError
from gateway.windows.dependencies import Dependencies
from gateway.windows.limits import GROUPS_NAMED, MISSING_TOPIC_MS
from gateway.windows.metrics import (
    FlowCollector,
    OutcomeCollector,
    RoundTripCollector,
    WindowCollector,
)
from gateway.windows.moves import drop_elsewhere, let_go
from gateway.windows.news import WindowNews
from gateway.windows.ready_signals import ReadySignals
from gateway.windows.record_flow import RecordFlow
from gateway.windows.record_outcomes import RecordOutcomes
from gateway.windows.store_availability import MonitoredStore
from gateway.windows.table import WindowTable
from gateway.windows.waiting_windows import WaitingWindows, holder_of
from gateway.windows.windows import Windows

log = structlog.get_logger("keyway.windows")

NoticeSink = Callable[[str, TopicPartition, Noticed], None]  # the group comes first


@dataclass(frozen=True, slots=True)
class WindowsRoom:
    windows: Windows
    store: WindowStore
    ready: ReadySignals
    outcomes: RecordOutcomes
    flow: RecordFlow


def build(
    config: Config,
    upstream: UpstreamRoom,
    reading: ReadingRoom,
    members: MembersRoom,
    owners: Owners,
    store: WindowStore,
    tasks: asyncio.TaskGroup,
    group_log: GroupLog,
    now_ms: Callable[[], int],
    holds: Holds,
) -> Part[WindowsRoom]:
    cluster, groups = upstream.cluster, members.groups
    monitored, ready = MonitoredStore(store, now_ms), ReadySignals()
    outcomes, flow = RecordOutcomes(group_log, members.settings.skips_expected), RecordFlow()

    windows = Windows(
        config,
        members.evictions,
        tasks=tasks,
        key_filters_loaded=lambda: members.loaded() and holds.loaded,
        dependencies=Dependencies(
            store=monitored,
            reader=reading.reader,
            records=reading.reader.records,
            unreadables=reading.reader.failing,
            commits=upstream.commits,
            upstream=cluster,
            dead_letters=reading.dead_letters,
            settings=members.settings,
            begun_topics=members.begun_topics,
            owner=f"{socket.gethostname()}:{os.getpid()}",
            now_ms=now_ms,
            ready=ready,
            noticed=_to(outcomes.noticed, flow.noticed),
            owners=owners,
            log=group_log,
            spawn=lambda work: _spawn(tasks, work),
            hold_of=holds.of,
        ),
    )
    windows.persister.when_lost = members.rows_lost
    cluster.on_topology(windows.news.topology_changed)
    members.key_filters.on_loaded(lambda: windows.news.topology_changed(cluster.topology))
    _hear_of_groups(members, windows)
    _hear_of_owners(owners, windows, ready)
    groups.on_forgotten(outcomes.forget)
    groups.on_forgotten(flow.forget)
    windows.table.topics.on_unused(flow.forget_topics)
    waiting = WaitingWindows(windows.table)

    async def troubles() -> Sequence[Trouble]:
        return window_troubles(waiting, windows.committer.failing())

    return Part(
        name="windows",
        room=WindowsRoom(windows, monitored, ready, outcomes, flow),
        collectors=_collectors(windows.table, outcomes, flow, monitored, members.shown.left_out),
        troubles=troubles,
        warnings=outcomes.warnings,
        figures=lambda: window_figures(waiting),
        background=(
            *windows.background,
            lambda: look_for_missing_topics(windows.news, cluster.request_refresh),
        ),
        ready=lambda: _reopen(cluster, groups, windows.news),
        stop=windows.stop,
        close=monitored.close,
    )


def _spawn(tasks: asyncio.TaskGroup, work: Coroutine[Any, Any, None]) -> None:
    tasks.create_task(work)


def _hear_of_groups(members: MembersRoom, windows: Windows) -> None:
    members.settings.on_change(windows.news.settings_changed)
    members.groups.on_topic_members(windows.news.membership_moved)
    members.groups.on_session_lost(windows.news.session_lost)
    members.groups.on_forgotten(windows.news.group_forgotten)
    members.groups.on_forgotten(windows.table.parked.forget)


def _hear_of_owners(owners: Owners, windows: Windows, ready: ReadySignals) -> None:
    owners.on_let_go(lambda brokers: let_go(windows, brokers))
    owners.on_change(lambda: drop_elsewhere(windows))
    owners.on_moved(ready.wake_at)


def _to(*counts: NoticeSink) -> NoticeSink:
    def noticed(group: str, partition: TopicPartition, notice: Noticed) -> None:
        for count in counts:
            count(group, partition, notice)

    return noticed


async def _reopen(cluster: Upstream, groups: Groups, news: WindowNews) -> None:
    """Opens the windows of members that were restored."""
    topics = sorted({topic for group in groups.all() for topic in group.topics()})
    if not topics:
        return
    try:
        news.topology_changed(await cluster.refresh(topics))
    except UpstreamError as error:
        # They are watched now: the next refresh that works opens their windows.
        log.warning("topics_not_known_yet", topics=topics, reason=str(error))
        cluster.request_refresh()


async def look_for_missing_topics(news: WindowNews, request_refresh: Callable[[], None]) -> None:
    """A topic that is created, or created anew, must not wait for the regular refresh."""
    while True:
        await asyncio.sleep(MISSING_TOPIC_MS / 1000)
        if news.waits_for_topics():
            news.watch_topics()
            request_refresh()


def window_troubles(waiting: WaitingWindows, failing: list[str]) -> list[Trouble]:
    lines = (f"commits of group {name} fail" for name in failing)
    others = "so do those of {} more groups"
    found = [*map(Trouble, first_named(lines, len(failing), GROUPS_NAMED, others))]
    troubled = [window for window in waiting.all() if window.trouble]
    if troubled:
        one = min(troubled, key=lambda window: window.key)
        first = f"{len(troubled)} windows wait, the first: {one.trouble}"
        found.insert(0, Trouble(first))
    held_up = waiting.held_up()
    if held_up:
        one = min(held_up, key=lambda window: window.key)
        place = f"group {one.key.group}: {one.partition.topic}-{one.partition.partition}"
        found.append(
            Trouble(
                f"{len(held_up)} windows are held up by one record, the first: {place} at offset"
                f" {holder_of(one)}; `keyway group parked` lists parked records"
            )
        )
    return found


def window_figures(waiting: WaitingWindows) -> dict[str, Any]:
    return {"windows": waiting.windows.count, "windows_waiting": len(waiting.all())}


def _collectors(
    windows: WindowTable,
    outcomes: RecordOutcomes,
    flow: RecordFlow,
    store: MonitoredStore,
    left_out: Callable[[], frozenset[str]],
) -> tuple[Collector, ...]:
    return (
        OutcomeCollector(outcomes, left_out),
        WindowCollector(windows),
        FlowCollector(flow, left_out),
        RoundTripCollector(store.round_trips),
    )
