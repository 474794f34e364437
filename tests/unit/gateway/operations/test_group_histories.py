"""Histories of groups: sampled with the looks at the lag, bounded; warnings of stopped groups."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dispatcher.core.steps import Notice, Noticed
from gateway.core.history import Flow, Sample
from gateway.operations import group_histories
from gateway.operations.group_histories import GroupHistories
from gateway.operations.lag_sums import LagSum, TopicSum
from gateway.operations.limits import LAG_MS, STOPPED_GROUPS_NAMED, STOPPED_MS
from gateway.operations.portions import Portions
from tests.rig.admin_parts import Admin, worked
from tests.rig.node_parts import GROUP, TOPIC
from tests.rig.rest_parts import served
from tests.rig.virtual_time import now_ms, run


def test_a_group_that_stops_has_a_warning_while_its_lag_grows() -> None:
    """A look every ten seconds; 40 records come meanwhile."""

    async def work() -> None:
        admin = Admin()
        node = admin.node
        async with node, asyncio.TaskGroup() as tasks:
            lags = admin.lags()
            histories = GroupHistories(lags, node.flow, node.groups.get, now_ms)
            await worked(admin)
            looking = tasks.create_task(lags.refresh_forever())
            await asyncio.sleep(STOPPED_MS / 1_000 + 20)
            assert not histories.stopped(GROUP), "nothing comes: nobody waits"
            for _ in range(STOPPED_MS // LAG_MS + 2):
                node.log.produce(*[b"k"] * 40, partition=0)
                await asyncio.sleep(LAG_MS / 1_000)
            assert histories.stopped(GROUP)
            (said,) = histories.warnings()
            assert said.startswith(f"group {GROUP} has no member, and its lag grows: ")
            assert histories.of(GROUP).flow() == Flow(4.0, 0.0, 0.0)
            assert histories.of(GROUP, TOPIC).flow() == Flow(4.0, 0.0, 0.0)
            node.beat("m2")
            assert histories.warnings() == []
            node.beat("m2", -1)
            assert histories.warnings() == [said]
            (partition,) = {lag.tp for lag in lags.all() if lag.tp.partition == 0}
            node.flow.sent(GROUP, TOPIC, 7)
            node.flow.noticed(GROUP, partition, Noticed(Notice.ACCEPTED, 5))
            node.flow.noticed(GROUP, partition, Noticed(Notice.RELEASED, 2))
            await asyncio.sleep(LAG_MS / 1_000)
            assert histories.warnings() == [], "somebody was there, for a moment"
            async with served(admin, lags=lags) as client:
                answer = await client.get(f"/v1/history?group={GROUP}")
                assert answer.json()["whole"]["lag"] == [], "of the node that was just made"
                assert (await client.get("/v1/history?group=nobody")).status_code == 404
            last = list(histories.of(GROUP, TOPIC).points())[-1]
            assert (last.flow.delivered, last.flow.settled) == (0.7, 0.5)
            node.groups.forget(GROUP)
            await asyncio.sleep(LAG_MS / 1_000)
            assert histories.topics(GROUP) == {}
            looking.cancel()

    run(work())


class Scripted:
    """In place of Lags: the sums of the next sample."""

    def __init__(self) -> None:
        self.now: dict[str, LagSum] = {}

    def on_look(self, tell: Any) -> None:
        self.tell = tell

    async def sums(self, _portions: Portions) -> dict[str, LagSum]:
        return self.now


def test_histories_are_bounded_and_those_at_work_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_histories, "HISTORIES_MAX", 3)

    async def work() -> None:
        admin = Admin()
        flow, lags = admin.node.flow, Scripted()
        histories = GroupHistories(lags, flow, lambda _: None, now_ms)  # type: ignore[arg-type]
        busy = LagSum(None)
        busy.topics["a"] = busy_topic = TopicSum()
        lags.now = {"busy": busy}
        for at in range(6):
            flow.sent("busy", "a", 1)
            busy_topic.produced += 10
            lags.now[f"idle-{at}"] = LagSum(None)
            await lags.tell(Portions(factor=0))
            await asyncio.sleep(10)
        assert len(histories.of("busy", "a")) == 6
        assert histories.of("busy").flow() == Flow(1.0, 0.1, 0.0)

    run(work())


def test_of_many_stopped_groups_the_first_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    histories = GroupHistories(Scripted(), Admin().node.flow, lambda _: None, now_ms)  # type: ignore[arg-type]
    names = [f"g{at:02}" for at in range(STOPPED_GROUPS_NAMED + 5)]
    for name in names:
        histories._add(name, "", Sample(0, 0, 0, 0, 0, 9))
    monkeypatch.setattr(GroupHistories, "stopped", lambda *_: True)
    *named, last = histories.warnings()
    assert len(named) == STOPPED_GROUPS_NAMED
    assert named[0] == "group g00 has no member, and its lag grows: 9 records"
    assert last == "so do 5 more groups"
