"""The server on real sockets: its ports, the brokers behind them, how it stops."""

from __future__ import annotations

import asyncio
import re
import socket
from contextlib import suppress
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.core.cluster.topology import Broker, PartitionInfo, Topic, Topology
from gateway.core.wire.apis import ApiKey
from gateway.listen.counters import Refused
from gateway.listen.limits import UPSTREAM_PATIENCE_S
from gateway.listen.listeners import CannotListen, listening_socket
from tests.rig.fake_broker import ReceivedRequest
from tests.rig.loopback import answers, body_of, rig, run, until, warnings
from tests.rig.patience import patient_s
from tests.rig.wire_frames import request, response

HEARTBEAT = int(ApiKey.HEARTBEAT)
METADATA = int(ApiKey.METADATA)


def test_no_upstream_is_a_clean_close() -> None:
    async def main() -> None:
        async with rig() as gateway:
            with socket.socket() as taken:
                taken.bind(("127.0.0.1", 0))  # bound and not listening: refuses
                nowhere = Broker(1, "127.0.0.1", taken.getsockname()[1])
                gateway.server.on_topology(Topology(brokers={1: nowhere}))
                client = await gateway.client()
                with capture_logs() as logs:
                    client.writer.write(request(HEARTBEAT))
                    assert await client.ended() == b""
                assert warnings(logs) == ["no upstream"]
                await until(lambda: not gateway.server.connections)

    run(main())


