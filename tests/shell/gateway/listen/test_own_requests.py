"""Requests on a client's own upstream connection."""

from __future__ import annotations

from gateway.core.wire.apis import ApiKey
from gateway.listen.server import Request
from tests.rig.loopback import answers, body_of, rig, run
from tests.rig.wire_frames import request

HEARTBEAT = int(ApiKey.HEARTBEAT)


class AllHeartbeats:
    apis = frozenset({int(HEARTBEAT)})

    def stops(self, *_asked: object) -> bool:
        return True


def test_a_request_that_was_stopped_may_be_passed_on_as_it_came() -> None:
    async def main() -> None:
        async def answer(asked: Request) -> bytes:
            return await asked.connection.pass_on(asked.frame)

        async with rig() as gateway:
            gateway.server.looks.add(AllHeartbeats(), answer)
            gateway.upstream.on_api(HEARTBEAT, answers({"ErrorCode": 27}))
            client = await gateway.client()
            asked = request(HEARTBEAT, correlation_id=5, client_id="me")
            answered = await client.ask(asked)
            assert body_of(answered, HEARTBEAT, asked[7])["ErrorCode"] == 27
            assert answered[4:8] == asked[8:12], "its own correlation id"
            (got,) = [each.frame for each in gateway.upstream.requests]
            assert (got[:4], got[8:]) == (asked[4:8], asked[12:])

    run(main())
