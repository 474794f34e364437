"""Operators' work on groups as a part of the node: offsets, parked records, lag, deleted topics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.config.file import Config
from gateway.members.build import MembersRoom
from gateway.operations.deleted_topics import DeletedTopics, SharedTopicRows
from gateway.operations.group_administration import GroupAdministration
from gateway.operations.group_histories import GroupHistories
from gateway.operations.group_offsets import GroupOffsets
from gateway.operations.lag import Lags
from gateway.operations.metrics import LagCollector
from gateway.operations.oldest_records import OldestRecords
from gateway.operations.parked_records import ParkedRecords
from gateway.operations.unreadable_records import UnreadableRecords
from gateway.part import Part
from gateway.reading.build import ReadingRoom
from gateway.upstream.build import UpstreamRoom
from gateway.windows.build import WindowsRoom


@dataclass(frozen=True, slots=True)
class OperationsRoom:
    offsets: GroupOffsets
    lags: Lags
    histories: GroupHistories
    parked: ParkedRecords
    unreadable: UnreadableRecords
    administration: GroupAdministration


def build(
    config: Config,
    upstream: UpstreamRoom,
    members: MembersRoom,
    reading: ReadingRoom,
    windows: WindowsRoom,
    shared_topics: SharedTopicRows | None,
    now_ms: Callable[[], int],
) -> Part[OperationsRoom]:
    offsets = GroupOffsets(
        upstream=upstream.cluster,
        store=windows.store,
        commits=upstream.commits,
        groups=members.groups,
        windows=windows.windows.table,
        committer=windows.windows.committer,
        saved_members=members.saved_members,
        filters=members.key_filters,
        owner=windows.windows.table.dependencies.owner,
        coordination=members.coordination,
    )
    lags = Lags(offsets, OldestRecords(reading.reader.records.times), now_ms)
    histories = GroupHistories(lags, windows.flow, members.groups.get, now_ms)
    deleted_topics = DeletedTopics(offsets, config.state.deleted_topics_interval_ms, shared_topics)
    return Part(
        name="operations",
        room=OperationsRoom(
            offsets,
            lags,
            histories,
            ParkedRecords(offsets, reading.reader.records.starts, now_ms),
            UnreadableRecords(offsets),
            GroupAdministration(offsets, members.settings),
        ),
        warnings=lambda: [*histories.warnings(), *lags.warnings()],
        collectors=(LagCollector(lags.all, members.groups.all, members.shown.left_out),),
        background=(deleted_topics.sweep_forever, lags.refresh_forever),
    )
