"""Common parts of the share handlers: the member, its session, and its acknowledgements."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field

from dispatcher.core.model import AckError, Acknowledge, AckType
from dispatcher.core.steps import AckResult, Effect
from gateway.core.cluster.topology import PartitionInfo, Topology
from gateway.core.routing.ownership import Standing
from gateway.core.share.errors import GroupDenied, InvalidRequest
from gateway.core.share.sessions import PartitionKey, ShareSession
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from gateway.handlers.limits import (
    ACKNOWLEDGE_WAIT_S_MAX,
    GROUP_ID_CHARS_MAX,
    MEMBER_ID_CHARS_MAX,
    TURN_PARTITIONS,
    TURN_RANGES,
    UNHEARD_MS,
)
from gateway.listen.answering import Client
from gateway.listen.authoriser import Authoriser
from gateway.members.coordination import Coordination, EveryGroup
from gateway.members.group_settings import GroupSettings
from gateway.members.groups import Groups
from gateway.routing.owners import Alone, Owners
from gateway.windows.dependencies import Records
from gateway.windows.failures import WindowUnavailable
from gateway.windows.news import WindowNews
from gateway.windows.ready_signals import ReadySignals
from gateway.windows.table import WindowTable
from gateway.windows.tickets import Answered
from gateway.windows.window import Window

AckBatches = list[tuple[int, int, bytes]]


@dataclass(frozen=True, slots=True)
class ShareServices:
    settings: GroupSettings
    topology: Callable[[], Topology]
    advertised: Callable[[str], dict[int, tuple[str, int]]]  # to the clients of a listener
    refresh: Callable[[list[str]], Awaitable[Topology]]
    groups: Groups
    windows: WindowTable
    news: WindowNews
    records: Records
    authoriser: Authoriser
    ready: ReadySignals
    other_type_active: Callable[[str], Awaitable[bool]]  # under the name of a group
    clear_overtaken: Callable[[str], Awaitable[None]]  # before its first member; OperationError
    delivered: Callable[[str, str, int, int], None]  # group, topic, records and bytes of an answer
    now_ms: Callable[[], int]
    owners: Owners = field(default_factory=Alone)
    coordination: Coordination = field(default_factory=EveryGroup)


@dataclass(frozen=True, slots=True)
class Located:
    """Where a partition of a share request leads: a window of this node, or the error the client is
    to see.
    """

    error: ErrorCode = ErrorCode.NONE
    topic: str | None = None
    # None with no error: no member of the group subscribes to the topic (yet).
    window: Window | None = None
    leader: PartitionInfo | None = None  # set when the client should go there


async def authorise_group(
    services: ShareServices, connection: Client, body: Message
) -> tuple[str, str]:
    """The group and member of a share request, once the client may read the group. Raises
    GroupError.
    """
    group, member_id = body["GroupId"], body["MemberId"]
    if not group or not member_id:
        raise InvalidRequest("GroupId and MemberId must be set.")
    if len(group) > GROUP_ID_CHARS_MAX or len(member_id) > MEMBER_ID_CHARS_MAX:
        raise InvalidRequest(
            f"GroupId has {len(group)} characters (at most {GROUP_ID_CHARS_MAX}), MemberId"
            f" {len(member_id)} (at most {MEMBER_ID_CHARS_MAX})."
        )
    if not await services.authoriser.may_read_group(connection, group):
        raise GroupDenied(f"Not authorized to access group: {group}")
    return group, member_id


def locate(services: ShareServices, connection: Client, group: str, key: PartitionKey) -> Located:
    topology = services.topology()
    name = topology.names.get(key[0])
    topic = None if name is None else topology.topics.get(name)
    if topic is None or topic.topic_id != key[0]:
        return Located(error=ErrorCode.UNKNOWN_TOPIC_ID)
    info = topic.partitions.get(key[1])
    if info is None:
        return Located(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=name)
    if info.virtual_leader != connection.broker_id:
        return Located(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, topic=name, leader=info)
    if is_elsewhere(services, connection):
        return Located(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, topic=name, leader=info)
    return Located(topic=name, window=services.windows.get(group, key[0], key[1]))


def is_elsewhere(services: ShareServices, connection: Client) -> bool:
    """Another node owns the virtual broker. The client asks for Metadata, which has the address of
    that node under the same broker id; so this connection ends with the answer.
    """
    if services.owners.standing(connection.broker_id) is not Standing.ELSEWHERE:
        return False
    services.owners.look_soon()
    connection.drain()
    return True


def is_unheard(services: ShareServices, connection: Client) -> bool:
    """This node has not reached the store of the owners for a session: others may have what it had,
    and coordinate its groups. Its client is sent to look; another node knows. A client that comes
    back has some time: perhaps nobody reaches the store.
    """
    if services.owners.certain() or not services.owners.others():
        return False
    if services.now_ms() - connection.facts.since_ms < UNHEARD_MS:
        return False
    connection.drain()
    return True


# By partition: True, the client may read it; False, it may not. Upstream was not asked about the
# others, or knows nothing of them yet: they are not served.
Rights = Mapping[PartitionKey, bool]


async def rights_of(
    services: ShareServices, connection: Client, keys: Collection[PartitionKey]
) -> Rights:
    names = services.topology().names
    of_topic = await services.authoriser.topic_rights(
        connection, {names[key[0]] for key in keys if key[0] in names}
    )
    rights = {key: of_topic.get(names.get(key[0], "")) for key in keys}
    return {key: right for key, right in rights.items() if right is not None}


AckAnswer = tuple[ErrorCode, str | None]
RENEW_IS_OFF = "Renewing acquisition locks is not enabled for the group."


@dataclass(slots=True)
class _Asked:
    window: Window
    acks: AckBatches
    answered: Answered
    handled: bool  # else the window was not up, and nothing of it is in the store


@dataclass(slots=True)
class Acknowledgements:
    """The acknowledgements of one request: handled at once, answered when they are in the store.

    A window that is away is waited for, within bounds: a stock librdkafka does not repeat a refused
    acknowledgement, and its records would come again only when their locks run out.
    """

    services: ShareServices
    connection: Client
    session: ShareSession
    renewing: bool  # the request's IsRenewAck: without it a RENEW is invalid
    _answers: dict[PartitionKey, AckAnswer] = field(default_factory=dict)
    _asked: dict[PartitionKey, _Asked] = field(default_factory=dict)

    async def ask(
        self, batches: dict[PartitionKey, AckBatches], windows: Mapping[PartitionKey, Window]
    ) -> None:
        """Waits for nothing, but a long request lets others have their turn in between. `windows`:
        those that are known already.
        """
        settings = self.services.settings.of(self.session.group)
        refused = self.renewing and not settings.renew_acknowledge
        ranges = 0
        for at, (key, acks) in enumerate(batches.items(), 1):
            ranges += len(acks)
            if ranges > TURN_RANGES or at % TURN_PARTITIONS == 0:
                await asyncio.sleep(0)
                ranges = len(acks)
            window, error = windows.get(key), ErrorCode.NONE
            if window is None:
                located = locate(self.services, self.connection, self.session.group, key)
                window, error = located.window, located.error
            if error:
                self._answers[key] = (error, None)
            elif window is None:
                self._answers[key] = self._no_window()
            elif refused and any(AckType.RENEW in types for _, _, types in acks):
                # As Kafka: the partition's other batches do not count either.
                self._answers[key] = (ErrorCode.INVALID_RECORD_STATE, RENEW_IS_OFF)
            else:
                up, again = window.dispatcher is not None, key in self.session.in_doubt
                answered = window.ask(self._event(acks, again=again))
                self._asked[key] = _Asked(window, acks, answered, up or again)

    def _no_window(self) -> AckAnswer:
        broker = self.connection.broker_id
        if self.services.owners.standing(broker) is Standing.HANDING_OVER:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, "The partition moves to another node."
        return ErrorCode.INVALID_RECORD_STATE, "Nothing is acquired."

    def _event(self, acks: AckBatches, *, again: bool = False) -> Acknowledge:
        session, now_ms = self.session, self.services.now_ms()
        type_max = AckType.RENEW if self.renewing else AckType.REJECT
        return Acknowledge(session.member_id, session.session_id, acks, now_ms, type_max, again)

    async def answers(self) -> dict[PartitionKey, AckAnswer]:
        """An answer for every partition that was acknowledged."""
        session = self.session
        deadline = 0.0  # one for all that are asked again
        session.acknowledging += 1
        try:
            for key, asked in self._asked.items():
                try:
                    self._answers[key] = _ack_answer(await asked.answered)
                except WindowUnavailable as unavailable:
                    loop = asyncio.get_running_loop()
                    deadline = deadline or loop.time() + ACKNOWLEDGE_WAIT_S_MAX
                    self._answers[key] = await self._ask_again(
                        key, asked, deadline, str(unavailable)
                    )
                else:
                    session.in_doubt.discard(key)
        finally:
            session.acknowledging -= 1
            if session.closed and not session.acknowledging:
                self.services.news.session_over(session)
            if self._asked and session.of_member.may_send_on():
                # Its fetch at another broker has waited for this: now the client may fetch here.
                self.services.ready.wake(session.group, [session.member_id])
        return self._answers

    async def _ask_again(
        self, key: PartitionKey, asked: _Asked, deadline: float, reason: str
    ) -> AckAnswer:
        in_doubt = self.session.in_doubt
        if asked.handled:
            in_doubt.add(key)
        try:
            async with asyncio.timeout_at(deadline):
                await asked.window.loaded()
                event = self._event(asked.acks, again=asked.handled)
                answer = _ack_answer(await asked.window.ask(event))
                in_doubt.discard(key)
                return answer
        except (TimeoutError, WindowUnavailable):
            # Kafka's own broker answers the same when its share-state persister is away; the Java
            # client retries it.
            return (
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"The group's state is not available: {reason}",
            )


def _ack_answer(effects: list[Effect]) -> AckAnswer:
    for effect in effects:
        if isinstance(effect, AckResult):
            for error in effect.errors:
                if error is AckError.INVALID_REQUEST:
                    return ErrorCode.INVALID_REQUEST, "The acknowledgement batch is invalid."
                if error is not None:
                    return (
                        ErrorCode.INVALID_RECORD_STATE,
                        "The record is not acquired by this member.",
                    )
    return ErrorCode.NONE, None


def ack_batches(topics: list[Message]) -> dict[PartitionKey, AckBatches]:
    """The acknowledgements in the Topics of a ShareFetch or ShareAcknowledge request."""
    found: dict[PartitionKey, AckBatches] = {}
    for topic in topics:
        for partition in topic["Partitions"]:
            if partition["AcknowledgementBatches"]:
                key = (topic["TopicId"], partition["PartitionIndex"])
                found.setdefault(key, []).extend(partition["AcknowledgementBatches"])
    return found
