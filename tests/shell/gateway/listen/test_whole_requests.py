"""Produce requests that are read whole, while a topic gets other partitions, on real sockets."""

from __future__ import annotations

from gateway.core.wire.apis import ApiKey
from gateway.listen.counters import Refused
from gateway.listen.limits import WHOLE_READING_MS
from tests.rig.loopback import Rig, answers, rig, run, until
from tests.rig.wire_frames import request, response

PRODUCE = int(ApiKey.PRODUCE)
BOUND = 1_000_000
PRODUCERS = 10
RECORD = {"Index": 0, "Records": bytes(range(256)) * 1_600}  # 410 KB
SENT = request(
    PRODUCE,
    message={"Acks": -1, "TopicData": [{"TopicId": b"t" * 16, "PartitionData": [RECORD]}]},
)
HALF = len(SENT) // 2


def screen_all(gateway: Rig) -> None:
    gateway.server.looks.screen.apis = frozenset({PRODUCE})
    gateway.server.bounds.whole.bytes_max = BOUND
    gateway.server.bounds.requests.bytes_max = BOUND
    gateway.upstream.on_api(PRODUCE, answers({}))


def waiting(gateway: Rig) -> int:
    return sum(each.sockets.waits for each in gateway.server.connections.values())


def test_producers_beyond_the_bound_wait_and_nobody_is_cut_off() -> None:
    async def main() -> None:
        async with rig() as gateway:
            screen_all(gateway)
            producers = [await gateway.client() for _ in range(PRODUCERS)]
            for producer in producers:
                producer.writer.write(SENT[:HALF])
            await until(lambda: waiting(gateway) == PRODUCERS - 2)
            assert gateway.upstream.requests == []
            assert gateway.server.bounds.unsent.total > 0, "what those who wait have sent counts"
            for producer in producers[1:]:
                producer.writer.write(SENT[HALF:] + SENT)
            for producer in producers[1:]:
                assert await producer.frame() == await producer.frame() == response(PRODUCE)
            assert await producers[0].ask(SENT[HALF:]) == response(PRODUCE)
            frames = [each.frame for each in gateway.upstream.requests]
            assert frames == [SENT[4:]] * (2 * PRODUCERS - 1)
            assert gateway.server.counters.refused == {}
            assert gateway.server.bounds.whole.total == gateway.server.bounds.unsent.total == 0

    run(main())


def test_one_that_stands_still_gives_way_to_those_that_wait() -> None:
    async def main() -> None:
        async with rig() as gateway:
            screen_all(gateway)
            bounds = gateway.server.bounds
            now_ms = bounds.now_ms()
            bounds.now_ms = lambda: now_ms
            for _ in range(2):
                (await gateway.client()).writer.write(SENT[:HALF])
            await until(lambda: bounds.whole.total == 2 * (len(SENT) - 4))
            other = await gateway.client()
            other.writer.write(SENT)
            await until(lambda: waiting(gateway) == 1)
            now_ms += WHOLE_READING_MS
            bounds.look()
            assert await other.frame() == response(PRODUCE)
            assert gateway.server.counters.refused == {Refused.REQUEST_STALLED: 2}
            await until(lambda: len(gateway.server.connections) == 1)

    run(main())


def test_one_that_comes_to_its_end_after_a_renewal_gives_its_turn_back() -> None:
    """What came meanwhile waits in the connection, and goes on without another byte of its
    client.
    """

    async def main() -> None:
        async with rig() as gateway:
            screen_all(gateway)
            producer = await gateway.client()
            producer.writer.write(SENT[:HALF])
            await until(lambda: gateway.server.bounds.whole.total > 0)
            (connection,) = gateway.server.connections.values()
            came = connection.counters.bytes_from_clients
            async with connection.alone():
                producer.writer.write(SENT[HALF:])
                await until(lambda: connection.counters.bytes_from_clients > came)
            assert await producer.frame() == response(PRODUCE)
            assert gateway.server.bounds.whole.total == 0

    run(main())
