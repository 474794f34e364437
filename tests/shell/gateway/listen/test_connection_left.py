"""A client that leaves: its requests go upstream, and nobody works for it any longer than that."""

from __future__ import annotations

import asyncio

from gateway.core.wire.apis import ApiKey
from gateway.listen.limits import DISCARDED_BYTES_MAX, LEAVERS_PER_TURN
from gateway.listen.server import Request
from tests.rig.fake_broker import ReceivedRequest
from tests.rig.loopback import rig, run, until
from tests.rig.wire_frames import request

FETCH = int(ApiKey.FETCH)
HEARTBEAT = int(ApiKey.HEARTBEAT)
PRODUCE = int(ApiKey.PRODUCE)
SHARE_FETCH = int(ApiKey.SHARE_FETCH)


def test_what_a_client_sent_before_it_left_reaches_upstream() -> None:
    async def main() -> None:
        async with rig() as gateway:

            async def swallow(_asked: ReceivedRequest) -> None:
                return None

            gateway.upstream.on_api(PRODUCE, swallow)
            client = await gateway.client()
            client.writer.write(request(PRODUCE, message={"Acks": 0}) * 500)
            client.writer.close()
            await until(lambda: len(gateway.upstream.requests) == 500)
            await until(lambda: gateway.upstream.connections[0].ended_by_peer)
            await until(lambda: len(gateway.gone) == 1)

    run(main())


def test_answers_to_a_client_that_left_are_not_read_without_end() -> None:
    """40 clients that left with 20 fetches each were read for five seconds, to no purpose."""

    async def main() -> None:
        async with rig() as gateway:
            answered = 0

            async def large(asked: ReceivedRequest) -> bytes:
                nonlocal answered
                answered += 1
                partition = {"Records": bytes(DISCARDED_BYTES_MAX // 2)}
                return asked.response({"Responses": [{"Partitions": [partition]}]})

            gateway.upstream.on_api(FETCH, large)
            client = await gateway.client()
            client.writer.write(request(FETCH, 13) * 500)
            await until(lambda: answered > 0)
            client.writer.transport.abort()
            await until(lambda: len(gateway.gone) == 1)
            await until(lambda: gateway.upstream.connections[0].ended_by_peer)
            assert answered < 500

    run(main())


def test_a_local_request_does_not_hide_that_its_client_left() -> None:
    async def main() -> None:
        began, cancelled = asyncio.Event(), asyncio.Event()

        async def never(_request: Request) -> bytes:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            raise AssertionError

        async with rig({SHARE_FETCH: never}) as gateway:
            client = await gateway.client()
            client.writer.write(request(SHARE_FETCH) + request(HEARTBEAT) * 20)
            await began.wait()
            (connection_id,) = gateway.server.connections
            client.writer.close()
            await cancelled.wait()
            await until(lambda: gateway.gone == [connection_id])

    run(main())


def test_of_clients_that_leave_together_some_are_closed_in_each_turn() -> None:
    """5,200 that left at once kept the event loop from the others for a quarter of a second."""

    async def main() -> None:
        async with rig() as gateway:
            count = 4 * LEAVERS_PER_TURN
            clients = [await gateway.client() for _ in range(count)]
            await until(lambda: len(gateway.server.connections) == count)
            most, left = 0, count
            for client in clients:
                client.writer.transport.abort()  # now: nothing of the loop runs in between
            while left:
                await asyncio.sleep(0)
                before, left = left, len(gateway.server.connections)
                most = max(most, before - left)
            assert most <= LEAVERS_PER_TURN

    run(main())
