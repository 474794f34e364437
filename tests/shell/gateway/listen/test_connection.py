"""One connection on real sockets: order, back-pressure, bad input, how it ends."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import encode_response
from gateway.listen.counters import Refused
from gateway.listen.limits import HELD_BYTES_MAX
from gateway.listen.server import Request
from gateway.upstream.errors import UpstreamError
from keyway.repeated_lines import REPEATED_LINES_MS, RepeatedLines
from tests.rig.fake_broker import ReceivedRequest
from tests.rig.loopback import (
    answers,
    body_of,
    read_exactly,
    rig,
    run,
    slow_client,
    until,
    warnings,
)
from tests.rig.wire_frames import request, response

HEARTBEAT = int(ApiKey.HEARTBEAT)
FETCH = int(ApiKey.FETCH)
METADATA = int(ApiKey.METADATA)
PRODUCE = int(ApiKey.PRODUCE)
SHARE_FETCH = int(ApiKey.SHARE_FETCH)


def test_pipelined_requests_are_answered_in_order() -> None:
    async def main() -> None:
        async with rig() as gateway:
            gateway.upstream.on_api(HEARTBEAT, answers({"ThrottleTimeMs": 3}))
            client = await gateway.client()
            asked = [request(HEARTBEAT, correlation_id=n) for n in range(50)]
            client.writer.write(b"".join(asked))
            for n in range(50):
                expected = response(HEARTBEAT, message={"ThrottleTimeMs": 3}, correlation_id=n)
                assert await client.frame() == expected
            assert [each.frame for each in gateway.upstream.requests] == [
                each[4:] for each in asked
            ]
            assert gateway.server.counters.apis.requests == {HEARTBEAT: 50}
            assert gateway.server.counters.bytes_from_clients == sum(len(each) for each in asked)

    run(main())


def test_produce_without_acks_gets_no_answer_and_holds_nothing_up() -> None:
    async def main() -> None:
        async with rig() as gateway:

            async def swallow(_asked: ReceivedRequest) -> None:
                return None

            gateway.upstream.on_api(PRODUCE, swallow)
            gateway.upstream.on_api(HEARTBEAT, answers({}))
            client = await gateway.client()
            client.writer.write(request(PRODUCE, message={"Acks": 0}) * 3)
            got = await client.ask(request(HEARTBEAT, correlation_id=4))
            assert got == response(HEARTBEAT, correlation_id=4)
            assert len(gateway.upstream.requests) == 4

    run(main())


def test_upstream_is_not_bothered_before_a_valid_request() -> None:
    async def main() -> None:
        async with rig() as gateway:
            client = await gateway.client()
            await until(lambda: len(gateway.server.connections) == 1)
            client.writer.write(request(HEARTBEAT)[:11])
            await client.writer.drain()
            client.writer.close()
            await until(lambda: not gateway.server.connections)
            assert gateway.upstream.connections == []

    run(main())


@pytest.mark.parametrize(
    ("data", "event", "reason"),
    [
        (
            b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
            "TLS bytes on a plain port",
            Refused.NOT_KAFKA,
        ),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP on the Kafka port", Refused.NOT_KAFKA),
        (b"\x7f\xff\xff\xff" + bytes(20), "frame size out of range", Refused.MALFORMED_REQUEST),
        (b"\xff\xff\xff\xff" + bytes(20), "frame size out of range", Refused.MALFORMED_REQUEST),
        (
            b"\0\0\0\x0c\x7f\x77\0\1\0\0\0\1\xff\xff\0\0",
            "API key that is not served",
            Refused.NOT_SERVED,
        ),
        (
            b"\0\0\0\x0c\0\3\0\x63\0\0\0\1\xff\xff\0\0",
            "API version that is not served",
            Refused.NOT_SERVED,
        ),
    ],
)
def test_bad_input_is_one_log_line_and_a_clean_close(
    data: bytes, event: str, reason: Refused
) -> None:
    async def main() -> None:
        async with rig() as gateway:
            gateway.upstream.on_api(HEARTBEAT, answers({}))
            neighbour = await gateway.client()
            await neighbour.ask(request(HEARTBEAT))
            with capture_logs() as logs:
                client = await gateway.client()
                client.writer.write(data)
                assert await client.ended() == b""
            assert warnings(logs) == [event]
            (line,) = [line for line in logs if line["event"] == event]
            assert line["client"].startswith("127.0.0.1:")
            assert line["broker"] == 1
            assert gateway.server.counters.refused == {reason: 1}
            again = await neighbour.ask(request(HEARTBEAT, correlation_id=2))
            assert again == response(HEARTBEAT, correlation_id=2)
            assert len(gateway.upstream.connections) == 1

    run(main())


def test_the_same_fault_again_and_again_is_one_line_with_a_count() -> None:
    """A stranger wrote a line to the log with each connection."""
    strangers = (
        b"\x7f\xff\xff\xff",  # frame size
        b"\0\0\0\x0c\x7f\x77\0\1\0\0\0\1\xff\xff\0\0",  # API key
        b"\0\0\0\x0c\0\3\0\x63\0\0\0\1\xff\xff\0\0",  # API version
        struct.pack(">ihhih", 10, SHARE_FETCH, 1, 1, 99),  # a handler cannot decode it
    )

    async def unused(_request: Request) -> bytes:
        raise AssertionError

    async def main() -> None:
        async with rig({SHARE_FETCH: unused}) as gateway:
            now_ms = 0
            gateway.server.lines = RepeatedLines(lambda: now_ms)

            async def strange() -> Counter[tuple[str, int]]:
                with capture_logs() as logs:
                    for data in strangers * 10:
                        client = await gateway.client()
                        client.writer.write(data)
                        assert await client.ended() == b""
                lines = [line for line in logs if line["log_level"] == "warning"]
                return Counter((line["event"], line["left_out"]) for line in lines)

            first = await strange()
            assert len(first) == len(strangers)
            assert first.total() == len(strangers)
            now_ms = REPEATED_LINES_MS
            assert await strange() == {(event, 9): 1 for event, _ in first}

    run(main())


def test_a_connection_that_says_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with rig() as gateway:
            gateway.upstream.on_api(HEARTBEAT, answers({}))
            busy = await gateway.client()
            await busy.ask(request(HEARTBEAT))
            monkeypatch.setattr("gateway.listen.connection.FIRST_REQUEST_S", 0.05)
            with capture_logs() as logs:
                silent = await gateway.client()
                silent.writer.write(b"\0\0")
                assert await silent.ended() == b""
            assert warnings(logs) == ["no request came"]
            assert await busy.ask(request(HEARTBEAT)) == response(HEARTBEAT)

    run(main())


def test_sockets_send_at_once() -> None:
    async def main() -> None:
        async with rig() as gateway:
            gateway.upstream.on_api(HEARTBEAT, answers({}))
            client = await gateway.client()
            await client.ask(request(HEARTBEAT))
            (connection,) = gateway.server.connections.values()
            inner: Any = connection
            for transport in (inner.sockets.client, inner.sockets.upstream):
                plain = transport.get_extra_info("socket")
                assert plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    run(main())


def test_a_truncated_request_is_one_log_line() -> None:
    async def main() -> None:
        async with rig() as gateway:
            client = await gateway.client()
            with capture_logs() as logs:
                client.writer.write(request(HEARTBEAT)[:-1])
                await until(lambda: len(gateway.upstream.connections) == 1)
                client.writer.close()
                await until(lambda: not gateway.server.connections)
            assert warnings(logs) == ["closed in the middle of a frame"]

    run(main())


def test_a_slow_reader_holds_little_and_loses_nothing() -> None:
    """Upstream offers 40 MB, the client reads none of it at first."""
    records = bytes(range(256)) * 40_000
    sent = response(FETCH, message={"Responses": [{"Partitions": [{"Records": records}]}]})

    async def main() -> None:
        async with rig() as gateway:

            async def fetch(asked: ReceivedRequest) -> bytes:
                return sent[:4] + asked.header.correlation_id.to_bytes(4, "big") + sent[8:]

            gateway.upstream.on_api(FETCH, fetch)
            client = await slow_client(gateway.server.addresses[1])
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(
                client, b"".join(request(FETCH, correlation_id=n) for n in range(4))
            )
            connection = await stalled(gateway)
            assert connection.sockets.client.get_write_buffer_size() <= HELD_BYTES_MAX
            assert connection._state.held_bytes == 0
            assert not connection.sockets.upstream.is_reading()
            got = await read_exactly(client, 4 * len(sent))
            for n in range(4):
                frame = got[n * len(sent) : (n + 1) * len(sent)]
                assert frame == sent[:4] + n.to_bytes(4, "big") + sent[8:]
            client.close()

    run(main())


def test_a_slow_broker_holds_little_and_loses_nothing() -> None:
    """The client offers 40 MB, the broker reads nothing at first."""
    record = {"Index": 0, "Records": bytes(range(256)) * 40_000}
    topics = [{"TopicId": b"t" * 16, "PartitionData": [record]}]
    sent = request(PRODUCE, message={"Acks": -1, "TopicData": topics})

    async def main() -> None:
        go_on = asyncio.Event()
        async with rig() as gateway:

            async def wait(asked: ReceivedRequest) -> bytes:
                await go_on.wait()
                return asked.response({})

            gateway.upstream.on_api(HEARTBEAT, wait)
            gateway.upstream.on_api(PRODUCE, answers({}))
            client = await gateway.client()
            client.writer.write(request(HEARTBEAT) + sent * 4)
            await until(lambda: bool(gateway.server.connections))
            (connection,) = gateway.server.connections.values()
            inner: Any = connection
            await until(
                lambda: inner.sockets.upstream is not None and not inner.sockets.client.is_reading()
            )
            held = inner.sockets.upstream.get_write_buffer_size() + inner._state.held_bytes
            assert 0 < held <= HELD_BYTES_MAX
            go_on.set()
            for _ in range(5):
                await client.frame()
            assert [each.frame for each in gateway.upstream.requests[1:]] == [sent[4:]] * 4

    run(main())


def test_who_asks_and_does_not_read_is_answered_no_further() -> None:
    """100 requests that the gateway answers with 8 MB each, read by nobody at first."""
    message = {"ErrorMessage": "no", "NodeEndpoints": [], "Responses": []}
    answered = encode_response(SHARE_FETCH, 2, message)
    large = answered + bytes(8 * 1024 * 1024)  # a handler's answer is not looked at

    async def main() -> None:
        asked = 0

        async def share_fetch(_: Request) -> bytes:
            nonlocal asked
            asked += 1
            return large

        async with rig({SHARE_FETCH: share_fetch}) as gateway:
            client = await slow_client(gateway.server.addresses[1])
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(client, request(SHARE_FETCH) * 100)
            await until(lambda: asked > 0)
            (connection,) = gateway.server.connections.values()
            inner: Any = connection
            await until(lambda: not inner.sockets.client.is_reading())
            assert asked == 1
            assert inner.sockets.client.get_write_buffer_size() <= len(large)
            await read_exactly(client, 10 * len(large))
            assert 10 <= asked <= 12
            client.close()
            await until(lambda: len(gateway.gone) == 1)

    run(main())


def test_refusals_that_nobody_reads_do_not_pile_up() -> None:
    """A version of ApiVersions that nobody knows is refused without a handler."""
    head = struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 1, -1)
    refused = (struct.pack(">i", len(head)) + head) * 100_000

    async def main() -> None:
        async with rig() as gateway:
            client = await slow_client(gateway.server.addresses[1])
            loop = asyncio.get_running_loop()
            sending = asyncio.ensure_future(loop.sock_sendall(client, refused * 10))
            await until(lambda: bool(gateway.server.connections))
            (connection,) = gateway.server.connections.values()
            inner: Any = connection
            await until(lambda: not inner.sockets.client.is_reading())
            assert inner.sockets.client.get_write_buffer_size() <= 2 * HELD_BYTES_MAX
            assert not sending.done()
            sending.cancel()
            client.close()

    run(main())


def test_a_handler_answers_and_may_ask_upstream() -> None:
    async def main() -> None:
        async def share_fetch(asked: Request) -> bytes:
            got = await asked.connection.ask_upstream(METADATA, 12, {"Topics": None})
            message = {"ErrorMessage": got["ClusterId"], "ErrorCode": asked.connection.broker_id}
            return encode_response(SHARE_FETCH, asked.header.api_version, message)

        async with rig({SHARE_FETCH: share_fetch}) as gateway:
            gateway.upstream.on_api(METADATA, answers({"ClusterId": "abc"}))
            gateway.upstream.on_api(HEARTBEAT, answers({}))
            client = await gateway.client()
            asked = request(SHARE_FETCH, correlation_id=5, client_id="me")
            got = await client.ask(request(HEARTBEAT) + asked + request(HEARTBEAT))
            assert got == response(HEARTBEAT)
            answered = await client.frame()
            share = body_of(answered, SHARE_FETCH, 2)
            assert (share["ErrorMessage"], share["ErrorCode"]) == ("abc", 1)
            assert await client.frame() == response(HEARTBEAT)
            assert gateway.server.counters.bytes_to_clients == 2 * len(got) + len(answered)
            keys = [each.header.api_key for each in gateway.upstream.requests]
            assert keys == [HEARTBEAT, METADATA, HEARTBEAT]
            assert gateway.upstream.requests[1].header.client_id == "me"
            assert len(gateway.upstream.connections) == 1

    run(main())


def test_asking_upstream_fails_when_upstream_closes() -> None:
    async def main() -> None:
        failures: list[UpstreamError] = []

        async def share_fetch(asked: Request) -> bytes:
            try:
                await asked.connection.ask_upstream(METADATA, 12, {})
            except UpstreamError as error:
                failures.append(error)
                raise
            raise AssertionError

        async def close(asked: ReceivedRequest) -> None:
            asked.connection.writer.close()

        async with rig({SHARE_FETCH: share_fetch}) as gateway:
            gateway.upstream.on_api(METADATA, close)
            client = await gateway.client()
            client.writer.write(request(SHARE_FETCH))
            assert await client.ended() == b""
            await until(lambda: len(gateway.gone) == 1)

    run(main())


def test_a_handler_that_fails_ends_its_connection_only() -> None:
    async def main() -> None:
        async def broken(_request: Request) -> bytes:
            raise ZeroDivisionError

        async with rig({SHARE_FETCH: broken}) as gateway:
            gateway.upstream.on_api(HEARTBEAT, answers({}))
            neighbour = await gateway.client()
            await neighbour.ask(request(HEARTBEAT))
            with capture_logs() as logs:
                client = await gateway.client()
                client.writer.write(request(SHARE_FETCH))
                assert await client.ended() == b""
            assert "handler_failed" in warnings(logs)
            assert await neighbour.ask(request(HEARTBEAT)) == response(HEARTBEAT)

    run(main())


def test_a_request_that_a_handler_cannot_decode_ends_its_connection() -> None:
    async def main() -> None:
        async def unused(_request: Request) -> bytes:
            raise AssertionError

        async with rig({SHARE_FETCH: unused}) as gateway:
            client = await gateway.client()
            with capture_logs() as logs:
                frame = struct.pack(">hhih", SHARE_FETCH, 1, 1, 99)  # a client id that is cut off
                client.writer.write(len(frame).to_bytes(4, "big") + frame)
                assert await client.ended() == b""
            assert warnings(logs) == ["malformed request"]

    run(main())


def test_what_upstream_sent_before_it_closed_reaches_the_client() -> None:
    async def main() -> None:
        async with rig() as gateway:

            async def answer_and_close(asked: ReceivedRequest) -> None:
                asked.connection.writer.write(asked.response({}))
                asked.connection.writer.close()

            gateway.upstream.on_api(HEARTBEAT, answer_and_close)
            client = await gateway.client()
            client.writer.write(request(HEARTBEAT))
            assert await client.ended() == response(HEARTBEAT)

    run(main())


def test_a_response_that_matches_no_request_ends_the_connection() -> None:
    async def main() -> None:
        async with rig() as gateway:

            async def out_of_step(asked: ReceivedRequest) -> bytes:
                return response(HEARTBEAT, correlation_id=asked.header.correlation_id + 1)

            gateway.upstream.on_api(HEARTBEAT, out_of_step)
            client = await gateway.client()
            with capture_logs() as logs:
                client.writer.write(request(HEARTBEAT))
                assert await client.ended() == b""
            assert warnings(logs) == ["response that matches no request"]

    run(main())


def test_an_unreadable_response_with_addresses_never_reaches_the_client() -> None:
    async def main() -> None:
        async with rig() as gateway:

            async def unreadable(asked: ReceivedRequest) -> bytes:
                frame = asked.header.correlation_id.to_bytes(4, "big") + b"\0\0\0\0\0\xffupstream"
                return len(frame).to_bytes(4, "big") + frame

            gateway.upstream.on_api(METADATA, unreadable)
            client = await gateway.client()
            with capture_logs() as logs:
                client.writer.write(request(METADATA))
                assert await client.ended() == b""
            assert warnings(logs) == ["unreadable response"]

    run(main())


async def stalled(gateway: Any) -> Any:
    """The one connection, once it has stopped to read upstream."""
    await until(lambda: bool(gateway.server.connections))
    (connection,) = gateway.server.connections.values()
    await until(
        lambda: (
            connection.sockets.upstream is not None and not connection.sockets.upstream.is_reading()
        )
    )
    return connection
