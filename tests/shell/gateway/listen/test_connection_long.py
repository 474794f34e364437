"""Answers of the gateway that are too long to be copied."""

from __future__ import annotations

import pytest

from gateway.core.limits import LONG_STEP_BYTES
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import encode_long_response
from gateway.core.wire.long_bytes import LongBytes, view_of, whole
from gateway.listen.server import Request
from tests.rig.loopback import answers, body_of, rig, run
from tests.rig.wire_frames import request, response

HEARTBEAT = int(ApiKey.HEARTBEAT)
SHARE_FETCH = int(ApiKey.SHARE_FETCH)


@pytest.mark.parametrize("in_parts", [True, False])
def test_a_long_answer_leaves_behind_its_head_and_the_next_behind_it(in_parts: bool) -> None:
    """It is not copied to stand behind its head: a copy of 90 MB holds the loop up for 100 ms."""
    records = bytes(LONG_STEP_BYTES) + b"end"
    parts = LongBytes([b"", memoryview(records)[:7], records[7:]])
    message = {"ErrorMessage": None, "Responses": [{"Partitions": [{"Records": parts}]}]}
    long = encode_long_response(SHARE_FETCH, 2, message)

    body = long if in_parts else whole(long)

    async def main() -> None:
        async def share_fetch(asked: Request) -> bytes | LongBytes:
            assert asked.header.api_version == 2
            return body

        async with rig({SHARE_FETCH: share_fetch}) as gateway:
            gateway.upstream.on_api(HEARTBEAT, answers({}))
            client = await gateway.client()
            client.writer.write(request(SHARE_FETCH, correlation_id=5) + request(HEARTBEAT))
            share = body_of(await client.frame(), SHARE_FETCH, 2)
            assert view_of(share["Responses"][0]["Partitions"][0]["Records"]) == records
            assert await client.frame() == response(HEARTBEAT)

    run(main())
