"""The partitions of a share session with their windows, found once: the requests of a session name
the same ones, and nothing is looked up again while nothing of it has changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dispatcher.core.model import MemberId
from gateway.core.cluster.topology import Topology
from gateway.core.routing.ownership import Standing
from gateway.core.share.sessions import PartitionKey, ShareSession
from gateway.core.wire.schema import Message
from gateway.handlers.share_requests import Rights, ShareServices
from gateway.listen.answering import Client
from gateway.windows.window import Window


@dataclass(slots=True)
class SharePlan:
    """A session whose partitions are all led here, have a window, and may be read by the client."""

    topology: Topology
    windows_version: int  # of the table
    connection: int
    until_ms: int  # then upstream is asked again about the client's permissions
    windows: dict[PartitionKey, Window]
    pairs: list[tuple[PartitionKey, Window]] = field(init=False)
    rights: Rights = field(init=False)

    def __post_init__(self) -> None:
        self.pairs = list(self.windows.items())
        self.rights = dict.fromkeys(self.windows, True)

    def holds(self, services: ShareServices, connection: Client) -> bool:
        return (
            services.topology() is self.topology
            and services.windows.version == self.windows_version
            and connection.id == self.connection
            and services.now_ms() < self.until_ms
            and services.owners.standing(connection.broker_id) is not Standing.ELSEWHERE
        )

    def rotated(self, session: ShareSession) -> list[tuple[PartitionKey, Window]]:
        """The partitions in the order of the session's own `rotated`."""
        start = session.turn(len(self.pairs))
        return self.pairs[start:] + self.pairs[:start]


def plan_of(
    services: ShareServices,
    connection: Client,
    session: ShareSession | None,
    topics: list[Message],
) -> SharePlan | None:
    """The plan of the session, if it still holds and has all partitions of the request's Topics."""
    plan = None if session is None else session.resolved
    if not isinstance(plan, SharePlan) or not plan.holds(services, connection):
        return None
    for topic in topics:
        topic_id = topic["TopicId"]
        for row in topic["Partitions"]:
            if (topic_id, row["PartitionIndex"]) not in plan.windows:
                return None
    return plan


def ready_at(
    services: ShareServices, window: Window, broker: int, member_id: MemberId, now_ms: int
) -> int:
    """How many records the window has for the member at this virtual broker, roughly."""
    if window.leader != broker:
        return 0  # it moved since the plan was made
    ready = window.ready_for(member_id, now_ms)
    # Of an unreliable group no store refuses what another node may have sent meanwhile.
    return ready if ready and (window.section.reliable or services.owners.certain()) else 0


def hasten(pairs: list[tuple[PartitionKey, Window]]) -> None:
    """A fetch waits for records of these windows."""
    for _, window in pairs:
        window.awaited()


def records_elsewhere(services: ShareServices, session: ShareSession) -> bool:
    """Whether the member asks one virtual broker after the other, and another of its sessions has
    records for it. A session without a plan has none until its next fetch, and one that waits for
    an answer about acknowledgements: no client fetches there before.
    """
    if not session.of_member.may_send_on():
        return False
    now_ms = services.now_ms()
    for (broker, _, _), other in session.of_member.open.items():
        plan = other.resolved
        if other is session or other.acknowledging or not isinstance(plan, SharePlan):
            continue
        for window in plan.windows.values():
            if ready_at(services, window, broker, session.member_id, now_ms):
                return True
    return False
