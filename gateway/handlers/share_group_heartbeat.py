"""ShareGroupHeartbeat (76) v1: join, leave, epochs, assignment of all partitions of the subscribed
topics.

Not implemented: rack-aware assignment (RackId is kept for describe only).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from gateway.core.client_limits.rules import ANONYMOUS
from gateway.core.share.declared_filters import inline_filters
from gateway.core.share.errors import GroupError, InvalidRequest
from gateway.core.share.membership import (
    LEAVE_EPOCH,
    Assignment,
    Heartbeat,
    HeartbeatAnswer,
    possible,
)
from gateway.core.wire.codec import decode_request, encode_response
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from gateway.handlers.limits import (
    CLIENT_ID_CHARS_LOGGED,
    CLIENT_ID_CHARS_MAX,
    GROUP_ID_CHARS_MAX,
    RACK_ID_CHARS_MAX,
    SUBSCRIBED_TOPICS_MAX,
)
from gateway.handlers.share_requests import ShareServices, authorise_group, is_unheard
from gateway.listen.answering import Client, Request
from gateway.members.coordination import CoordinatorNotKnown, NotCoordinator
from gateway.operations.errors import OperationError
from gateway.upstream.errors import UpstreamError


class TopicDenied(GroupError):
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class NoShareGroup(GroupError):
    code = ErrorCode.GROUP_ID_NOT_FOUND  # as Kafka


async def share_group_heartbeat(services: ShareServices, request: Request) -> bytes:
    header = request.header
    body = decode_request(header.api_key, header.api_version, request.frame, header.body_at)
    try:
        answer = await _heartbeat(services, request, body)
    except GroupError as error:
        request.connection.counters.count_request_refused(header.api_key, error.code)
        # librdkafka shows its user the code, not the reason.
        if isinstance(error, InvalidRequest | NoShareGroup):
            services.windows.dependencies.log.note(
                body["GroupId"][:GROUP_ID_CHARS_MAX],
                "heartbeat_refused",
                client_id=(header.client_id or "")[:CLIENT_ID_CHARS_LOGGED],
                reason=str(error),
            )
        answer = {
            "ErrorCode": int(error.code),
            "ErrorMessage": str(error),
            "MemberId": body["MemberId"],
        }
    return encode_response(header.api_key, header.api_version, answer)


async def _heartbeat(services: ShareServices, request: Request, body: Message) -> Message:
    group, member_id = await authorise_group(services, request.connection, body)
    await _check_coordinator(services, request.connection, group)
    topics = body["SubscribedTopicNames"]
    if topics is not None and len(topics) > SUBSCRIBED_TOPICS_MAX:
        raise InvalidRequest(
            f"SubscribedTopicNames holds {len(topics)} names: at most {SUBSCRIBED_TOPICS_MAX}."
        )
    if body["MemberEpoch"] >= 0:
        new = () if topics is None else possible(topics)
        subscribed = _subscribed(services, group, member_id) if topics is None else new
        await _authorise_topics(services, request, subscribed)
        known = services.topology().topics
        missing = [name for name in new if name not in known or not known[name].partitions]
        if missing:
            await _look_for(services, missing)
    client_id, rack_id = request.header.client_id or "", body["RackId"]
    if len(client_id) > CLIENT_ID_CHARS_MAX or len(rack_id or "") > RACK_ID_CHARS_MAX:
        raise InvalidRequest(
            f"The client id has {len(client_id)} characters (at most {CLIENT_ID_CHARS_MAX}),"
            f" RackId {len(rack_id or '')} (at most {RACK_ID_CHARS_MAX})."
        )
    inline_filters(client_id)
    known_group = services.groups.get(group)
    first = body["MemberEpoch"] == 0 and (known_group is None or not known_group.members)
    if first and await services.other_type_active(group):
        raise NoShareGroup(f"Group {group} is not a share group: it has members of another kind.")
    if services.groups.get(group) is None:
        if first:
            await _clear_overtaken(services, group)
        with suppress(UpstreamError):  # keyway.yaml until upstream answers
            await services.settings.learn(group)
    connection = request.connection
    principal = connection.facts.principal
    beat = Heartbeat(
        member_id=member_id,
        member_epoch=body["MemberEpoch"],
        rack_id=rack_id,
        topics=None if topics is None else tuple(topics),
        client_id=client_id,
        client_host=connection.facts.host,
        connection=connection.id,
        principal=None if principal == ANONYMOUS else principal,
    )
    try:
        answer = _beat(services, group, beat)
        if answer.wait_ms:
            await asyncio.sleep(answer.wait_ms / 1000)
            beat = replace(beat, member_epoch=answer.member_epoch, topics=None)
            answer = _beat(services, group, beat)
    finally:
        if services.groups.get(group) is None:  # refused: nobody else would forget it
            services.settings.forget(group)
    interval_ms = services.settings.of(group).heartbeat_interval_ms
    return {
        "MemberId": member_id,
        "MemberEpoch": answer.member_epoch,
        "HeartbeatIntervalMs": 0 if answer.member_epoch == LEAVE_EPOCH else interval_ms,  # as Kafka
        "Assignment": None if answer.assignment is None else assignment_row(answer.assignment),
    }


async def _check_coordinator(services: ShareServices, connection: Client, group: str) -> None:
    """Raises GroupError."""
    try:
        if is_unheard(services, connection):
            raise NotCoordinator("Another node may coordinate the group: this one hears of none.")
        await services.coordination.check(group, connection.broker_id)
    except NotCoordinator:
        # Its next one comes over a connection to the owner, which has the same broker id.
        connection.drain()
        raise


async def _clear_overtaken(services: ShareServices, group: str) -> None:
    """Raises CoordinatorNotKnown."""
    try:
        await services.clear_overtaken(group)
    except OperationError as error:
        raise CoordinatorNotKnown(str(error)) from error


def _beat(services: ShareServices, group: str, beat: Heartbeat) -> HeartbeatAnswer:
    """Raises GroupError."""
    if not services.coordination.leads(group):
        raise NotCoordinator("Another node coordinates the group since a moment ago.")
    topics = services.topology().topics
    return services.groups.heartbeat(group, beat, topics.get, services.now_ms())


def _subscribed(services: ShareServices, group: str, member_id: str) -> tuple[str, ...]:
    member = services.groups.member(group, member_id)
    return () if member is None else member.topics


async def _authorise_topics(
    services: ShareServices, request: Request, topics: Iterable[str]
) -> None:
    """Checks the topics with every heartbeat. A member that may no longer read a topic gets no
    records of it, and its keys must not wait for it. Such a member is not heard, and is evicted
    like a silent one. Raises GroupError.
    """
    denied = await services.authoriser.denied_topics(request.connection, topics)
    if denied:
        raise TopicDenied(f"Not authorized to access topics: {sorted(denied)}")


async def _look_for(services: ShareServices, topics: list[str]) -> None:
    """A member may join before its topics exist, or while upstream is away: a later heartbeat
    brings it their partitions.
    """
    with suppress(UpstreamError):
        await services.refresh(topics)


def assignment_row(assignment: Assignment) -> Message:
    return {
        "TopicPartitions": [
            {"TopicId": topic_id, "Partitions": list(partitions)}
            for topic_id, partitions in assignment.items()
        ]
    }
