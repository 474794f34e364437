"""Connections to brokers that are old, slow, broken or no brokers at all."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from gateway.core.cluster.topology import Topology
from gateway.core.limits import LONG_STEP_BYTES
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.long_bytes import view_of
from gateway.core.wire.schema import Message
from gateway.upstream.cluster import Upstream
from gateway.upstream.connection import BrokerConnection
from gateway.upstream.errors import Refused, TimedOut, Unreachable, UpstreamError
from gateway.upstream.settings import Address, SaslSettings, UpstreamSettings
from tests.rig.fake_broker import FakeBroker, ReceivedRequest, all_versions, speaking
from tests.rig.patience import patient_s

FIND = ApiKey.FIND_COORDINATOR


def settings(port: int, **changes: Any) -> UpstreamSettings:
    quick = {"connect_timeout_ms": 20_000, "request_timeout_ms": 20_000, "backoff_base_ms": 10}
    return UpstreamSettings(f"127.0.0.1:{port}", **(quick | changes))


def connection(broker: FakeBroker) -> BrokerConnection:
    return BrokerConnection(Address("127.0.0.1", broker.port), settings(broker.port))


async def echo(request: ReceivedRequest) -> bytes:
    """FindCoordinator: says the group's name back as the host."""
    groups = request.body["CoordinatorKeys"] or [request.body["Key"]]
    found = [{"Key": group, "Host": group, "NodeId": 1} for group in groups]
    return request.response({"Coordinators": found, "Host": groups[0], "NodeId": 1})


async def silent(_request: ReceivedRequest) -> None:
    pass


def fetched(records: bytes) -> Message:
    row = {"PartitionIndex": 0, "ErrorCode": 0, "HighWatermark": 1, "Records": records}
    return {"TopicId": bytes(16), "Partitions": [row]}


def asking(group: str) -> Message:
    return {"Key": group, "CoordinatorKeys": [group]}


@pytest.mark.parametrize(
    ("theirs", "used"), [((0, 6), 6), ((0, 99), 6), ((1, 3), 3), ((0, 0), 0), ((4, 4), 4)]
)
def test_the_highest_common_version_is_used(theirs: tuple[int, int], used: int) -> None:
    async def work() -> None:
        async with speaking({FIND: echo}, all_versions() | {FIND: theirs}).running() as broker:
            line = connection(broker)
            answer = await line.call(FIND, asking("g"), timeout_ms=20_000)
            assert broker.versions_asked(FIND) == [used]
            host = answer["Coordinators"][0]["Host"] if used >= 4 else answer["Host"]
            assert host == "g"
            if theirs[0] <= 3 <= theirs[1]:
                await line.call(FIND, asking("g"), version=3, timeout_ms=20_000)
                assert broker.versions_asked(FIND) == [used, 3]
            line.close()

    asyncio.run(work())


@pytest.mark.parametrize("theirs", [None, (7, 9)])
def test_no_common_version_is_refused_and_nothing_sent(theirs: tuple[int, int] | None) -> None:
    async def work() -> None:
        versions = all_versions()
        del versions[FIND]
        if theirs is not None:
            versions[FIND] = theirs
        async with speaking({FIND: echo}, versions).running() as broker:
            line = connection(broker)
            with pytest.raises(Refused) as refused:
                await line.call(FIND, asking("g"), timeout_ms=20_000)
            assert refused.value.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert [each.header.api_key for each in broker.requests] == [ApiKey.API_VERSIONS]
            line.close()

    asyncio.run(work())


def test_a_broker_that_knows_only_old_api_versions() -> None:
    async def work() -> None:
        async with speaking({FIND: echo}, api_versions_max=0).running() as broker:
            line = connection(broker)
            await line.call(FIND, asking("g"), timeout_ms=20_000)
            assert broker.versions_asked(ApiKey.API_VERSIONS) == [3, 0]
            line.close()

    asyncio.run(work())


def test_requests_are_pipelined_and_connect_once() -> None:
    async def work() -> None:
        held: list[ReceivedRequest] = []

        async def hold(request: ReceivedRequest) -> bytes | None:
            held.append(request)
            if len(held) < 50:  # nobody gets an answer before all have asked
                return None
            return b"".join([await echo(each) for each in held])

        async with speaking({FIND: hold}).running() as broker:
            line = connection(broker)
            names = [f"g{i}" for i in range(50)]
            answers = await asyncio.gather(
                *(line.call(FIND, asking(name), timeout_ms=20_000) for name in names)
            )
            assert [answer["Coordinators"][0]["Host"] for answer in answers] == names
            assert len(broker.connections) == 1
            line.close()

    asyncio.run(work())


