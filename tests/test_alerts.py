"""Each alert of nodes and groups is silent while all is well, and fires when it should.

The figures are those of the real collectors. The world behind them is the real core of a window
(Node) where that is simple, and otherwise the counts that the collectors read.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from redis.exceptions import ConnectionError as RedisAway

from dispatcher.core.model import Acknowledge, AckType, Acquire, MemberId, PoisonPolicy, SessionId
from dispatcher.core.steps import Notice, Noticed
from dispatcher.store.base import StoreError, Write
from dispatcher.store.memory import MemoryStore
from gateway.admin.health import HealthCollector, look
from gateway.config.groups import GroupSection
from gateway.core.cluster.topology import TopicPartition, Topology
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.group_log import GroupLog
from gateway.listen.authentication import Authentication
from gateway.listen.counters import Counters, Refused
from gateway.listen.handshakes import Handshakes
from gateway.listen.login_metrics import LoginCollector
from gateway.listen.metrics import ServerCollector
from gateway.listen.tls_metrics import TlsCollector
from gateway.listen.unsent import Unsent
from gateway.node.event_loop import look_forever, loop_delays
from gateway.node.redis_state import redis_troubles
from gateway.part import Part, Trouble
from gateway.reading.build import reading_troubles
from gateway.reading.metrics import ReaderCollector
from gateway.reading.refetch import ReaderCounts
from gateway.upstream.build import broker_troubles
from gateway.windows.metrics import OutcomeCollector, RoundTripCollector, WindowCollector
from gateway.windows.record_outcomes import RecordOutcomes
from gateway.windows.store_availability import MonitoredStore
from keyway.repeated_lines import RepeatedLines
from keyway.tls.certificates import AllCertificates, Certificates, Expiring
from tests.rig.alerts import Stories, Watch, rules
from tests.rig.node_parts import GROUP, Node, topology
from tests.rig.virtual_time import VirtualLoop, now_ms, run, settle
from tests.test_alerts_of_distribution import STORIES as DISTRIBUTION
from tests.test_alerts_of_lag import STORIES as LAG
from tests.test_alerts_of_nodes import STORIES as NODES
from tests.test_alerts_of_repartitions import STORIES as REPARTITIONS

RULES = rules()
PLACE = TopicPartition("orders", b"t" * 16, 3)
M1, S1 = MemberId("m1"), SessionId("s1")
STORIES = Stories()


def test_every_rule_has_its_story() -> None:
    told = STORIES.keys() | LAG.keys() | NODES.keys() | DISTRIBUTION.keys() | REPARTITIONS.keys()
    assert told == RULES.keys()


# ------------------------------------------------------------------------------------------ a node


class PortOfStory:
    """A port with TLS, as its metrics see it."""

    port = "outside"

    def __init__(self, expires_s: int) -> None:
        self.expiring = (Expiring("cert_file", 0, expires_s),)
        self.problem: str | None = None


@STORIES.of("KeywayDown")
async def down(watch: Watch) -> None:
    await watch.calm()
    watch.up = False
    await watch.amiss(3)


@dataclass(slots=True)
class World:
    """Redis, brokers and the reader of a node."""

    topology: Topology = field(default_factory=lambda: topology(2))
    silent: dict[int, str] = field(default_factory=dict)
    redis_failure: Exception | None = None
    failing_partitions: int = 0

    def silent_brokers(self) -> dict[int, str]:
        return self.silent

    async def set(self, _name: str, _value: str, *, xx: bool) -> bool:
        assert xx, "it changes nothing"
        if self.redis_failure is not None:
            raise self.redis_failure
        return True

    def parts(self) -> list[Part[None]]:
        async def redis() -> Sequence[Trouble]:
            return await redis_troubles(self)

        async def upstream() -> Sequence[Trouble]:
            return broker_troubles(self)

        async def reading() -> Sequence[Trouble]:
            return reading_troubles(self.failing_partitions)

        return [
            Part(name="redis", room=None, troubles=redis),
            Part(name="upstream", room=None, troubles=upstream),
            Part(name="reading", room=None, troubles=reading),
        ]

    def watched(self, watch: Watch) -> World:
        collector = HealthCollector()
        watch.register(collector)

        async def before() -> None:
            collector.seen = await look(self.parts())

        watch.before = before
        return self


@STORIES.of("KeywayNotReady", "KeywayRedisAway")
async def redis_away(watch: Watch) -> None:
    world = World().watched(watch)
    await watch.calm()
    world.redis_failure = RedisAway("refused")
    await watch.amiss(3)


@STORIES.of("KeywayUpstreamAway")
async def a_broker_is_silent(watch: Watch) -> None:
    world = World().watched(watch)
    await watch.calm()
    world.silent = {1: "no answer"}
    await watch.amiss(3)


@STORIES.of("KeywayUnhealthy")
async def a_partition_cannot_be_read(watch: Watch) -> None:
    world = World().watched(watch)
    await watch.calm()
    world.failing_partitions = 1
    await watch.amiss(12)


class SlowStore(MemoryStore):
    seconds = 0.001

    async def apply(self, writes: Sequence[Write]) -> list[StoreError | None]:
        await asyncio.sleep(self.seconds)
        return await super().apply(writes)


@STORIES.of("KeywayRedisSlow")
async def redis_is_slow(watch: Watch) -> None:
    store = SlowStore()
    loop = asyncio.get_running_loop()
    monitored = MonitoredStore(store, now_ms, clock_ns=lambda: int(loop.time() * 1e9))
    watch.register(RoundTripCollector(monitored.round_trips))

    async def before() -> None:
        for _ in range(20):
            await monitored.apply([])

    watch.before = before
    await watch.calm()
    store.seconds = 0.3
    await watch.amiss()


@STORIES.of("KeywayEventLoopDelayed")
async def the_loop_is_busy(watch: Watch) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    delays = loop_delays()
    watch.register(delays)
    task = asyncio.ensure_future(look_forever(delays, loop.time))

    async def before() -> None:
        for _ in range(20 if busy else 0):
            loop.busy(0.6)  # a step that a client's request takes
            await asyncio.sleep(0.2)

    busy = False
    watch.before = before
    await watch.calm()
    busy = True
    await watch.amiss(20)
    task.cancel()


@STORIES.of("KeywayCertificateExpires", "KeywayCertificateNotTaken")
async def a_certificate_is_old_and_its_successor_is_damaged(watch: Watch) -> None:
    now_s = asyncio.get_running_loop().time
    port = PortOfStory(int(now_s()) + 30 * 24 * 3600)
    certificates = AllCertificates()
    certificates.ports.append(cast(Certificates[Any], port))
    handshakes = Handshakes(RepeatedLines(lambda: 0), Unsent())
    watch.register(TlsCollector(certificates, handshakes))
    await watch.calm()
    port.expiring = (Expiring("cert_file", 0, int(now_s()) + 13 * 24 * 3600),)
    port.problem = "cert_file: no PEM certificate"
    await watch.amiss(20)


@STORIES.of("KeywayLoginFilesUnusable")
async def a_file_of_users_is_damaged(watch: Watch) -> None:
    lines: list[str] = []
    own = SimpleNamespace(logins={}, ended=Counter[object](), warnings=lambda: lines)
    watch.register(LoginCollector({"partners": cast(Authentication, own)}))
    await watch.calm()
    lines.append("users.yaml is no YAML")
    await watch.amiss(20)


@STORIES.of("KeywayRequestsRefused")
async def requests_are_refused(watch: Watch) -> None:
    counters = Counters()
    watch.register(ServerCollector(counters, lambda: 1))
    counters.count_request_refused(ApiKey.SHARE_FETCH, ErrorCode.UNKNOWN_MEMBER_ID)
    await watch.calm()

    async def before() -> None:
        for _ in range(120):
            counters.count_request_refused(ApiKey.SHARE_FETCH, ErrorCode.UNKNOWN_MEMBER_ID)

    watch.before = before
    await watch.amiss(15)


@STORIES.of("KeywayRequestsSlow")
async def answers_take_long(watch: Watch) -> None:
    counters = Counters()
    watch.register(ServerCollector(counters, lambda: 1))
    took_ms = 20

    async def before() -> None:
        for _ in range(50):
            counters.apis.answered(ApiKey.PRODUCE, took_ms * 1_000_000)
            counters.apis.answered(ApiKey.FETCH, 30_000_000_000)  # it waits for records

    watch.before = before
    await watch.calm()
    took_ms = 2_000
    await watch.amiss(20)


@STORIES.of("KeywayClientsThrottled")
async def quotas_slow_clients_down(watch: Watch) -> None:
    counters = Counters()
    watch.register(ServerCollector(counters, lambda: 1))
    counters.apis.throttled(ApiKey.PRODUCE, 500)
    await watch.calm()

    async def before() -> None:
        for _ in range(60):
            counters.apis.throttled(ApiKey.PRODUCE, 300)

    watch.before = before
    await watch.amiss(20)


@STORIES.of("KeywayClientsRefused")
async def clients_are_refused(watch: Watch) -> None:
    counters = Counters()
    watch.register(ServerCollector(counters, lambda: 1))
    await watch.calm()
    counters.count_refused(Refused.TOO_MANY_CLIENTS)
    await watch.amiss(1)


@STORIES.of("KeywayPartitionsUnreadable")
async def partitions_fail(watch: Watch) -> None:
    failing = 0
    watch.register(ReaderCollector(ReaderCounts(), lambda: failing))
    await watch.calm()
    failing = 2
    await watch.amiss(7)


# ------------------------------------------------------------------------------------------ groups


def section(**options: Any) -> GroupSection:
    return GroupSection(auto_offset_reset="earliest", session_timeout_ms=600_000, **options)


def beating(watch: Watch, node: Node) -> None:
    """The member keeps its place from scrape to scrape."""
    epoch = node.beat()

    async def before() -> None:
        nonlocal epoch
        epoch = node.beat("m1", epoch)

    watch.before = before
    watch.register(WindowCollector(node.windows.table))


@STORIES.of("KeywayParkedRecords")
async def a_record_is_parked(watch: Watch) -> None:
    """The alert stays when the group stops and its window leaves memory."""
    async with Node(section(rejected=PoisonPolicy.BLOCK)) as node:
        node.log.produce(b"a")
        beating(watch, node)
        await watch.calm()
        assert node.window().acquire(Acquire(M1, S1, 9, now_ms())) is not None
        reject = bytes([AckType.REJECT.value])
        await node.window().ask(Acknowledge(M1, S1, [(0, 0, reject)], now_ms()))
        node.windows.table.drop(node.window().key)
        await watch.amiss(1)


@STORIES.of("KeywayDeadLettersWait")
async def dead_letters_are_not_taken(watch: Watch) -> None:
    options = section(rejected=PoisonPolicy.DEAD_LETTER, dead_letter_topic="dead")
    async with Node(options) as node:
        node.log.produce(b"a")
        beating(watch, node)
        await watch.calm()
        assert node.window().acquire(Acquire(M1, S1, 9, now_ms())) is not None
        node.dead_letters.outcomes = [False] * 1_000
        reject = bytes([AckType.REJECT.value])
        await node.window().ask(Acknowledge(M1, S1, [(0, 0, reject)], now_ms()))
        await watch.amiss(12)


@STORIES.of("KeywaySpanFull")
async def one_record_holds_the_span(watch: Watch) -> None:
    async with Node(section(span_max=4, held_max=0)) as node:
        node.log.produce(b"a")
        beating(watch, node)
        await watch.calm()
        node.log.produce(b"b", b"c", b"d", b"e")
        await settle()
        await watch.amiss(2)


@STORIES.of("KeywayHeldRecords")
async def many_records_wait_behind_a_parked_one(watch: Watch) -> None:
    async with Node(section(span_max=4, held_max=10, rejected=PoisonPolicy.BLOCK)) as node:
        node.log.produce(b"a")
        beating(watch, node)
        await watch.calm()
        assert node.window().acquire(Acquire(M1, S1, 9, now_ms())) is not None
        reject = bytes([AckType.REJECT.value])
        await node.window().ask(Acknowledge(M1, S1, [(0, 0, reject)], now_ms()))
        node.log.produce(*[b"a"] * 20)
        await settle()
        await watch.amiss(2)


@STORIES.of("KeywayWindowsWaiting")
async def windows_wait_for_the_store(watch: Watch) -> None:
    async with Node(section()) as node:
        node.log.produce(b"a")
        beating(watch, node)
        await watch.calm()
        node.store.down = True
        node.window().fail(StoreError("gone"))
        await watch.amiss(7)
        node.store.down = False


def outcomes(watch: Watch) -> Callable[[Notice, int], None]:
    """A group whose records are accepted, ten a minute."""
    counted = RecordOutcomes(GroupLog(now_ms))
    watch.register(OutcomeCollector(counted, frozenset))

    async def before() -> None:
        counted.noticed(GROUP, PLACE, Noticed(Notice.ACCEPTED, 10))

    watch.before = before
    return lambda notice, count: counted.noticed(GROUP, PLACE, Noticed(notice, count))


@STORIES.of("KeywayPoisonRecords")
async def a_record_is_given_up(watch: Watch) -> None:
    happens = outcomes(watch)
    await watch.calm()
    happens(Notice.DROPPED, 1)  # the first of the group
    await watch.amiss(1)


@STORIES.of("KeywayRecordsSkipped")
async def no_member_takes_a_key(watch: Watch) -> None:
    happens = outcomes(watch)
    await watch.calm()
    happens(Notice.SKIPPED, 1)
    await watch.amiss(1)


@STORIES.of("KeywayRecordsTruncated")
async def retention_was_faster(watch: Watch) -> None:
    happens = outcomes(watch)
    await watch.calm()
    happens(Notice.TRUNCATED, 1)
    await watch.amiss(1)


@STORIES.of("KeywayRedeliveries")
async def many_records_come_again(watch: Watch) -> None:
    happens = outcomes(watch)
    accepts = watch.before
    await watch.calm()

    async def before() -> None:
        await accepts()
        happens(Notice.REDELIVERED, 2)

    watch.before = before
    await watch.amiss()


@pytest.mark.parametrize("alert", STORIES)
def test_an_alert_fires_when_its_condition_happens_and_not_before(alert: str) -> None:
    run(STORIES[alert](Watch(RULES[alert])))
