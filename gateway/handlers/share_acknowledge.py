"""ShareAcknowledge (79) v1-2: acknowledgements without a fetch; epoch -1 closes the session and
gives back the rest.

v2 RENEW (KIP-1222) extends the acquisition lock of the named records, if the request says
IsRenewAck and the group permits it. All of the API is implemented.
"""

from __future__ import annotations

import asyncio

from gateway.core.share.answers import acknowledge_row, by_topic, node_endpoints
from gateway.core.share.errors import GroupError, InvalidSessionEpoch
from gateway.core.share.sessions import CLOSE_EPOCH, OPEN_EPOCH, session_key
from gateway.core.wire.codec import decode_request, encode_response
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from gateway.handlers.limits import TURN_PARTITIONS
from gateway.handlers.share_plan import plan_of
from gateway.handlers.share_requests import (
    Acknowledgements,
    ShareServices,
    ack_batches,
    authorise_group,
    locate,
    rights_of,
)
from gateway.listen.answering import Request


async def share_acknowledge(services: ShareServices, request: Request) -> bytes:
    header = request.header
    body = decode_request(header.api_key, header.api_version, request.frame, header.body_at)
    try:
        answer = await _acknowledge(services, request, body)
    except GroupError as error:
        request.connection.counters.count_request_refused(header.api_key, error.code)
        answer = {"ErrorCode": int(error.code), "ErrorMessage": str(error)}
    return encode_response(header.api_key, header.api_version, answer)


async def _acknowledge(services: ShareServices, request: Request, body: Message) -> Message:
    connection = request.connection
    group, member_id = await authorise_group(services, connection, body)
    batches = ack_batches(body["Topics"])
    key = session_key(connection.broker_id, group, member_id)
    plan = plan_of(services, connection, services.groups.sessions.find(key), body["Topics"])
    rights = plan.rights if plan else await rights_of(services, connection, batches)
    # From here on a session that is closed here is closed for the dispatchers, too, whenever the
    # client hangs up.
    epoch = body["ShareSessionEpoch"]
    if epoch == OPEN_EPOCH:
        raise InvalidSessionEpoch("A share session is opened by a fetch.")
    closing = epoch == CLOSE_EPOCH
    sessions = services.groups.sessions
    session = sessions.close(key) if closing else sessions.resume(key, epoch)
    services.groups.connected(group, member_id, connection.id)
    rows: list[tuple[bytes, Message]] = []
    misled = False
    allowed = {}
    for partition, acks in batches.items():
        if rights.get(partition) is False:
            rows.append(
                (
                    partition[0],
                    acknowledge_row(partition[1], error=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
                )
            )
        else:
            allowed[partition] = acks
    acknowledgements = Acknowledgements(services, connection, session, body["IsRenewAck"])
    try:
        await acknowledgements.ask(allowed, plan.windows if plan else {})
    finally:
        if closing:  # also here when the client hangs up meanwhile
            services.news.session_closed(session)
    answers = await acknowledgements.answers()
    led_here = plan is not None and plan.holds(services, connection)
    for at, (partition, (error, message)) in enumerate(answers.items(), 1):
        if at % TURN_PARTITIONS == 0:
            await asyncio.sleep(0)
        leader = None if led_here else locate(services, connection, group, partition).leader
        misled = misled or leader is not None
        rows.append(
            (
                partition[0],
                acknowledge_row(partition[1], error=error, message=message, leader=leader),
            )
        )
    return {
        "AcquisitionLockTimeoutMs": services.settings.of(group).lock_duration_ms,
        "Responses": by_topic(rows),
        "NodeEndpoints": node_endpoints(services.advertised(connection.listener)) if misled else [],
    }
