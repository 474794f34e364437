"""Members as a part of the node: groups, their settings, saved members, key filters."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from redis.asyncio import Redis

from gateway.config.file import Config
from gateway.core.share.dead_letter_queue import SHARE_VERSION_MIN
from gateway.core.share.membership import ShareGroup
from gateway.core.share.sessions import ShareSessions
from gateway.listen.build import ListenRoom
from gateway.members.begun_topics import BegunTopics
from gateway.members.carried_elsewhere import CarriedElsewhere
from gateway.members.change_log import ChangeLog
from gateway.members.coordination import Coordination, EveryGroup, SharedCoordination
from gateway.members.evictions import Evictions
from gateway.members.farewell import members_told
from gateway.members.group_settings import GroupSettings
from gateway.members.group_types import OtherGroupTypes
from gateway.members.groups import Groups
from gateway.members.key_filters import KeyFilters
from gateway.members.limits import (
    CONNECTION_SHARE_SESSIONS_MAX,
    GROUP_START_MS,
    SHARE_SESSIONS_MAX,
)
from gateway.members.saved_members import SavedMembers
from gateway.members.shown_groups import ShownGroups
from gateway.part import Part, Trouble
from gateway.routing.owners import Alone, Owners
from gateway.upstream.build import UpstreamRoom
from gateway.upstream.configs import group_config, share_version


@dataclass(frozen=True, slots=True)
class MembersRoom:
    groups: Groups
    shown: ShownGroups
    evictions: Evictions
    settings: GroupSettings
    key_filters: KeyFilters
    saved_members: SavedMembers
    other_types: OtherGroupTypes
    coordination: Coordination
    begun_topics: BegunTopics
    rows_lost: Callable[[], None]  # to be called when Redis has lost some of its data

    def loaded(self) -> bool:
        """What Redis has of groups and their key filters is known: records may be delivered."""
        return self.key_filters.loaded() and self.saved_members.loaded()


def build(
    config: Config,
    upstream: UpstreamRoom,
    listen: ListenRoom,
    owners: Owners,
    redis: Redis,
    now_ms: Callable[[], int],
) -> Part[MembersRoom]:
    async def queues_work() -> bool:
        return await share_version(upstream.cluster) >= SHARE_VERSION_MIN

    settings = GroupSettings(config, partial(group_config, upstream.cluster), now_ms, queues_work)
    key_filters = KeyFilters(config, redis, now_ms)
    saved_members, begun_topics = SavedMembers(redis, key_filters.of), BegunTopics(redis)
    groups = Groups(settings, _sessions(), key_filters.of, GROUP_START_MS)
    evictions = Evictions(groups)
    shared = None
    if not isinstance(owners, Alone):
        told = ChangeLog(redis)
        carried = CarriedElsewhere(redis, owners.identity[0], owners.others)
        shared = SharedCoordination(
            evictions, saved_members, key_filters, told, carried, owners, upstream.cluster, now_ms
        )
        evictions.on_evicted(saved_members.evicted)
        settings.tell = told.tell_configs

    def save(group: ShareGroup) -> None:
        # A node that stands alone saves nothing of unreliable groups; others must read of them.
        if settings.of(group.name).reliable if shared is None else shared.leads(group.name):
            saved_members.changed(group)

    def forgotten(name: str) -> None:
        if shared is None or shared.leads(name):
            saved_members.forgotten(name)

    async def restore() -> None:
        groups.restore(await saved_members.load(), now_ms())

    groups.on_change(save)
    for forget in (forgotten, settings.forget, begun_topics.forget):
        groups.on_forgotten(forget)
    _hear(groups, settings, saved_members, listen, now_ms)

    return Part(
        name="members",
        room=MembersRoom(
            groups,
            ShownGroups(groups, lambda: evictions.empty_since_ms),
            evictions,
            settings,
            key_filters,
            saved_members,
            OtherGroupTypes(upstream.cluster),
            EveryGroup() if shared is None else shared,
            begun_topics,
            partial(_saved_anew, saved_members, groups, save),
        ),
        troubles=partial(_troubles, key_filters),
        start=restore if shared is None else shared.start,
        background=(
            saved_members.write_forever,
            key_filters.load_until_loaded,
            lambda: key_filters.watch_forever(groups.filters_changed),
            lambda: settings.refresh_forever(
                groups.names, lambda name: groups.get(name) is not None
            ),
            *(() if shared is None else (shared.follow_forever,)),
        ),
        stop=saved_members.stop,
    )


def _hear(
    groups: Groups,
    settings: GroupSettings,
    saved: SavedMembers,
    listen: ListenRoom,
    now_ms: Callable[[], int],
) -> None:
    settings.on_change(groups.settings_changed)
    saved.on_late(lambda late: groups.restore_late(late, now_ms()))
    listen.server.on_disconnect(lambda connection: groups.connection_lost(connection, now_ms()))
    listen.server.on_drain(groups.keep_members)


def _saved_anew(saved: SavedMembers, groups: Groups, save: Callable[[ShareGroup], None]) -> None:
    saved.doubted()
    for group in groups.all():
        save(group)


def _sessions() -> ShareSessions:
    return ShareSessions(secrets.token_hex(4), SHARE_SESSIONS_MAX, CONNECTION_SHARE_SESSIONS_MAX)


async def _troubles(key_filters: KeyFilters) -> Sequence[Trouble]:
    why = key_filters.trouble
    return [Trouble(f"key filters cannot be read from Redis: {why}")] if why else []


def farewell(room: MembersRoom, owners: Owners) -> Part[None]:
    """After the server: it still serves while members hear of the new owners."""
    return Part(
        name="farewell",
        room=None,
        drain=partial(members_told, room.groups.sessions, owners.others),
    )
