"""CreateTopics (19) v2-7, AlterConfigs (33) v0-2, CreatePartitions (37) v0-3,
AlterPartitionReassignments (45) v0-1, UnregisterBroker (64) v0: upstream's own answer, where
brokers have several slots.

A client may name a virtual broker by any of its ids; upstream knows one. With one slot these APIs
pass unread. Asked on the client's own connection, so its ACLs decide. All of each API is
implemented.
"""

from __future__ import annotations

from gateway.core.cluster.slots import Slots
from gateway.core.forwarding.broker_names import named_for_client, named_for_upstream
from gateway.core.wire.codec import decode_request, encode_response
from gateway.listen.answering import Request
from gateway.upstream.errors import UpstreamError


async def naming_brokers(slots: Slots, request: Request) -> bytes:
    header = request.header
    key, version = header.api_key, header.api_version
    body = decode_request(key, version, request.frame, header.body_at)
    used = named_for_upstream(key, body, slots)
    try:
        answer = await request.connection.ask_upstream(key, version, body)
    except UpstreamError:
        request.connection.abort()  # as a broker that went away: nobody knows whether it was done
        return b""
    if used:
        named_for_client(answer["Responses"], used)
    return encode_response(key, version, answer)