def test_a_client_waits_a_moment_for_an_upstream_that_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Closed at once, it would be back at once, and with it all the others."""
    monkeypatch.setattr("gateway.listen.server.UPSTREAM_PATIENCE_S", 60.0)

    async def main() -> None:
        async with rig() as gateway:
            gateway.upstream.on_api(HEARTBEAT, answers({}))
            with socket.socket() as taken:
                taken.bind(("127.0.0.1", 0))  # bound and not listening: refuses
                nowhere = Broker(1, "127.0.0.1", taken.getsockname()[1])
                gateway.server.on_topology(Topology(brokers={1: nowhere}))
                client = await gateway.client()
                client.writer.write(request(HEARTBEAT))
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(UPSTREAM_PATIENCE_S / 2):
                        await client.reader.read(1)
                back = Broker(1, gateway.upstream.host, gateway.upstream.port)
                gateway.server.on_topology(Topology(brokers={1: back}))
                assert await client.frame() == response(HEARTBEAT)

    run(main())


def test_ipv6() -> None:
    async def main() -> None:
        async with rig(host="::1") as gateway:
            gateway.upstream.on_api(HEARTBEAT, answers({}))
            assert gateway.server.addresses[1].host == "::1"
            client = await gateway.client()
            assert await client.ask(request(HEARTBEAT)) == response(HEARTBEAT)
            (connection,) = gateway.server.connections.values()
            assert connection.facts.host == "::1"
            with pytest.raises(CannotListen, match="Address already in use"):
                listening_socket(*gateway.server.addresses[1], "port_base")
        listening_socket("::1", gateway.server.addresses[1].port, "port_base").close()

    run(main())


def test_the_bootstrap_port_leads_to_virtual_brokers() -> None:
    async def main() -> None:
        async with rig(advertised_host="localhost") as gateway:
            brokers = [{"NodeId": 1, "Host": gateway.upstream.host, "Port": gateway.upstream.port}]
            gateway.upstream.on_api(METADATA, answers({"Brokers": brokers}))
            client = await gateway.client(None)
            got = body_of(await client.ask(request(METADATA, 9)), METADATA, 9)
            (broker,) = got["Brokers"]
            assert (broker["Host"], broker["Port"]) == gateway.server.addresses[1]
            assert broker["Host"] == "localhost"
            assert broker["Port"] != gateway.upstream.port

    run(main())


def test_a_broker_that_appears_in_a_response_gets_a_listener_at_once() -> None:
    async def main() -> None:
        async with rig() as gateway:
            new = {"NodeId": 5, "Host": gateway.upstream.host, "Port": gateway.upstream.port}
            gateway.upstream.on_api(METADATA, answers({"Brokers": [new]}))
            gateway.upstream.on_api(HEARTBEAT, answers({}))
            client = await gateway.client(None)
            got = body_of(await client.ask(request(METADATA, 9)), METADATA, 9)
            (broker,) = got["Brokers"]
            assert (broker["Host"], broker["Port"]) == gateway.server.addresses[5]
            second = await gateway.client(5)
            assert await second.ask(request(HEARTBEAT)) == response(HEARTBEAT)

    run(main())


def test_a_broker_whose_port_is_taken_is_left_out() -> None:
    async def main() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            async with rig(port_base=port - 7) as gateway:
                seven = {"NodeId": 7, "Host": gateway.upstream.host, "Port": gateway.upstream.port}
                gateway.upstream.on_api(METADATA, answers({"Brokers": [seven]}))
                client = await gateway.client(None)
                with capture_logs() as logs:
                    for _ in range(3):
                        got = body_of(await client.ask(request(METADATA, 9)), METADATA, 9)
                        assert got["Brokers"] == []
                assert warnings(logs) == ["virtual_broker_not_listening"]

    run(main())


def test_a_client_that_asks_for_what_is_withheld_is_disconnected() -> None:
    async def main() -> None:
        async with rig() as gateway:
            topic = {"Name": "grows", "Partitions": []}
            gateway.upstream.on_api(METADATA, answers({"Topics": [topic]}))
            gateway.server.withhold(lambda: ["others"])
            client = await gateway.client()
            got = body_of(await client.ask(request(METADATA, 9)), METADATA, 9)
            assert [row["Name"] for row in got["Topics"]] == ["grows"]
            gateway.server.withhold(lambda: ["grows"])
            with capture_logs() as logs:
                client.writer.write(request(METADATA, 9))
                assert await client.ended() == b""
            assert warnings(logs) == []

    run(main())


def test_listeners_follow_the_topology() -> None:
    async def main() -> None:
        async with rig() as gateway:
            gateway.upstream.on_api(HEARTBEAT, answers({}))
            first = await gateway.client(1)
            await first.ask(request(HEARTBEAT))
            before = gateway.server.addresses[1]
            two = Broker(2, gateway.upstream.host, gateway.upstream.port)
            gateway.server.on_topology(Topology(brokers={2: two}))
            assert list(gateway.server.addresses) == [2]
            second = await gateway.client(2)
            assert await second.ask(request(HEARTBEAT)) == response(HEARTBEAT)
            with pytest.raises(OSError, match="refused"):
                await asyncio.open_connection(*before)
            assert await first.ask(request(HEARTBEAT)) == response(HEARTBEAT)

    run(main())


def test_a_taken_bootstrap_port_is_one_clear_line() -> None:
    async def main() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            line = (
                rf"^cannot listen on 127\.0\.0\.1:{port} \(listen\.host, listen\.bootstrap_port\):"
                " Address already in use$"
            )
            with pytest.RaisesGroup(pytest.RaisesExc(CannotListen, match=line)):
                async with rig(bootstrap_port=port):
                    pass

    run(main())


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            {"port_base": 65_535},
            "65536 (listen.host, listen.port_base + 1): there is no port beyond",
        ),
        ({"host": "192.0.2.1"}, "192.0.2.1:0 (listen.host, listen.bootstrap_port): Cannot assign"),
        ({"host": "no.invalid"}, "no.invalid:0 (listen.host, listen.bootstrap_port): "),
    ],
)
def test_an_address_that_cannot_be_had_names_its_options(
    settings: dict[str, Any], line: str
) -> None:
    async def main() -> None:
        with pytest.RaisesGroup(pytest.RaisesExc(CannotListen, match=re.escape(line))):
            async with rig(**settings):
                pass

    run(main())


def test_an_answer_that_lags_behind_moves_no_broker() -> None:
    async def main() -> None:
        async with rig() as gateway:
            doubted: list[None] = []
            gateway.server.topology_doubted = lambda: doubted.append(None)
            old = {"NodeId": 1, "Host": "old-host", "Port": 9092}
            gateway.upstream.on_api(METADATA, answers({"Brokers": [old]}))
            client = await gateway.client()
            await client.ask(request(METADATA))
            assert len(doubted) == 1, "the topology is looked up"
            await (await gateway.client()).ask(request(METADATA))
        assert len(gateway.upstream.requests) == 2, "where the topology says that it is"

    run(main())


def test_an_answer_with_new_partitions_has_them_looked_up() -> None:
    """The regular look comes half a minute after the last one."""

    async def main() -> None:
        async with rig() as gateway:
            doubted: list[None] = []
            gateway.server.topology_doubted = lambda: doubted.append(None)
            orders = Topic("orders", bytes(16), {0: PartitionInfo(1, 0)})
            broker = Broker(1, gateway.upstream.host, gateway.upstream.port)
            gateway.server.on_topology(Topology(brokers={1: broker}, topics={"orders": orders}))
            client = await gateway.client()
            for partitions, looks in ((1, 0), (2, 1)):
                rows = [{"PartitionIndex": at, "LeaderId": 1} for at in range(partitions)]
                topic = {"ErrorCode": 0, "Name": "orders", "Partitions": rows}
                gateway.upstream.on_api(METADATA, answers({"Topics": [topic]}))
                await client.ask(request(METADATA, 9))
                assert len(doubted) == looks

    run(main())


def test_stop_waits_for_answers_and_closes_what_is_idle() -> None:
    async def main() -> None:
        asked_for, go_on = asyncio.Event(), asyncio.Event()
        async with rig(drain_s=10.0) as gateway:

            async def wait(asked: ReceivedRequest) -> bytes:
                asked_for.set()
                await go_on.wait()
                return asked.response({})

            gateway.upstream.on_api(HEARTBEAT, wait)
            gateway.upstream.on_api(METADATA, answers({}))
            idle, busy = await gateway.client(), await gateway.client()
            await idle.ask(request(METADATA))
            busy.writer.write(request(HEARTBEAT))
            await asked_for.wait()

            async def see_it_stop() -> None:
                assert await idle.ended() == b""
                go_on.set()
                assert await busy.ended() == response(HEARTBEAT)

            told: list[int] = []
            gateway.server.on_drain(lambda: told.append(len(gateway.gone)))
            seen = asyncio.ensure_future(see_it_stop())
        await seen
        assert told == [0], "the node says that it stops before it hangs up on anybody"

    run(main())


def test_a_client_that_always_has_requests_under_way_is_answered_and_let_go() -> None:
    """Nothing that it sends after the stop begins: it was not sent, and may be sent elsewhere."""

    async def main() -> None:
        begun: list[int] = []
        answered = 0

        async def slow(asked: ReceivedRequest) -> bytes:
            begun.append(asked.header.correlation_id)
            await asyncio.sleep(0.01)
            return asked.response({})

        with capture_logs() as logs:
            async with rig(drain_s=patient_s(30)) as gateway:
                gateway.upstream.on_api(HEARTBEAT, slow)
                client = await gateway.client()
                client.writer.write(request(HEARTBEAT) * 5)

                async def produce() -> None:
                    nonlocal answered
                    with suppress(asyncio.IncompleteReadError, ConnectionError):
                        while True:
                            await client.frame()
                            answered += 1
                            client.writer.write(request(HEARTBEAT))

                producing = asyncio.ensure_future(produce())
                await until(lambda: answered > 10)
            await producing
        assert answered == len(begun)
        assert "stopped_with_unanswered_requests" not in warnings(logs)

    run(main())


def test_stop_does_not_wait_for_ever() -> None:
    async def main() -> None:
        asked_for = asyncio.Event()
        with capture_logs() as logs:
            async with rig(drain_s=0.05) as gateway:

                async def never(_asked: ReceivedRequest) -> None:
                    asked_for.set()
                    await asyncio.Event().wait()

                gateway.upstream.on_api(HEARTBEAT, never)
                client = await gateway.client()
                client.writer.write(request(HEARTBEAT))
                await asked_for.wait()
        assert "stopped_with_unanswered_requests" in warnings(logs)
        assert len(gateway.gone) == 1

    run(main())


def test_a_client_too_many_is_refused_and_the_others_go_on() -> None:
    async def main() -> None:
        async with rig() as gateway:
            gateway.upstream.on_api(HEARTBEAT, answers({}))
            gateway.server.admission.clients_max = 3
            with capture_logs() as logs:
                clients = [await gateway.client() for _ in range(3)]
                await until(lambda: len(gateway.server.connections) == 3)
                for _ in range(5):
                    refused = await gateway.client()
                    with suppress(ConnectionError):
                        assert await refused.ended() == b""
                assert gateway.server.admission.refused == 5
                assert gateway.server.counters.refused == {Refused.TOO_MANY_CLIENTS: 5}
                for client in clients:
                    assert await client.ask(request(HEARTBEAT)) == response(HEARTBEAT)
                clients[0].writer.close()
                await until(lambda: gateway.server.admission.refused == 0)
                again = await gateway.client()
                assert await again.ask(request(HEARTBEAT)) == response(HEARTBEAT)
            told = [line["event"] for line in logs if line["event"].startswith("clients_")]
            assert told == ["clients_refused", "clients_admitted_again"]

    run(main())
