"""Repartitions of one node and of two, step by step, over a scripted Kafka and Redis."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from gateway.core.repartition.consumers import Client
from gateway.core.repartition.named_partitions import Named
from gateway.core.repartition.plan import Order
from gateway.core.repartition.record import Phase, Repartition
from gateway.core.wire.apis import ApiKey
from gateway.repartition.limits import GROUPS_NAMED_MS, RUNNING_MAX
from gateway.repartition.repartitions import NotNow
from gateway.repartition.status import status_of, warnings_of
from tests.rig.node_parts import TOPIC, TOPIC_ID
from tests.rig.repartition_site import PACE, Site, story
from tests.rig.virtual_time import now_ms, run

CLIENT: Client = ("10.0.0.1", "rdkafka")


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a node's own clock says is the virtual loop's, too."""
    for module in ("repartitions", "running"):
        monkeypatch.setattr(f"gateway.repartition.{module}.monotonic_ms", now_ms)


def test_two_topics_that_move_into_the_same_one_wait_for_an_abort() -> None:
    """Two nodes began them before either knew of the other."""

    async def tell(site: Site) -> None:
        await asyncio.sleep(5)
        for topic, other in (("a", "b"), ("b", "a")):
            assert site.table.rows[topic].phase is Phase.MARKED
            assert f"topic {other!r} is to move into 'new', too" in site.one.running[topic].error

    site = Site()
    of_both = {"topic_id": TOPIC_ID.hex(), "before": 2, "after": 5, "into": "new"}
    rest: Any = of_both | {"partitioner": None, "pace": PACE}
    site.table.rows |= {topic: Repartition(topic=topic, **rest) for topic in ("a", "b")}
    story(tell, site=site)


def test_from_its_marker_to_its_end() -> None:
    async def tell(site: Site) -> None:
        site.kafka.ends = {0: 5, 1: 7}
        plan = await site.one.start(Order(TOPIC, 4))
        assert (plan.before, plan.after, plan.refusals) == (2, 4, ())
        assert site.view.shown == 2
        assert ApiKey.PRODUCE in site.view.looks.screen.apis, "hidden partitions stop"
        await site.until(Phase.SHOWN, Phase.OPEN)
        assert site.kafka.partitions == 4
        assert site.view.shown == 4
        assert ApiKey.PRODUCE not in site.view.looks.screen.apis
        await site.until(Phase.OPEN)
        assert site.table.rows[TOPIC].boundaries == (5, 7)
        site.kafka.ends = {0: 6, 1: 7}
        opened_ms = site.table.rows[TOPIC].opened_ms
        await site.until(Phase.FINISHED)
        ended = site.table.rows[TOPIC]
        assert ended.boundaries == (6, 7)
        assert ended.raised_ms >= opened_ms + PACE.late_ms
        assert (site.view.hides, site.view.looks.screen.apis) == (None, frozenset())
        with pytest.raises(NotNow, match="no repartition under way"):
            await site.one.abort(TOPIC)

    story(tell)


def test_a_plain_group_is_waited_for() -> None:
    async def tell(site: Site) -> None:
        site.kafka.others = ("billing", "audit")
        site.kafka.committed = {"billing": {0: 3}, "audit": {0: 1}}
        site.kafka.ends = {0: 5}
        site.kafka.commit_codes = [25, 0]  # the first group has members
        assert (await site.one.plan(Order(TOPIC, 4, unordered=["audit"]))).ordered_groups == (
            "billing",
        )
        await site.one.start(Order(TOPIC, 4, unordered=["audit"]))
        await site.until(Phase.DRAINING)
        assert site.kafka.for_members == ["billing"]
        assert site.kafka.committed["audit"] == {0: 1, 2: 0, 3: 0}
        assert ApiKey.FETCH in site.view.looks.screen.apis
        await asyncio.sleep(2)
        assert site.phase is Phase.DRAINING
        status = await status_of(site.one, site.table.rows[TOPIC])
        assert [(left.group, left.offsets) for left in status.left if left.offsets] == [
            ("billing", 2)
        ]
        assert status.waits_for == ("group billing: up to 2 records in partition 0",)
        site.kafka.committed["billing"][0] = 5
        await site.until(Phase.FINISHED)
        assert site.table.rows[TOPIC].given_up == ()

    story(tell)


@pytest.mark.parametrize("nodes", [(), ("a", "b")], ids=["alone", "two"])
def test_of_several_nodes_none_knows_all_groups_of_a_client(nodes: tuple[str, ...]) -> None:
    """Two consumers on one machine, with librdkafka's client id. This node coordinates `audit`, and
    has heard nothing of `billing`; a Fetch may be of either.
    """

    async def tell(site: Site) -> None:
        _two_groups(site)
        await site.one.start(Order(TOPIC, 4))
        await site.until(Phase.DRAINING)
        site.view.screening.groups.named(CLIENT, ["audit"])
        await asyncio.sleep(5)
        assert _end(site) == (0 if nodes else None), "billing has two records before it"
        site.kafka.committed["billing"][0] = 5
        await site.until(Phase.FINISHED)

    story(tell, *nodes)


