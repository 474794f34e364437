"""ShareFetch (78) v1-2: session epochs, piggy-backed acknowledgements, then records of keys this member owns.

Acknowledgements come first, so that what they settle can be delivered by the same request. MaxRecords 0 changes the
session and acknowledges only. ShareAcquireMode record_limit (v2) is honoured as the same hard limit batch_optimized
gets here: a delivery never exceeds MaxRecords. MaxBytes is soft, by the mean record size of the partition.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from dispatcher.core.model import AckType, Acknowledge, Acquire, Delivered, Effect
from gateway.core.group.membership import GroupError
from gateway.core.group.sessions import CLOSE_EPOCH, OPEN_EPOCH, PartitionKey, ShareSession
from gateway.core.group.share import Row, acquired_ranges, by_topic, fetch_row, node_endpoints
from gateway.core.limits import SHARE_FETCH_WAIT_MS_MAX
from gateway.core.topology import PartitionInfo
from gateway.core.wire.codec import decode_request, encode_response
from gateway.core.wire.errors import ErrorCode
from gateway.reader import RecordsGone
from gateway.server import Request
from gateway.share import (
    AckBatches,
    Located,
    ShareServices,
    ack_batches,
    acknowledge,
    authorise_group,
    denied_topics,
    locate,
)
from gateway.upstream_errors import UpstreamError
from gateway.window import Window, WindowUnavailable


async def share_fetch(services: ShareServices, request: Request) -> bytes:
    header = request.header
    body = decode_request(header.api_key, header.api_version, request.frame, header.body_at)
    try:
        answer = await _fetch(services, request, body)
    except GroupError as error:
        answer = {"ErrorCode": int(error.code), "ErrorMessage": str(error)}
    return encode_response(header.api_key, header.api_version, answer)


@dataclass(slots=True)
class _Answer:
    """The rows of one response while it is put together; a partition has one row."""

    acknowledged: dict[PartitionKey, tuple[ErrorCode, str | None]] = field(default_factory=dict)
    errors: dict[PartitionKey, tuple[ErrorCode, PartitionInfo | None]] = field(default_factory=dict)
    delivered: dict[PartitionKey, tuple[bytes, list[tuple[int, int, int]]]] = field(
        default_factory=dict
    )

    def rows(self) -> list[tuple[bytes, Row]]:
        keys = dict.fromkeys([*self.acknowledged, *self.errors, *self.delivered])
        return [(key[0], self._row(key)) for key in keys]

    def _row(self, key: PartitionKey) -> Row:
        error, leader = self.errors.get(key, (ErrorCode.NONE, None))
        ack_error, ack_message = self.acknowledged.get(key, (ErrorCode.NONE, None))
        records, acquired = self.delivered.get(key, (b"", []))
        return fetch_row(
            key[1],
            error=error,
            acknowledge_error=ack_error,
            acknowledge_message=ack_message,
            leader=leader,
            records=records,
            acquired=acquired,
        )


async def _fetch(services: ShareServices, request: Request, body: dict[str, Any]) -> dict[str, Any]:
    connection = request.connection
    group, member_id = await authorise_group(services, connection, body)
    batches = ack_batches(body["Topics"])
    session = _session(services, request, body, group, member_id, acknowledges=bool(batches))
    services.groups.connected(group, member_id, connection.id)
    answer = _Answer()
    located = await _locate_all(services, request, session, batches, answer)
    answer.acknowledged.update(
        await acknowledge(
            services,
            connection,
            session,
            {key: acks for key, acks in batches.items() if key not in answer.acknowledged},
        )
    )
    if body["ShareSessionEpoch"] == CLOSE_EPOCH:
        services.windows.session_closed(session)
    elif body["MaxRecords"] > 0 and body["MaxBytes"] > 0 and not body["IsRenewAck"]:
        await _deliver(services, session, body, located, answer)
    misled = any(leader is not None for _, leader in answer.errors.values())
    return {
        "AcquisitionLockTimeoutMs": services.config.group(group).lock_duration_ms,
        "Responses": by_topic(answer.rows()),
        "NodeEndpoints": node_endpoints(services.topology().brokers, services.advertised())
        if misled
        else [],
    }


def _session(
    services: ShareServices,
    request: Request,
    body: dict[str, Any],
    group: str,
    member_id: str,
    *,
    acknowledges: bool,
) -> ShareSession:
    """Opens, continues or closes the session and updates the partitions it covers. Raises GroupError."""
    connection = request.connection
    sessions = services.groups.sessions
    key = (-1 if connection.broker_id is None else connection.broker_id, group, member_id)
    epoch = body["ShareSessionEpoch"]
    if epoch == OPEN_EPOCH:
        session = sessions.open(key, connection.id, acknowledges=acknowledges)
        services.windows.session_opened(session)
    elif epoch == CLOSE_EPOCH:
        return sessions.close(key, connection.id)
    else:
        session = sessions.resume(key, epoch, connection.id)
    for topic in body["ForgottenTopicsData"]:
        for partition in topic["Partitions"]:
            session.partitions.pop((topic["TopicId"], partition), None)
    for topic in body["Topics"]:
        for row in topic["Partitions"]:
            session.partitions[(topic["TopicId"], row["PartitionIndex"])] = None
    return session


async def _locate_all(
    services: ShareServices,
    request: Request,
    session: ShareSession,
    batches: dict[PartitionKey, AckBatches],
    answer: _Answer,
) -> dict[PartitionKey, Located]:
    """Where the session's partitions are; what this client must not or cannot have here becomes an error row."""
    connection = request.connection
    keys = session.rotated()
    denied = await denied_topics(services, connection, [*keys, *batches])
    found: dict[PartitionKey, Located] = {}
    for key in dict.fromkeys([*keys, *batches]):
        located = locate(services, connection, session.group, key)
        if located.topic in denied:
            located = Located(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic=located.topic)
            if key in batches:
                answer.acknowledged[key] = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
        if key not in session.partitions:
            continue
        if located.error:
            answer.errors[key] = (located.error, located.leader)
        else:
            found[key] = located
    return found


