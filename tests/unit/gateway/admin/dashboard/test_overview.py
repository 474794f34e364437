"""The overview: made for those who look, once for all of them, with the figures of the groups."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dispatcher.core.model import (
    Acknowledge,
    Acquire,
    MemberId,
    PoisonPolicy,
    SessionId,
)
from dispatcher.store.base import StoreError
from gateway.admin.dashboard import overview
from gateway.admin.dashboard.overview import Overviews
from gateway.admin.dashboard.rows import Overview, TrafficRow
from gateway.admin.health import Health
from gateway.admin.limits import OVERVIEW_GROUPS_MAX, OVERVIEW_S, OVERVIEW_S_MAX
from gateway.admin.tokens import Caller
from gateway.config.admin import Role
from gateway.config.groups import GroupSection
from gateway.core.reading.fetching import Unreadable
from gateway.operations.group_histories import GroupHistories
from gateway.operations.lag import Lags
from gateway.operations.limits import LAG_MS, LAG_WATCHED_MS
from gateway.windows.window import Window
from tests.rig.admin_parts import Admin
from tests.rig.node_parts import GROUP
from tests.rig.virtual_time import now_ms, run, settle

M1, S1 = MemberId("m1"), SessionId("s1")


class Watched:
    """A node with a group of one member, and its overviews."""

    def __init__(self, admin: Admin) -> None:
        self.admin = admin
        self.node = admin.node
        self.lags = admin.lags()
        self.looks = 0  # at the health
        self.now_s = 0.0
        self.overviews = Overviews(
            groups=self.node.groups,
            windows=self.node.windows.table,
            lags=self.lags,
            histories=GroupHistories(self.lags, self.node.flow, self.node.groups.get, now_ms),
            health=self.look,
            traffic=lambda: TrafficRow(connections=3),
            outcomes=lambda group: {"redelivered": 4} if group == GROUP else {},
            clock=lambda: self.now_s,
        )

    async def look(self) -> Health:
        self.looks += 1
        return Health(True, ("a reason",), {"windows": 2})

    async def shown(self) -> dict[str, Any]:
        text = (await self.overviews.latest()).text()
        Overview.model_validate_json(text)
        found: dict[str, Any] = json.loads(text)
        return found


def story(tell: Callable[[Watched], Awaitable[None]]) -> None:
    async def work() -> None:
        section = GroupSection(auto_offset_reset="earliest", rejected=PoisonPolicy.BLOCK)
        admin = Admin(section=section)
        async with admin.node as node:
            node.log.produce(b"a", b"b", b"c")
            node.beat()
            await settle()
            await tell(Watched(admin))

    run(work())


def test_a_line_for_each_group() -> None:
    async def tell(watched: Watched) -> None:
        acquired = watched.node.window().acquire(Acquire(M1, S1, 100, now_ms()))
        assert acquired is not None
        reject = Acknowledge(M1, S1, [(0, 0, b"\3")], now_ms())
        await watched.node.window().ask(reject)
        await watched.lags.refresh(stored=True)
        shown = await watched.shown()
        (line,) = shown["groups"]
        assert {name: line[name] for name in ("group", "state", "members", "topics")} == {
            "group": GROUP,
            "state": "Stable",
            "members": 1,
            "topics": ["orders"],
        }
        assert (line["windows"], line["waiting"], line["stuck"]) == (2, 0, 0)
        assert (line["lag"], line["in_flight"], line["parked"]) == (3, 2, 1)
        assert line["outcomes"] == {"redelivered": 4}
        health = {"status": "degraded", "reasons": ["a reason"], "warnings": [], "windows": 2}
        assert shown["health"] == health
        assert shown["traffic"]["connections"] == 3
        assert shown["at_ms"] == now_ms()

    story(tell)


def test_a_group_at_rest_is_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[Window] = []
    add = overview._Sums.add

    def noted(sums: overview._Sums, window: Window) -> None:
        counted.append(window)
        add(sums, window)

    monkeypatch.setattr(overview._Sums, "add", noted)

    async def tell(watched: Watched) -> None:
        node = watched.node

        async def line() -> dict[str, Any]:
            watched.now_s += OVERVIEW_S_MAX
            (found,) = (await watched.shown())["groups"]
            return dict(found)

        await asyncio.sleep(1)
        first = await line()
        counted.clear()
        assert await line() == first
        assert counted == []
        assert node.window().acquire(Acquire(M1, S1, 2, now_ms())) is not None
        assert (await line())["in_flight"] == 2, "at once"
        await asyncio.sleep(1)
        assert (await line())["in_flight"] == 2
        node.log.troubles[0] = Unreadable("corrupt", -1)
        assert (await line())["stuck"] == 1, "the reader's troubles need no event"
        node.log.troubles.clear()
        assert (await line())["stuck"] == 0
        node.store.down = True
        node.window(1).fail(StoreError("away"))
        assert (await line())["waiting"] == 1
        node.windows.table.drop(node.window(1).key)
        assert (await line())["windows"] == 1

    story(tell)


def test_a_group_without_figures_has_a_line() -> None:
    async def tell(watched: Watched) -> None:
        watched.node.groups.ensure("empty")
        lines = {group["group"]: group for group in (await watched.shown())["groups"]}
        assert (lines["empty"]["state"], lines["empty"]["lag"]) == ("Empty", None)

    story(tell)


def test_made_once_for_all_that_look_within_two_seconds() -> None:
    async def tell(watched: Watched) -> None:
        first = await watched.overviews.latest()
        watched.now_s = OVERVIEW_S - 0.1
        assert await watched.overviews.latest() is first
        assert watched.looks == 1
        watched.now_s = OVERVIEW_S
        assert await watched.overviews.latest() is not first
        assert watched.looks == 2

    story(tell)


def test_a_snapshot_that_takes_long_is_made_more_rarely() -> None:
    async def tell(watched: Watched) -> None:
        async def slow() -> Health:
            watched.now_s += 1.0
            return await watched.look()

        watched.overviews.health = slow
        first = await watched.overviews.latest()
        watched.now_s += OVERVIEW_S
        assert await watched.overviews.latest() is first
        watched.now_s += OVERVIEW_S_MAX - OVERVIEW_S
        assert await watched.overviews.latest() is not first

    story(tell)


def test_a_viewer_gets_the_groups_that_are_visible_to_it() -> None:
    async def tell(watched: Watched) -> None:
        for name in ("a/b", "<script>", 'q"uote'):
            watched.node.groups.ensure(name)
        snapshot = await watched.overviews.latest()
        every = [group["group"] for group in json.loads(snapshot.text())["groups"]]
        assert every == sorted([GROUP, "a/b", "<script>", 'q"uote'])
        some = json.loads(snapshot.text(Caller("some", Role.VIEWER, ("a/*",), keys=False)))
        assert [group["group"] for group in some["groups"]] == ["a/b"]
        assert "a reason" not in json.dumps(some), "it may name other groups"
        assert some["traffic"] is None, "it is that of all clients"
        Overview.model_validate(some)
        none = json.loads(snapshot.text(Caller("none", Role.ADMIN, ("z",), keys=False)))
        assert none["groups"] == []

    story(tell)


def test_there_is_an_end_to_the_groups_of_a_snapshot() -> None:
    async def tell(watched: Watched) -> None:
        for at in range(OVERVIEW_GROUPS_MAX + 4):
            watched.node.groups.ensure(f"g{at:05}")
        shown = await watched.shown()
        assert len(shown["groups"]) == OVERVIEW_GROUPS_MAX
        assert shown["groups_hidden"] == 5
        snapshot = await watched.overviews.latest()
        last = f"g{OVERVIEW_GROUPS_MAX:05}"
        for globs, hidden in (((last,), 1), (("g00001", last), 1), (("none",), 0)):
            some = json.loads(snapshot.text(Caller("some", Role.VIEWER, globs, keys=False)))
            assert some["groups_hidden"] == hidden, "of those that it may see"

    story(tell)


def test_lag_is_looked_at_more_often_while_somebody_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[int] = []

    async def refresh(_: Lags, **_given: object) -> None:
        looks.append(now_ms())

    monkeypatch.setattr(Lags, "refresh", refresh)

    async def tell(watched: Watched) -> None:
        task = watched.node.tasks.create_task(watched.lags.refresh_forever())
        await settle()
        await watched.overviews.latest()
        await asyncio.sleep(2 * LAG_MS / 1000)
        task.cancel()
        since = [look - looks[0] for look in looks[:3]]
        assert since == [0, LAG_WATCHED_MS, LAG_WATCHED_MS + LAG_MS]

    story(tell)
