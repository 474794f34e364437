"""Answers of the gateway that are too long to be copied once more."""

from __future__ import annotations

from gateway.core.limits import LONG_STEP_BYTES
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import encode_response
from gateway.listen.server import Request
from tests.rig.loopback import answers, body_of, rig, run
from tests.rig.wire_frames import request, response

HEARTBEAT = int(ApiKey.HEARTBEAT)
SHARE_FETCH = int(ApiKey.SHARE_FETCH)


def test_a_long_answer_leaves_behind_its_head_and_the_next_behind_it() -> None:
    """It is not copied to stand behind its head: a copy of 90 MB holds the loop up for 80 ms."""
    records = bytes(LONG_STEP_BYTES) + b"end"
    message = {"ErrorMessage": None, "Responses": [{"Partitions": [{"Records": records}]}]}

    async def main() -> None:
        async def share_fetch(asked: Request) -> bytes:
            return encode_response(SHARE_FETCH, asked.header.api_version, message)

        async with rig({SHARE_FETCH: share_fetch}) as it:
            it.upstream.on_api(HEARTBEAT, answers({}))
            client = await it.client()
            client.writer.write(request(SHARE_FETCH, correlation_id=5) + request(HEARTBEAT))
            share = body_of(await client.frame(), SHARE_FETCH, 2)
            assert share["Responses"][0]["Partitions"][0]["Records"] == records
            assert await client.frame() == response(HEARTBEAT)

    run(main())