def test_a_node_that_starts_does_not_know_all_groups_of_a_client_yet() -> None:
    async def tell(site: Site) -> None:
        await asyncio.sleep(5)
        site.view.screening.groups.named(CLIENT, ["audit"])
        assert _end(site) == 0
        await asyncio.sleep(GROUPS_NAMED_MS / 1000)
        assert _end(site) is None

    site = Site()
    _two_groups(site)
    site.kafka.partitions = 4
    site.table.rows[TOPIC] = Repartition(
        topic=TOPIC,
        topic_id=TOPIC_ID.hex(),
        before=2,
        after=4,
        partitioner=None,
        pace=replace(PACE, consumer_hold_ms=2**53),
        phase=Phase.DRAINING,
        boundaries=(5, 0),
        consumers=("audit", "billing"),
    )
    story(tell, site=site)


def test_a_consumer_that_fetches_from_another_node_than_it_commits_to_has_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its group has committed nothing in partition 0, where its member fetches at the end from the
    other node. librdkafka commits only where it has consumed.
    """
    monkeypatch.setattr("gateway.repartition.plain_groups.UNCOMMITTED_MS", 10_000)
    fetched = {"Topics": [{"Topic": TOPIC, "Partitions": [{"Partition": 0, "FetchOffset": 5}]}]}

    async def tell(site: Site) -> None:
        site.kafka.others = ("billing",)
        site.kafka.committed = {"billing": {1: 0}}
        site.kafka.ends = {0: 5}
        await site.one.start(Order(TOPIC, 4))
        await site.until(Phase.OPEN)
        coordinates, leads = site.views
        for _ in range(40):
            coordinates.screening.groups.named(CLIENT, ["billing"])
            leads.screening.note(CLIENT, {("topic", TOPIC)}, ApiKey.FETCH, fetched)
            await asyncio.sleep(0.5)
        await site.until(Phase.FINISHED)
        assert site.table.rows[TOPIC].given_up == ()

    story(tell, "a", "b")


def _two_groups(site: Site) -> None:
    """One of them has a record to do."""
    site.kafka.others = ("audit", "billing")
    site.kafka.committed = {"audit": {0: 5}, "billing": {0: 3}}
    site.kafka.ends = {0: 5, 2: 7}


def _end(site: Site) -> int | None:
    place = Named(TOPIC, bytes(16), 2, {})
    return site.view.screening.end_for(CLIENT, ApiKey.FETCH, place)


def test_a_plain_group_that_stands_still_is_given_up() -> None:
    async def tell(site: Site) -> None:
        site.kafka.others = ("billing",)
        site.kafka.committed = {"billing": {0: 3}}
        site.kafka.ends = {0: 5}
        await site.one.start(Order(TOPIC, 4))
        await site.until(Phase.FINISHED)
        ended = site.table.rows[TOPIC]
        assert ended.finished_ms - ended.shown_ms >= PACE.consumer_hold_ms
        assert ended.given_up == ("billing",)
        assert (await status_of(site.one, ended)).given_up == ("billing",)

    story(tell)


def test_an_order_at_another_node_knows_what_was_just_begun() -> None:
    async def tell(site: Site) -> None:
        first, second = site.all
        site.kafka.refusal = 41  # not the controller
        await first.start(Order(TOPIC, 4))
        assert second.records == {}
        assert (first.leads, second.leads) == (True, False)
        plan = await second.plan(Order(TOPIC, 4))
        assert "it goes from 2 to 4 partitions now: marked" in plan.refusals[0]
        assert (await second.abort(TOPIC)).phase is Phase.ABORTED
        assert site.phase is Phase.ABORTED

    story(tell, "a", "b")


def test_an_abort_hides_what_was_created_and_the_next_one_takes_it() -> None:
    async def tell(site: Site) -> None:
        site.kafka.refusal = 41  # not the controller
        await site.one.start(Order(TOPIC, 4))
        await asyncio.sleep(1)
        status = await status_of(site.one, site.table.rows[TOPIC])
        assert "NOT_CONTROLLER" in status.error
        assert "waits: CreatePartitions" in warnings_of(site.one)[0]
        with pytest.raises(NotNow, match="it goes from 2 to 4 partitions now: marked"):
            await site.one.start(Order(TOPIC, 8))
        site.kafka.partitions = 4  # it was done after all
        site.kafka.assigned = ["readers"]
        with pytest.raises(NotNow, match="KIP-848 groups readers"):
            await site.one.abort(TOPIC)
        assert (await site.one.abort(TOPIC, force=True)).phase is Phase.ABORTED
        assert site.view.shown == 2
        assert site.one.running == {}
        site.kafka.refusal = 0
        await site.one.start(Order(TOPIC, 4))
        assert site.table.rows[TOPIC].before == 2
        await site.until(Phase.FINISHED)

    story(tell)


def test_while_redis_is_away_it_waits() -> None:
    async def tell(site: Site) -> None:
        await site.one.start(Order(TOPIC, 4))
        await site.until(Phase.OPEN)
        site.table.away = True
        await asyncio.sleep(5)
        assert site.phase is Phase.OPEN
        assert site.one.running[TOPIC].error == "Redis: away"
        site.table.away = False
        await site.until(Phase.FINISHED)

    story(tell)


def test_a_node_that_starts_goes_on_with_what_is_there() -> None:
    before = Site()

    async def begin(site: Site) -> None:
        await site.one.start(Order(TOPIC, 4))
        await site.until(Phase.OPEN)

    async def go_on(site: Site) -> None:
        started_ms = now_ms()
        assert site.view.shown == 4
        await site.until(Phase.FINISHED)
        waited_ms = site.table.rows[TOPIC].raised_ms - started_ms
        assert waited_ms >= PACE.late_ms, "who could not send while no node was there may now"

    story(begin, site=before)
    opened = before.table.rows[TOPIC]
    before.table.rows[TOPIC] = replace(opened, opened_ms=opened.opened_ms - 10 * PACE.late_ms)
    after = Site()
    after.kafka, after.table = before.kafka, before.table
    again = Site()
    again.table.rows = before.table.rows
    again.kafka.partitions = before.kafka.partitions
    story(go_on, site=again)


def test_no_more_than_so_many_at_a_time() -> None:
    async def tell(site: Site) -> None:
        site.one.running.update({f"t{at}": cast(Any, None) for at in range(RUNNING_MAX)})
        plan = await site.one.plan(Order(TOPIC, 4))
        site.one.running.clear()
        assert "no more at a time" in plan.refusals[0]

    story(tell)


def test_a_node_that_joins_knows_what_began_since_it_has_read_the_records() -> None:
    """Nobody waited for it, and clients come next."""

    async def tell() -> None:
        site = Site("a", "b")
        for node in site.all:
            await node.load()
        await site.one.start(Order(TOPIC, 4))
        joins, view = site.all[1], site.views[1]
        await joins.known()
        assert (joins.records, view.shown) == (site.table.rows, 2)

    run(tell())


def test_of_two_nodes_the_first_takes_the_steps_and_both_act_by_them() -> None:
    async def tell(site: Site) -> None:
        await site.all[1].start(Order(TOPIC, 4))
        await site.until(Phase.OPEN)
        assert site.all[1].running[TOPIC].reasons == ("node a takes the steps",)
        await site.until(Phase.FINISHED)
        await asyncio.sleep(2)
        assert [each.records[TOPIC].phase for each in site.all] == [Phase.FINISHED] * 2
        assert [view.hides for view in site.views] == [None, None]

    story(tell, "a", "b")


def test_no_client_is_told_of_the_old_partitions_when_another_was_told_of_the_new_ones() -> None:
    """It would write a key to a new partition, and then to the old one."""

    async def tell(site: Site) -> None:
        await site.one.start(Order(TOPIC, 4))
        ever: set[int] = set()
        while site.phase is not Phase.OPEN:
            now = {view.shown or 2 for view in site.views if TOPIC not in view.withheld()}
            assert len(now) <= 1
            ever |= now
            await asyncio.sleep(0.01)
        assert ever == {2, 4}

    story(tell, "a", "b")


def test_nothing_is_created_before_every_live_node_hides_it() -> None:
    async def tell(site: Site) -> None:
        site.alive.add("zz")  # it has told nothing
        await site.one.start(Order(TOPIC, 4))
        await asyncio.sleep(5)
        assert (site.phase, site.kafka.partitions) == (Phase.MARKED, 2)
        assert site.one.running[TOPIC].reasons == ("node zz does not act by it yet",)
        assert [view.shown for view in site.views] == [2, 2]
        site.alive.discard("zz")  # it died
        await site.until(Phase.FINISHED)

    story(tell, "a", "b")


@pytest.mark.parametrize("kept", [None, Phase.MARKED])
def test_a_record_that_redis_lost_is_written_again(kept: Phase | None) -> None:
    """Also where its file was an older one: partitions that clients have seen are not hidden."""

    async def tell(site: Site) -> None:
        await site.one.start(Order(TOPIC, 4))
        marked = site.table.rows[TOPIC]
        assert marked.phase is Phase.MARKED
        await site.until(Phase.OPEN)
        await asyncio.sleep(1.5)
        site.table.rows.clear()
        if kept is not None:
            site.table.rows[TOPIC] = marked
        for _ in range(7):
            await asyncio.sleep(0.05)
            assert [view.shown for view in site.views] == [4, 4]
        await site.until(Phase.FINISHED)

    story(tell, "a", "b")
