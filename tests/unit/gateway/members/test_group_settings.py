"""keyway.yaml, under the group's configs in Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import structlog

from dispatcher.core.model import PoisonPolicy
from gateway.config.file import Config
from gateway.config.groups import GroupSection
from gateway.core.share.dead_letter_queue import (
    COPY_RECORD,
    SHARE_VERSION_MIN,
    TOPIC_NAME,
    DeadLetterQueue,
)
from gateway.core.wire.errors import ErrorCode
from gateway.members.group_settings import GroupSettings, overridden
from gateway.members.limits import GROUP_CONFIG_MS
from gateway.members.redis_table import TableUnavailable
from gateway.upstream.errors import Refused, Unreachable, UpstreamError
from tests.rig.virtual_time import now_ms, run


class Kafka:
    def __init__(self) -> None:
        self.configs: dict[str, dict[str, str]] = {}
        self.failure: UpstreamError | None = None
        self.asked: list[str] = []
        self.share_version: int | UpstreamError = 1
        self.versions_asked = 0
        self.when_asked: Callable[[str], None] = lambda _: None

    async def group_config(self, group: str) -> dict[str, str]:
        self.asked.append(group)
        self.when_asked(group)
        if self.failure is not None:
            raise self.failure
        return self.configs.get(group, {})

    async def queues_work(self) -> bool:
        self.versions_asked += 1
        if isinstance(self.share_version, UpstreamError):
            raise self.share_version
        return self.share_version >= SHARE_VERSION_MIN


def settings(kafka: Kafka, *sections: GroupSection) -> tuple[GroupSettings, list[str]]:
    changed: list[str] = []
    config = Config(groups=sections)
    made = GroupSettings(
        config,
        kafka.group_config,
        now_ms,
        kafka.queues_work,
    )
    made.on_change(lambda name, _: changed.append(name))
    return made, changed


def test_what_is_set_replaces_and_nothing_else_does() -> None:
    section = GroupSection(lock_duration_ms=5_000, deliveries_max=7)
    assert overridden(section, {}) is section
    assert overridden(section, {"share.assignor.offload.enable": "true", "x": "1"}) is section
    changed = overridden(
        section,
        {
            "share.auto.offset.reset": "earliest",
            "share.isolation.level": "READ_UNCOMMITTED",
            "share.record.lock.duration.ms": "15000",
            "share.delivery.count.limit": "10",
            "share.assignment.interval.ms": "2000",
            "share.heartbeat.interval.ms": "6000",
            "share.session.timeout.ms": "50000",
            "share.partition.max.record.locks": "400",
            "share.renew.acknowledge.enable": "False",
        },
    )
    assert changed == GroupSection(
        auto_offset_reset="earliest",
        isolation_level="read_uncommitted",
        lock_duration_ms=15_000,
        deliveries_max=10,
        assignment_interval_ms=2_000,
        heartbeat_interval_ms=6_000,
        session_timeout_ms=50_000,
        window_records=400,
        renew_acknowledge=False,
    )
    assert overridden(changed, {"share.renew.acknowledge.enable": "TRUE"}).renew_acknowledge


@pytest.mark.parametrize("value", ["", "-5", "many", "1.5"])
def test_numbers_that_are_none_change_nothing(value: str) -> None:
    section = GroupSection()
    assert overridden(section, {"share.record.lock.duration.ms": value}) is section


def test_who_is_told_of_changes() -> None:
    async def work() -> None:
        kafka = Kafka()
        chosen, changed = settings(kafka, GroupSection(match="g", deliveries_max=3))
        assert chosen.of("g").deliveries_max == 3
        assert (await chosen.learn("g")).deliveries_max == 3
        assert changed == [], "nothing is set"
        kafka.configs["g"] = {"share.delivery.count.limit": "9"}
        assert (await chosen.known("g")).deliveries_max == 3
        assert (await chosen.learn("g")).deliveries_max == 9
        assert chosen.of("g").deliveries_max == 9
        await chosen.learn("g")
        del kafka.configs["g"]
        assert (await chosen.learn("g")).deliveries_max == 3
        assert changed == ["g", "g"]
        assert chosen.of("other").deliveries_max == GroupSection().deliveries_max
        before = len(kafka.asked)
        chosen.forget("g")
        await chosen.known("g")
        assert len(kafka.asked) == before + 1

    asyncio.run(work())


def test_upstream_that_is_away_is_the_callers_business() -> None:
    async def work() -> None:
        kafka = Kafka()
        chosen, _ = settings(kafka)
        kafka.configs["g"] = {"share.delivery.count.limit": "9"}
        await chosen.learn("g")
        kafka.failure = Unreachable("no broker")
        with pytest.raises(UpstreamError):
            await chosen.learn("g")
        assert chosen.of("g").deliveries_max == 9, "known values stay good"

    asyncio.run(work())


def test_a_refusal_is_said_once_and_means_keyway_yaml() -> None:
    async def work() -> None:
        kafka = Kafka()
        chosen, _ = settings(kafka)
        kafka.failure = Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, "configuration")
        with structlog.testing.capture_logs() as logs:
            for _ in range(3):
                assert await chosen.learn("g") == GroupSection()
        assert [line["event"] for line in logs] == ["group_config_refused"]

    asyncio.run(work())


@pytest.mark.parametrize(
    "code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_CONTROLLER]
)
def test_an_error_that_says_nothing_of_the_configs_decides_no_settings(code: ErrorCode) -> None:
    """A group without a position would start where keyway.yaml says, for good."""

    async def work() -> None:
        kafka = Kafka()
        chosen, _ = settings(kafka)
        kafka.failure = Refused(code, "configuration")
        with pytest.raises(Refused):
            await chosen.known("g")
        kafka.failure = None
        kafka.configs["g"] = {"share.auto.offset.reset": "earliest"}
        assert (await chosen.known("g")).auto_offset_reset == "earliest"

    asyncio.run(work())


def test_every_group_is_looked_at_now_and_then() -> None:
    async def work() -> None:
        kafka = Kafka()
        chosen, changed = settings(kafka)
        there = {"a", "b"}
        task = asyncio.ensure_future(chosen.refresh_forever(lambda: ["a", "b"], there.__contains__))
        await asyncio.sleep(GROUP_CONFIG_MS / 1000 + 1)
        assert kafka.asked == ["a", "b"]
        kafka.failure = Unreachable("no broker")
        await asyncio.sleep(GROUP_CONFIG_MS / 1000)
        assert kafka.asked == ["a", "b", "a"], "the others would fail as well"
        kafka.failure = None
        kafka.configs["b"] = {"share.session.timeout.ms": "60000"}
        await asyncio.sleep(GROUP_CONFIG_MS / 1000)
        assert changed == ["b"]
        kafka.when_asked = there.discard
        await asyncio.sleep(GROUP_CONFIG_MS / 1000)
        asked = len(kafka.asked)
        await chosen.known("a")
        assert len(kafka.asked) == asked + 1, "it was forgotten while it was asked for"
        task.cancel()

    run(work())


def test_what_is_set_through_the_gateway_counts_at_once() -> None:
    async def work() -> None:
        kafka = Kafka()
        chosen, changed = settings(kafka)
        await chosen.learn("g")
        await chosen.altered({"g": {"share.delivery.count.limit": "9"}})
        assert chosen.of("g").deliveries_max == 9
        assert changed == ["g"]
        assert (await chosen.learn("g")).deliveries_max == 9, "the broker does not show it yet"
        await chosen.altered({"g": {"share.delivery.count.limit": None}})
        assert chosen.of("g").deliveries_max == GroupSection().deliveries_max
        assert changed == ["g", "g"]

    run(work())


def test_what_is_set_counts_here_though_redis_cannot_tell_the_other_nodes() -> None:
    async def tell(_changes: object) -> None:
        raise TableUnavailable

    async def work() -> None:
        chosen, changed = settings(Kafka())
        chosen.tell = tell
        await chosen.known("g")
        await chosen.altered({"g": {"share.delivery.count.limit": "9"}})
        assert (chosen.of("g").deliveries_max, changed) == (9, ["g"])

    run(work())


def test_what_is_set_for_a_group_that_nobody_uses_yet_counts_when_it_is_used() -> None:
    """Ten of twenty new groups started at `latest` though `earliest` was set."""

    async def work() -> None:
        kafka = Kafka()
        chosen, changed = settings(kafka)
        await chosen.altered({"new": {"share.auto.offset.reset": "earliest"}})
        assert kafka.asked == []
        assert (await chosen.known("new")).auto_offset_reset == "earliest"
        assert changed == ["new"]
        kafka.failure = Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, "configuration")
        assert (await chosen.learn("new")).auto_offset_reset == "earliest"

    run(work())


QUEUE = {TOPIC_NAME: "dlq.g", COPY_RECORD: "TRUE"}
OWN = GroupSection(rejected=PoisonPolicy.DROP, exhausted=PoisonPolicy.BLOCK)


def test_a_queue_takes_all_poison_and_nothing_of_it_is_left_without_it() -> None:
    async def work() -> None:
        kafka = Kafka()
        kafka.share_version = 2
        kafka.configs["g"] = QUEUE
        chosen, changed = settings(kafka, OWN)
        section = await chosen.learn("g")
        assert section.dead_letter_queue == DeadLetterQueue("dlq.g", copies=True)
        assert section.dead_letter_topic == "dlq.g"
        assert (section.rejected, section.exhausted) == (PoisonPolicy.DEAD_LETTER,) * 2
        kafka.configs["g"] = {**QUEUE, COPY_RECORD: "false"}
        assert (await chosen.learn("g")).dead_letter_queue == DeadLetterQueue("dlq.g", copies=False)
        kafka.configs["g"] = {TOPIC_NAME: " "}
        assert await chosen.learn("g") == OWN
        assert changed == ["g"] * 3, "who writes letters is told of the copying, too"

    run(work())


def test_a_queue_counts_once_the_cluster_has_queues() -> None:
    """share.version 1 keeps the configs and does nothing with them."""

    async def work() -> None:
        kafka = Kafka()
        chosen, _ = settings(kafka, OWN)
        await chosen.learn("g")
        assert kafka.versions_asked == 0, "nobody has a queue"
        await chosen.altered({"g": QUEUE})
        kafka.configs["g"] = QUEUE
        assert chosen.of("g") == await chosen.learn("g") == OWN
        kafka.share_version = 2
        assert (await chosen.learn("g")).dead_letter_queue is not None

    run(work())


def test_a_queue_that_is_set_through_the_gateway_counts_at_once() -> None:
    async def work() -> None:
        kafka = Kafka()
        kafka.share_version = 2
        chosen, _ = settings(kafka, OWN)
        await chosen.learn("g")
        await chosen.altered({"g": QUEUE})
        assert chosen.of("g").dead_letter_queue is not None
        await chosen.altered({"g": {TOPIC_NAME: None}})
        assert chosen.of("g") == OWN
        kafka.share_version = Unreachable("no broker")
        await chosen.altered({"g": QUEUE})
        assert chosen.of("g").dead_letter_queue is not None, "as the cluster said last"
        with pytest.raises(UpstreamError):
            await chosen.learn("g")

    run(work())