@pytest.mark.parametrize("size", [LONG_STEP_BYTES - 100, LONG_STEP_BYTES, LONG_STEP_BYTES + 1_000])
def test_a_long_answer_comes_whole_and_the_next_behind_it(size: int) -> None:
    async def work() -> None:
        held: list[ReceivedRequest] = []

        async def hold(request: ReceivedRequest) -> bytes | None:
            held.append(request)
            if len(held) < 3:
                return None
            first, *others = held
            long = first.response({"Responses": [fetched(bytes(size) + b"end")]})
            return long + b"".join([await echo(each) for each in others])

        async with speaking({FIND: hold, ApiKey.FETCH: hold}).running() as broker:
            line = connection(broker)
            long, *others = await asyncio.gather(
                line.call(ApiKey.FETCH, {}, timeout_ms=20_000),
                *(line.call(FIND, asking(name), timeout_ms=20_000) for name in ("a", "b")),
            )
            records = long["Responses"][0]["Partitions"][0]["Records"]
            assert view_of(records) == bytes(size) + b"end"
            assert [answer["Coordinators"][0]["Host"] for answer in others] == ["a", "b"]
            line.close()

    asyncio.run(work())


def test_a_caller_that_gives_up_does_not_shift_the_answers_of_others() -> None:
    async def work() -> None:
        asked, go = asyncio.Event(), asyncio.Event()

        async def late(request: ReceivedRequest) -> bytes:
            asked.set()
            await go.wait()
            return await echo(request)

        async with speaking({FIND: late}).running() as broker, asyncio.TaskGroup() as t:
            line = connection(broker)
            first = t.create_task(line.call(FIND, asking("first"), timeout_ms=20_000))
            second = t.create_task(line.call(FIND, asking("second"), timeout_ms=20_000))
            await asked.wait()
            first.cancel()
            go.set()
            assert (await second)["Coordinators"][0]["Host"] == "second"
            line.close()

    asyncio.run(work())


def test_silence_is_a_time_out_and_the_connection_is_not_used_again() -> None:
    async def work() -> None:
        async with speaking({FIND: silent}).running() as broker:
            line = connection(broker)
            patient = line.call(FIND, asking("slow"), timeout_ms=20_000)
            hasty = line.call(FIND, asking("g"), timeout_ms=500)
            outcomes = await asyncio.gather(patient, hasty, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [Unreachable, TimedOut]
            broker.on_api(FIND, echo)
            await line.call(FIND, asking("g"), timeout_ms=20_000)
            assert len(broker.connections) == 2
            line.close()

    asyncio.run(work())


def with_sessions(lifetime_ms: int) -> FakeBroker:
    """It takes any password, and wants it again after this time on each connection."""

    async def handshake(request: ReceivedRequest) -> bytes:
        return request.response({"Mechanisms": ["PLAIN"]})

    async def authenticate(request: ReceivedRequest) -> bytes:
        return request.response({"SessionLifetimeMs": lifetime_ms})

    return speaking(
        {FIND: echo, ApiKey.SASL_HANDSHAKE: handshake, ApiKey.SASL_AUTHENTICATE: authenticate}
    )


def test_silence_on_an_expired_connection_ends_that_one_and_not_its_successor() -> None:
    """Callers wait on both for a while. Those of the second failed, and the stuck one stayed."""

    async def work() -> None:
        asked: dict[str, ReceivedRequest] = {}
        stuck_asked, timed_out = asyncio.Event(), asyncio.Event()

        async def answer(request: ReceivedRequest) -> bytes | None:
            (group,) = request.body["CoordinatorKeys"]
            asked[group] = request
            if group == "stuck":
                stuck_asked.set()
                return None
            await timed_out.wait()
            return await echo(request)

        async def time_out(line: BrokerConnection) -> None:
            with pytest.raises(TimedOut):
                await line.call(FIND, asking("stuck"), timeout_ms=1_000)
            timed_out.set()

        sasl, lifetime_ms = SaslSettings("PLAIN", "ada", "s3cr3t"), 100
        async with with_sessions(lifetime_ms).running() as broker, asyncio.TaskGroup() as t:
            address = Address("127.0.0.1", broker.port)
            line = BrokerConnection(address, settings(broker.port, sasl=sasl))
            await line.call(FIND, asking("first"), timeout_ms=20_000)
            broker.on_api(FIND, answer)
            t.create_task(time_out(line))
            await stuck_asked.wait()
            await asyncio.sleep(lifetime_ms / 1000)
            answered = await line.call(FIND, asking("next"), timeout_ms=20_000)
            assert answered["Coordinators"][0]["Host"] == "next"
            assert asked["next"].connection is not asked["stuck"].connection
            deadline = time.monotonic() + patient_s(10)
            while not asked["stuck"].connection.ended_by_peer:
                assert time.monotonic() < deadline, "the stuck connection is still open"
                await asyncio.sleep(0.01)
            line.close()

    asyncio.run(work())


@pytest.mark.parametrize(
    "noise",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x15\x03\x03\x00\x02\x02\x16",  # a TLS alert
        b"\0\0\0\0",
        b"\0\0\0\2ab",
        b"\x7f\xff\xff\xff",
        b"\0\0\0\x08\0\0\x30\x39abcd",  # a correlation id nobody sent
        b"\0\0\0\x06\0\0\0\1\xff\xff",  # the right one, and no FindCoordinator response
        b"",  # closes
    ],
)
def test_what_is_not_kafka_is_unreachable(noise: bytes) -> None:
    async def work() -> None:
        async def babble(request: ReceivedRequest) -> None:
            writer = request.connection.writer
            writer.write(noise)
            await writer.drain()
            writer.close()

        async with speaking({FIND: babble}).running() as broker:
            line = connection(broker)
            with pytest.raises(Unreachable):
                await line.call(FIND, asking("g"), timeout_ms=20_000)
            broker.on_api(FIND, echo)
            await line.call(FIND, asking("g"), timeout_ms=20_000)  # a fresh connection works
            line.close()

    asyncio.run(work())


