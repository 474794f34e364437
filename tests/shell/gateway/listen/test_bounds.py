"""The bounds of all connections together, on real sockets; the test moves their clock."""

from __future__ import annotations

import asyncio
from typing import Any

from structlog.testing import capture_logs

from gateway.core.wire.apis import ApiKey
from gateway.listen.bounds import Bounds
from gateway.listen.counters import Refused
from gateway.listen.limits import ANSWER_RESTING_MS, ANSWER_STALLED_MS, REQUEST_STALLED_MS
from gateway.listen.server import Request
from tests.rig.loopback import Client, Rig, answers, rig, run, slow_client, until, warnings
from tests.rig.wire_frames import request

HEARTBEAT = int(ApiKey.HEARTBEAT)
SHARE_FETCH = int(ApiKey.SHARE_FETCH)
ASKED = request(SHARE_FETCH)
LARGE = 8 * 1024 * 1024


class Clock:
    def __init__(self, bounds: Bounds) -> None:
        self.now_ms = bounds.now_ms()
        bounds.now_ms = lambda: self.now_ms


def half(size: int) -> bytes:
    """A request of which the last byte is missing."""
    return size.to_bytes(4, "big") + ASKED[4:12] + bytes(size - 9)


async def answer_large(_: Request) -> bytes:
    return bytes(LARGE)


async def send(gateway: Rig, data: bytes) -> Client:
    client = await gateway.client()
    client.writer.write(data)
    return client


async def unread(gateway: Rig) -> Any:
    """A client that does not read its large answer."""
    before = gateway.server.bounds.answers.total
    client = await slow_client(gateway.server.addresses[1])
    await asyncio.get_running_loop().sock_sendall(client, ASKED)
    await until(lambda: gateway.server.bounds.answers.total > before + LARGE // 2)
    return client


def test_the_longest_half_request_gives_way() -> None:
    async def main() -> None:
        async with rig({SHARE_FETCH: answer_large}) as gateway:
            gateway.upstream.on_api(HEARTBEAT, answers({}))
            requests = gateway.server.bounds.requests
            requests.bytes_max = 100_000
            small = await send(gateway, half(20_000))
            long = await send(gateway, half(60_000))
            await until(lambda: requests.total == 79_998)
            with capture_logs() as logs:
                other = await send(gateway, half(30_000))
                await until(lambda: len(gateway.gone) == 1)
            assert warnings(logs) == ["closed at a limit"]
            (line,) = [line for line in logs if line["event"] == "closed at a limit"]
            assert (line["reason"], line["held_bytes"]) == ("requests_held", 59_999)
            await until(lambda: requests.total == 49_998)
            assert gateway.server.counters.refused == {Refused.REQUESTS_HELD: 1}
            assert await other.ask(b"\0") == await small.ask(b"\0")
            assert requests.total == 0
            long.writer.close()

    run(main())


def test_a_request_whose_rest_never_comes_is_given_up() -> None:
    async def main() -> None:
        answering = asyncio.Event()

        async def wait(_: Request) -> bytes:
            await answering.wait()
            return b""

        async with rig({SHARE_FETCH: wait}) as gateway:
            clock = Clock(gateway.server.bounds)
            requests = gateway.server.bounds.requests
            await send(gateway, half(20_000))
            moving = await send(gateway, half(20_000)[:-1])
            polling = await send(gateway, ASKED)
            await until(lambda: requests.total == 2 * 19_999 - 1 + len(ASKED) - 4)
            clock.now_ms += REQUEST_STALLED_MS - 1
            gateway.server.bounds.look()
            moving.writer.write(b"\0")
            await until(lambda: requests.total == 2 * 19_999 + len(ASKED) - 4)
            clock.now_ms += 1
            gateway.server.bounds.look()
            await until(lambda: len(gateway.gone) == 1)
            assert gateway.server.counters.refused == {Refused.REQUEST_STALLED: 1}
            answering.set()
            assert await polling.frame() == await moving.ask(b"\0")

    run(main())


def test_an_answer_that_nobody_reads_is_given_up() -> None:
    async def main() -> None:
        async with rig({SHARE_FETCH: answer_large}) as gateway:
            clock = Clock(gateway.server.bounds)
            answers_held = gateway.server.bounds.answers
            lazy = await unread(gateway)
            slow = await unread(gateway)
            clock.now_ms += ANSWER_STALLED_MS - 1
            before = answers_held.total
            gateway.server.bounds.look()
            loop = asyncio.get_running_loop()
            while answers_held.total == before:
                await loop.sock_recv(slow, 1_000_000)
                gateway.server.bounds.look()
            clock.now_ms += 1
            gateway.server.bounds.look()
            await until(lambda: len(gateway.gone) == 1)
            assert gateway.server.counters.refused == {Refused.ANSWER_STALLED: 1}
            assert 0 < answers_held.total <= LARGE
            slow.close()
            await until(lambda: answers_held.total == 0)
            lazy.close()

    run(main())


def test_the_longest_unread_answer_gives_way() -> None:
    async def main() -> None:
        async with rig({SHARE_FETCH: answer_large}) as gateway:
            clock = Clock(gateway.server.bounds)
            gateway.server.bounds.answers.bytes_max = LARGE
            clients = [await unread(gateway) for _ in range(2)]
            gateway.server.bounds.look()
            assert gateway.server.counters.refused == {}, "they may be on their way"
            clock.now_ms += ANSWER_RESTING_MS
            gateway.server.bounds.look()
            await until(lambda: len(gateway.gone) == 1)
            gateway.server.bounds.look()
            assert gateway.server.counters.refused == {Refused.ANSWERS_HELD: 1}
            for client in clients:
                client.close()

    run(main())


def test_a_long_request_before_authentication_is_refused() -> None:
    async def main() -> None:
        async with rig({SHARE_FETCH: answer_large}, upstream_sasl=True) as gateway:
            with capture_logs() as logs:
                client = await send(gateway, half(100_000))
                assert await client.ended() == b""
            assert warnings(logs) == ["long request before authentication"]
            assert gateway.server.counters.refused == {Refused.BEFORE_AUTHENTICATION: 1}

    run(main())
