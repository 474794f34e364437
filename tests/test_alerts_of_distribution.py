"""Each alert of links, offsets and schemas is silent while all is well, fires when it should."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from keyway.clusters.core.tree import ClusterName, Distributor, Level
from keyway.service import wall_ms as reported_ms
from offsets.core.plan import Mode, Refusal, Row
from offsets.metrics import Metrics as OffsetsMetrics
from schema_dist.core import model as schemas
from schema_dist.metrics import Metrics as SchemasMetrics
from schema_dist.target_sync import Round
from spark.links.metrics import LinkCollector
from spark.links.reports import LinkReport
from spark.links.status import Json, StatusTopic
from tests.rig.alerts import Stories, Watch, rules
from tests.rig.virtual_time import now_ms, run

RULES = rules()
STORIES = Stories()


class Kept:
    """A status topic that an earlier run has written."""

    def __init__(self, topic: Json) -> None:
        self.topic = topic

    def ensure(self) -> None:
        pass

    def read(self) -> dict[str, Json]:
        return {"topic/c1-level-1/flights": self.topic}


def link(watch: Watch) -> Callable[..., None]:
    """Registers a link that runs; the result reports another status of it."""
    reports: list[LinkReport] = []

    def tell(*, running: bool = True, state: str = "running", **row: float) -> None:
        topic = {"state": state, "partitions": {"0": row}}
        links = Distributor(ClusterName("c1"), Level(1), (ClusterName("c2"),), ())
        report = LinkReport(links, cast(StatusTopic, Kept(topic)))
        report.load()
        report.running = running
        reports[:] = [report]

    tell()
    watch.register(LinkCollector(lambda: reports))
    return tell


def test_a_link_has_its_figures_before_anything_happens() -> None:
    watch = Watch(RULES["KeywayLinkLate"])

    async def tell() -> None:
        link(watch)
        await watch.calm(1)
        names = ("link_running", "topics_stopped", "lag_seconds", "deleted_records_total")
        for name in names:
            assert watch.history.at(f"keyway_distribution_{name}", now_ms() / 1000), name

    run(tell())


@STORIES.of("KeywayLinkWaits")
async def a_link_waits(watch: Watch) -> None:
    tell = link(watch)
    await watch.calm()
    tell(running=False)
    await watch.amiss(7)


@STORIES.of("KeywayTopicsStopped")
async def a_topic_stops(watch: Watch) -> None:
    tell = link(watch)
    await watch.calm()
    tell(state="stopped")
    await watch.amiss(1)


@STORIES.of("KeywayLinkLate")
async def a_link_is_late(watch: Watch) -> None:
    tell = link(watch)
    tell(lag_s=250.0)
    await watch.calm()
    tell(lag_s=350.0)
    await watch.amiss(7)


@STORIES.of("KeywayLinkStands")
async def a_link_commits_nothing(watch: Watch) -> None:
    tell = link(watch)
    await watch.calm()
    tell(waits_since_ms=reported_ms() - 301_000)
    await watch.amiss(1)


@STORIES.of("KeywayLinkLeavesRecordsOut")
async def a_target_refuses_a_record(watch: Watch) -> None:
    tell = link(watch)
    await watch.calm()
    tell(left_out=1)
    await watch.amiss(1)


@STORIES.of("KeywayLinkLostRecords")
async def retention_beats_a_link(watch: Watch) -> None:
    tell = link(watch)
    await watch.calm()
    tell(gap=1)
    await watch.amiss(1)


def row(*refusals: Refusal) -> Row:
    return Row("g", "orders", 0, "c1", 5, 0, Mode.TIMESTAMP, None, 5, "", 0, 0, refusals)


@STORIES.of("KeywayOffsetsUnsafe")
async def a_group_cannot_be_moved(watch: Watch) -> None:
    metrics = OffsetsMetrics()
    watch.register(metrics.unsafe)
    metrics.decided([row()], [])
    await watch.calm()
    metrics.decided([row(Refusal.UNSAFE_LAG)], [])
    await watch.amiss(7)


@STORIES.of("KeywayOffsetsRoundsFail")
async def rounds_of_offsets_fail(watch: Watch) -> None:
    metrics = OffsetsMetrics()
    watch.register(metrics.failures)
    await watch.calm()

    async def before() -> None:
        metrics.failures.inc()

    watch.before = before
    await watch.amiss(10)


def schemas_of(watch: Watch) -> SchemasMetrics:
    metrics = SchemasMetrics()
    watch.register(metrics.registry)
    metrics.round("c2", Round(3, 0, ()))
    return metrics


@STORIES.of("KeywaySchemaCollisions")
async def two_schemas_of_one_id(watch: Watch) -> None:
    metrics = schemas_of(watch)
    await watch.calm()
    refusal = schemas.Refusal(
        reason=schemas.Reason.ID_TAKEN,
        subject="orders-value",
        version=schemas.Version(1),
        id=schemas.SchemaId(7),
        detail="",
    )
    metrics.round("c2", Round(3, 0, (refusal,)))
    await watch.amiss(1)


@STORIES.of("KeywaySchemasBehind")
async def a_target_lacks_schemas(watch: Watch) -> None:
    metrics = schemas_of(watch)
    await watch.calm()
    metrics.progress("c2", 4)
    await watch.amiss(17)


@STORIES.of("KeywaySchemaRoundsFail")
async def rounds_of_schemas_fail(watch: Watch) -> None:
    metrics = schemas_of(watch)
    await watch.calm()

    async def before() -> None:
        metrics.failed("c2")

    watch.before = before
    await watch.amiss(10)


@pytest.mark.parametrize("alert", STORIES)
def test_an_alert_fires_when_its_condition_happens_and_not_before(alert: str) -> None:
    run(STORIES[alert](Watch(RULES[alert])))
