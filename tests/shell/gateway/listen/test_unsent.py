"""One bound for what a node has read and upstream has not taken, on real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.core.wire.apis import ApiKey
from gateway.listen.limits import READ_BYTES_MAX, SMALL_READ_BYTES
from keyway.tls.certificates import TlsFiles
from tests.rig.certificates import Authority
from tests.rig.fake_broker import ReceivedRequest
from tests.rig.loopback import Client, Rig, answers, rig, run, until
from tests.rig.wire_frames import request, response

HEARTBEAT = int(ApiKey.HEARTBEAT)
METADATA = int(ApiKey.METADATA)
PRODUCE = int(ApiKey.PRODUCE)
PRODUCERS = 12
BOUND = 300_000
TLS_RECORD_BYTES = 16 * 1024 + 256  # is decrypted once all of it is there


@pytest.mark.parametrize("secure", [False, True])
def test_producers_of_a_broker_that_pauses_hold_little_in_sum(
    tmp_path: Path, *, secure: bool
) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("gateway")
    files = TlsFiles(cert_file=own.cert_file, key_file=own.key_file) if secure else None
    record = {"Index": 0, "Records": bytes(range(256)) * 40_000}  # 10 MB
    topics = [{"TopicId": b"t" * 16, "PartitionData": [record]}]
    sent = request(PRODUCE, message={"Acks": -1, "TopicData": topics})

    async def connected(gateway: Rig) -> Client:
        port = gateway.server.addresses[1].port
        trusting = authority.trusting() if secure else None
        name = "localhost" if secure else None
        client = Client(
            *await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname=name)
        )
        gateway.clients.append(client)
        return client

    async def main() -> None:
        go_on = asyncio.Event()
        async with rig(tls=files) as gateway:
            unsent = gateway.server.bounds.unsent
            unsent.bytes_max = BOUND

            async def wait(asked: ReceivedRequest) -> bytes:
                await go_on.wait()
                return asked.response({})

            gateway.upstream.on_api(HEARTBEAT, wait)
            gateway.upstream.on_api(PRODUCE, answers({}))
            gateway.upstream.on_api(METADATA, answers({}))
            producers = [await connected(gateway) for _ in range(PRODUCERS)]
            for producer in producers:
                producer.writer.write(request(HEARTBEAT) + sent)
            await until(
                lambda: (
                    len(gateway.server.connections) == PRODUCERS
                    and not any(each.sockets.client_read for each in all_of(gateway))
                )
            )
            small = SMALL_READ_BYTES + (TLS_RECORD_BYTES if secure else 0)
            assert BOUND < unsent.total <= BOUND + READ_BYTES_MAX + PRODUCERS * small
            other = await connected(gateway)
            long = request(METADATA, message={"Topics": [{"Name": "n" * 9_000}]})
            assert await other.ask(long) == response(METADATA)  # in several small reads
            go_on.set()
            for producer in producers:
                assert await producer.frame() == response(HEARTBEAT)
                assert await producer.frame() == response(PRODUCE)
            produced = [each.frame for each in gateway.upstream.requests if len(each.frame) > 9_999]
            assert produced == [sent[4:]] * PRODUCERS
            await until(lambda: unsent.total == 0)
            assert not unsent.full

    run(main())


def all_of(gateway: Rig) -> list[Any]:
    return list(gateway.server.connections.values())