async def _deliver(
    services: ShareServices,
    session: ShareSession,
    body: dict[str, Any],
    located: dict[PartitionKey, Located],
    answer: _Answer,
) -> None:
    """Acquires what is ready; with nothing ready, waits for it up to MaxWaitMs."""
    loop = asyncio.get_running_loop()
    # An error row goes out at once: the client has to look for another leader.
    wait_ms = 0 if answer.errors else min(max(body["MaxWaitMs"], 0), SHARE_FETCH_WAIT_MS_MAX)
    deadline = loop.time() + wait_ms / 1000
    signal = services.ready.of(session.group, session.member_id)
    while True:
        signal.clear()
        await _acquire_once(services, session, body, list(located), answer)
        remaining = deadline - loop.time()
        if answer.delivered or remaining <= 0:
            return
        try:
            async with asyncio.timeout(remaining):
                await signal.wait()
        except TimeoutError:
            return


async def _acquire_once(
    services: ShareServices,
    session: ShareSession,
    body: dict[str, Any],
    keys: list[PartitionKey],
    answer: _Answer,
) -> None:
    records_left, bytes_left = body["MaxRecords"], body["MaxBytes"]
    now_ms = services.now_ms()
    asked: list[tuple[PartitionKey, Window, asyncio.Future[list[Effect]]]] = []
    for key in keys:
        window = services.windows.get(session.group, key[0], key[1])
        if window is None or records_left <= 0 or bytes_left <= 0:
            continue
        mean_bytes = window.mean_record_bytes
        records_max = max(1, min(records_left, bytes_left // mean_bytes))
        acquire = Acquire(session.member_id, session.session_id, records_max, now_ms)
        count, future = window.acquire(acquire)
        if future is not None:
            asked.append((key, window, future))
            records_left -= count
            bytes_left -= count * mean_bytes
    batch_size = body["BatchSize"] if body["BatchSize"] > 0 else body["MaxRecords"]
    for key, window, future in asked:
        try:
            effects = await future
        except WindowUnavailable:
            continue  # nothing was handed out: the window is rebuilt, the client fetches again
        for effect in effects:
            if isinstance(effect, Delivered) and effect.offsets:
                await _add_records(services, session, key, window, effect, batch_size, answer)


async def _add_records(
    services: ShareServices,
    session: ShareSession,
    key: PartitionKey,
    window: Window,
    delivered: Delivered,
    batch_size: int,
    answer: _Answer,
) -> None:
    offsets, attempts = delivered.offsets, delivered.attempts
    try:
        records = await window.bytes_for(offsets, batch_size)
    except RecordsGone as gone:
        # Retention or compaction took them after they were read: there is nothing left to deliver or to wait for.
        lost = set(gone.offsets)
        now_ms = services.now_ms()
        batches = [(offset, offset, bytes([AckType.ACCEPT])) for offset in sorted(lost)]
        window.post(Acknowledge(session.member_id, session.session_id, batches, now_ms))
        kept = [(o, a) for o, a in zip(offsets, attempts, strict=True) if o not in lost]
        if not kept:
            return
        offsets, attempts = [o for o, _ in kept], [a for _, a in kept]
        records = await window.bytes_for(offsets, batch_size)
    except UpstreamError:
        window.give_back(session.member_id, session.session_id, offsets, services.now_ms())
        return
    answer.delivered[key] = (records, acquired_ranges(offsets, attempts))
