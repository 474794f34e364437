"""Repartitions as a part of the node, which starts before all that clients come to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from redis.asyncio import Redis

from gateway.config.file import Config
from gateway.core.repartition.holds import Holds
from gateway.core.repartition.record import Pace
from gateway.core.repartition.screening import Screening
from gateway.listen.authoriser import Authoriser
from gateway.listen.build import ListenRoom
from gateway.operations.build import OperationsRoom
from gateway.part import Part, Trouble
from gateway.repartition.company import Company
from gateway.repartition.metrics import RepartitionCollector
from gateway.repartition.repartitions import Repartitions
from gateway.repartition.screened_requests import ScreenedRequests
from gateway.repartition.start_offsets import StartOffsets
from gateway.repartition.status import warnings_of
from gateway.repartition.steps import Steps
from gateway.repartition.survey import Survey
from gateway.repartition.table import RepartitionTable
from gateway.routing.build import RoutingRoom
from gateway.upstream.build import UpstreamRoom
from gateway.windows.build import WindowsRoom


@dataclass(frozen=True, slots=True)
class RepartitionRoom:
    repartitions: Repartitions


def build(
    config: Config,
    upstream: UpstreamRoom,
    listen: ListenRoom,
    nodes: RoutingRoom,
    windows: WindowsRoom,
    operations: OperationsRoom,
    holds: Holds,
    redis: Redis,
    now_ms: Callable[[], int],
) -> Part[RepartitionRoom]:
    """`holds`: the holds that its windows ask for."""
    cluster, commits, offsets = upstream.cluster, upstream.commits, operations.offsets
    section = config.repartition
    survey = Survey(cluster, commits, offsets)
    screening = Screening()
    authoriser = Authoriser(now_ms)
    listen.server.on_disconnect(authoriser.connection_lost)
    listen.server.looks.add(screening, ScreenedRequests(screening, authoriser).answer)
    repartitions = Repartitions(
        RepartitionTable(redis),
        cluster,
        listen.server,
        windows.windows.table,
        holds,
        screening,
        survey,
        Steps(cluster, commits, offsets, survey, StartOffsets(cluster.settings).commit),
        Pace(
            adoption_ms=section.adoption_timeout_ms,
            settle_ms=section.settle_ms,
            late_ms=section.delivery_timeout_ms,
            consumer_hold_ms=section.consumer_hold_timeout_ms,
        ),
        Company(nodes.shared, nodes.told),
    )

    async def load() -> None:
        await repartitions.load()

    async def troubles() -> Sequence[Trouble]:
        away = repartitions.away
        text = f"no client is served before the repartitions of topics are known: {away}"
        return (Trouble(text, serving=False),) if away else ()

    def warnings() -> Sequence[str]:
        return warnings_of(repartitions)

    return Part(
        name="repartition",
        room=RepartitionRoom(repartitions),
        collectors=(RepartitionCollector(repartitions.running),),
        troubles=troubles,
        warnings=warnings,
        start=load,
        background=(repartitions.run,),
    )


def known(room: RepartitionRoom) -> Part[None]:
    """The part before the one that listens: what clients are shown is known first."""
    return Part(name="repartitions_known", room=None, start=room.repartitions.known)
