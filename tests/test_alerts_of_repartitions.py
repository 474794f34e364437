"""The alerts of topics that get other partitions, each with its story."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from gateway.core.repartition.record import Pace, Phase, Repartition
from gateway.repartition.late_records import LateRecords
from gateway.repartition.metrics import RepartitionCollector
from gateway.repartition.running import RunningTopic
from tests.rig.alerts import Stories, Watch, rules
from tests.rig.virtual_time import now_ms, run

RULES = rules()
STORIES = Stories()


@dataclass(slots=True)
class GrowingOfStory:
    """A topic that grows, as its metrics see it."""

    record: Repartition
    late: LateRecords = field(default_factory=LateRecords)
    closed: int = 0
    given_up: tuple[str, ...] = ()


def growing(watch: Watch) -> GrowingOfStory:
    pace = Pace(adoption_ms=0, settle_ms=0, late_ms=0)
    record = Repartition(
        topic="orders",
        topic_id="00",
        before=4,
        after=8,
        partitioner=None,
        pace=pace,
        phase=Phase.SHOWN,
        began_ms=now_ms(),
    )
    run = GrowingOfStory(record)
    watch.register(RepartitionCollector({"orders": cast("RunningTopic", run)}))
    return run


@STORIES.of("KeywayRepartitionStands")
async def a_broker_cannot_be_asked(watch: Watch) -> None:
    growing(watch)
    await watch.calm(5)
    await watch.amiss(8)


@STORIES.of("KeywayRepartitionOrderLost")
async def a_plain_group_did_not_commit(watch: Watch) -> None:
    run = growing(watch)
    run.record = replace(run.record, phase=Phase.OPEN)
    await watch.calm()
    run.given_up = ("billing",)
    await watch.amiss(1)


@STORIES.of("KeywayRepartitionLateRecords")
async def a_producer_goes_past_the_gateway(watch: Watch) -> None:
    run = growing(watch)
    run.record = replace(run.record, phase=Phase.OPEN)
    await watch.calm()

    async def before() -> None:
        run.late.records += 1

    watch.before = before
    await watch.amiss()


@pytest.mark.parametrize("alert", STORIES)
def test_an_alert_fires_when_its_condition_happens_and_not_before(alert: str) -> None:
    run(STORIES[alert](Watch(RULES[alert])))
