"""The Kafka APIs that the gateway answers, as a part of the node: one handler per API key."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gateway.core.forwarding.broker_names import NAMING_BROKERS
from gateway.core.wire.apis import ApiKey
from gateway.handlers.alter_share_group_offsets import alter_share_group_offsets
from gateway.handlers.delete_groups import delete_groups
from gateway.handlers.delete_share_group_offsets import delete_share_group_offsets
from gateway.handlers.describe_share_group_offsets import describe_share_group_offsets
from gateway.handlers.incremental_alter_configs import incremental_alter_configs
from gateway.handlers.list_groups import list_groups
from gateway.handlers.naming_brokers import naming_brokers
from gateway.handlers.share_acknowledge import share_acknowledge
from gateway.handlers.share_fetch import share_fetch
from gateway.handlers.share_group_describe import share_group_describe
from gateway.handlers.share_group_heartbeat import share_group_heartbeat
from gateway.handlers.share_requests import ShareServices
from gateway.handlers.strangers import Strangers
from gateway.listen.build import ListenRoom
from gateway.listen.server import Handler
from gateway.members.build import MembersRoom
from gateway.operations.build import OperationsRoom
from gateway.operations.giving_back import clear_overtaken, give_back
from gateway.part import Part
from gateway.reading.build import ReadingRoom
from gateway.routing.owners import Owners
from gateway.upstream.build import UpstreamRoom
from gateway.windows.build import WindowsRoom


def build(
    upstream: UpstreamRoom,
    listen: ListenRoom,
    reading: ReadingRoom,
    owners: Owners,
    members: MembersRoom,
    windows: WindowsRoom,
    operations: OperationsRoom,
    now_ms: Callable[[], int],
) -> Part[None]:
    """The handlers are registered with the server."""
    slots = upstream.cluster.settings.slots
    cluster, authoriser, offsets = upstream.cluster, listen.authoriser, operations.offsets

    def delivered(group: str, topic: str, records: int, size: int) -> None:
        reading.delivered_by_topic.count(topic, size)
        windows.flow.sent(group, topic, records)

    services = ShareServices(
        settings=members.settings,
        topology=lambda: cluster.topology,
        advertised=lambda listener: dict(listen.server.listening.shown(listener)),
        refresh=cluster.refresh,
        groups=members.groups,
        windows=windows.windows.table,
        news=windows.windows.news,
        records=reading.reader.records,
        authoriser=authoriser,
        ready=windows.ready,
        other_type_active=members.other_types.active,
        clear_overtaken=partial(clear_overtaken, offsets, members.other_types.known),
        delivered=delivered,
        now_ms=now_ms,
        owners=owners,
        coordination=members.coordination,
    )
    strangers = Strangers(
        members.groups,
        authoriser,
        members.other_types.known,
        partial(give_back, offsets),
        services.windows.dependencies.log,
    )
    listen.server.looks.add(strangers, strangers.answer)
    answered: dict[ApiKey, Handler] = {
        ApiKey.SHARE_GROUP_HEARTBEAT: partial(share_group_heartbeat, services),
        ApiKey.SHARE_GROUP_DESCRIBE: partial(share_group_describe, services, offsets.find),
        ApiKey.SHARE_FETCH: partial(share_fetch, services),
        ApiKey.SHARE_ACKNOWLEDGE: partial(share_acknowledge, services),
        ApiKey.LIST_GROUPS: partial(list_groups, offsets, authoriser, slots),
        ApiKey.DELETE_GROUPS: partial(delete_groups, offsets, authoriser),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: partial(
            incremental_alter_configs, members.settings, slots
        ),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: partial(
            describe_share_group_offsets, offsets, authoriser
        ),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: partial(alter_share_group_offsets, offsets, authoriser),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: partial(delete_share_group_offsets, offsets, authoriser),
    }
    if slots.count > 1:
        answered |= dict.fromkeys(NAMING_BROKERS, partial(naming_brokers, slots))
    handlers = {int(key): handler for key, handler in answered.items()}
    return Part(name="handlers", room=None, handlers=handlers)