def test_a_refused_connection_fails_everybody_who_waits_for_it_at_once(free_port: int) -> None:
    async def work() -> None:
        line = BrokerConnection(Address("127.0.0.1", free_port), settings(free_port))
        calls = [line.call(FIND, asking("g"), timeout_ms=20_000) for _ in range(100)]
        async with asyncio.timeout(patient_s(10)):
            errors = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(error, Unreachable) for error in errors)
        line.close()

    asyncio.run(work())


def one_broker(port: int = 0) -> FakeBroker:
    """A cluster of one broker, without topics."""

    async def metadata(request: ReceivedRequest) -> bytes:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topics = [{"Name": row["Name"], "ErrorCode": unknown} for row in request.body["Topics"]]
        return request.response(broker.metadata() | {"Topics": topics})

    broker = speaking({ApiKey.METADATA: metadata, FIND: echo}, port=port)
    return broker


def test_start_waits_for_the_upstream_and_then_gives_up(free_port: int) -> None:
    async def work() -> None:
        async with Upstream(settings(free_port)) as upstream:
            with pytest.raises(UpstreamError):
                await upstream.start(timeout_ms=200)
            async with asyncio.TaskGroup() as tasks:
                started = tasks.create_task(upstream.start(timeout_ms=20_000))
                await asyncio.sleep(0.1)
                assert not started.done()
                async with one_broker(free_port).running():
                    assert (await started).cluster_id == "fake"

    asyncio.run(work())


def test_refreshes_are_coalesced_and_callbacks_hear_of_changes_only() -> None:
    async def work() -> None:
        async with (
            one_broker().running() as broker,
            Upstream(settings(broker.port)) as upstream,
        ):
            changes: list[Topology] = []
            upstream.on_topology(changes.append)
            await upstream.start()
            asked = len(broker.versions_asked(ApiKey.METADATA))
            await asyncio.gather(*(upstream.refresh([f"t{i % 3}"]) for i in range(30)))
            now = len(broker.versions_asked(ApiKey.METADATA))
            assert now - asked <= 2
            assert set(upstream.topology.topics) == {"t0", "t1", "t2"}
            seen = len(changes)
            for _ in range(5):
                await upstream.refresh()
            assert len(changes) == seen

    asyncio.run(work())


def test_the_view_is_refreshed_at_intervals() -> None:
    async def work() -> None:
        async with (
            one_broker().running() as broker,
            Upstream(settings(broker.port, refresh_interval_ms=10)) as upstream,
            asyncio.timeout(patient_s(20)),
            asyncio.TaskGroup() as tasks,
        ):
            await upstream.start()
            running = tasks.create_task(upstream.run())
            while len(broker.versions_asked(ApiKey.METADATA)) < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            running.cancel()

    asyncio.run(work())


def test_a_failed_refresh_fails_all_who_wait_for_it(free_port: int) -> None:
    async def work() -> None:
        async with Upstream(settings(free_port)) as upstream:
            async with asyncio.timeout(patient_s(10)):
                outcomes = await asyncio.gather(
                    *(upstream.refresh() for _ in range(50)), return_exceptions=True
                )
            assert all(isinstance(outcome, UpstreamError) for outcome in outcomes)

    asyncio.run(work())


def test_an_unlucky_bootstrap_server_is_passed_over(free_port: int) -> None:
    async def work() -> None:
        async with one_broker().running() as broker:
            servers = f"127.0.0.1:{free_port},127.0.0.1:{broker.port}"
            async with Upstream(UpstreamSettings(servers)) as upstream:
                assert (await upstream.start(timeout_ms=20_000)).cluster_id == "fake"

    asyncio.run(work())
