"""A primary that is read over REST shows less than it has, or really lost it; on the virtual clock.

The whole service runs but for Kafka: the reader, the questions by name, and a target.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import cast

import pytest

from keyway.clusters.core.names import compile_pattern
from keyway.clusters.core.subjects import pair_subjects
from schema_dist.confirming import Confirming
from schema_dist.metrics import Metrics
from schema_dist.parts import TargetParts
from schema_dist.rest_client import RestClient
from schema_dist.rest_reader import RestReader
from schema_dist.rest_writer import RestTarget
from schema_dist.service import Follower, News, follow
from schema_dist.state_topic import StateTopic
from schema_dist.target_sync import Allowed
from tests.rig.schema_registry.app import App
from tests.rig.schema_registry.in_process import URL, InProcess, MemoryLedger, Sent, client_of
from tests.rig.schema_registry.state import Stored
from tests.rig.virtual_time import now_s, run

NAMES = pair_subjects(compile_pattern("{topic}"), compile_pattern("{topic}.b"))
INGRESS = (404, b"<html>default backend - 404</html>")
NO_ROUTE = (404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}')
Fault = Callable[[str, str], tuple[int, bytes] | None]  # path, query: another answer, or None


class Scripted(App):
    """The primary's registry; `fault` answers in its place. With `lists`, it has `/schemas`."""

    def __init__(self, versions: int, *, lists: bool) -> None:
        super().__init__()
        self.fault: Fault = lambda _path, _query: None
        self.lists = lists
        for at in range(versions):
            body = {"schema": json.dumps({"type": "fixed", "name": f"n{at}", "size": 1})}
            self.registry.register(f"s{at}-value", body)

    def carry_out(self, method: str, path: str, query: str, body: bytes) -> tuple[int, bytes]:
        if path == "/schemas" and not self.lists:
            return NO_ROUTE
        found = self.fault(path, query) if method == "GET" else None
        return super().carry_out(method, path, query, body) if found is None else found


class Quiet(MemoryLedger):
    async def report(self, status: object) -> None:
        """Nobody asks."""

    async def beat(self, told: object) -> None:
        """Nobody asks."""


class World:
    def __init__(self, versions: int, *, lists: bool = True, hard_deletes: bool = False) -> None:
        self.source, self.target = Scripted(versions, lists=lists), App()
        self._hard = hard_deletes

    def live(self) -> int:
        return sum(not version.deleted for version in self.target.registry.all())

    def held(self) -> int:
        return len(list(self.target.registry.all()))

    def stored(self, at: int) -> Stored:
        return self.source.registry.subjects[f"s{at}-value"][1]

    async def follow(self, scenario: Callable[[], asyncio.Future[None] | object]) -> None:
        client = RestClient(URL, Sent(InProcess(self.source)))
        confirming, news, metrics = Confirming(client.presence), News(), Metrics()
        may = Allowed(confirming, hard_deletes=self._hard)
        state = cast(StateTopic, Quiet())
        parts = TargetParts(
            "b", RestTarget(client_of(self.target)), state, NAMES, lambda _subject: True
        )
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(job)
                for job in (
                    confirming.run(news.again),
                    follow(RestReader(client), news, metrics, 5_000, []),
                    Follower(parts, "a", metrics, may).run(news),
                )
            ]
            await until(lambda: self.live() == len(list(self.source.registry.all())))
            made = scenario()
            if asyncio.iscoroutine(made):
                await made
            for task in running:
                task.cancel()


async def until(done: Callable[[], bool], within_s: float = 30.0) -> None:
    end = now_s() + within_s
    while not done():
        assert now_s() < end
        await asyncio.sleep(0.5)


@pytest.mark.parametrize("lists", [True, False], ids=["list", "one by one"])
@pytest.mark.parametrize("text", [INGRESS, NO_ROUTE], ids=["ingress", "no route"])
def test_a_404_of_somebody_else_takes_nothing_away(text: tuple[int, bytes], *, lists: bool) -> None:
    """For a while every question about live versions is answered by an ingress."""
    world = World(8, lists=lists)

    async def scenario() -> None:
        for fault in (
            lambda _path, query: None if "deleted=true" in query else text,
            lambda _path, _query: text,
            lambda path, _query: text if "/versions" in path else None,
            lambda path, query: text if path == "/schemas" and "deleted" not in query else None,
        ):
            world.source.fault = fault
            await asyncio.sleep(120)
            assert world.live() == 8
            world.source.fault = lambda _path, _query: None
            await asyncio.sleep(70)
            assert world.live() == 8

    run(world.follow(scenario))


def test_a_list_that_lacks_some_takes_nothing_away() -> None:
    """By name they are there, however long the list lacks them."""
    world = World(110, hard_deletes=True)

    def lacking(path: str, query: str) -> tuple[int, bytes] | None:
        if path != "/schemas":
            return None
        status, body = App.carry_out(world.source, "GET", path, query, b"")
        return status, json.dumps(json.loads(body)[: 60 if "deleted" in query else 0]).encode()

    async def scenario() -> None:
        world.source.fault = lacking
        await asyncio.sleep(200)
        assert (world.live(), world.held()) == (110, 110)

    run(world.follow(scenario))


@pytest.mark.parametrize("hard_deletes", [False, True])
def test_what_is_really_gone_goes_after_a_minute(*, hard_deletes: bool) -> None:
    world = World(30, hard_deletes=hard_deletes)

    async def scenario() -> None:
        world.stored(0).deleted = True
        for at in range(1, 10):
            world.stored(at).deleted = True
            world.source.registry.delete(f"s{at}-value", "1", permanent=True)
        began = now_s()
        await asyncio.sleep(58)
        assert world.live() == 30
        await until(lambda: world.live() == 20)
        assert now_s() - began >= 60
        await asyncio.sleep(10)
        assert world.held() == (21 if hard_deletes else 30)

    run(world.follow(scenario))


def test_a_registry_that_is_away_meanwhile_is_asked_anew() -> None:
    world = World(30)

    async def scenario() -> None:
        world.stored(0).deleted = True
        await asyncio.sleep(50)
        world.source.fault = lambda path, _query: (503, b"") if "/s0-value/" in path else None
        await asyncio.sleep(100)
        assert world.live() == 30
        world.source.fault = lambda _path, _query: None
        await asyncio.sleep(58)
        assert world.live() == 30
        await until(lambda: world.live() == 29)

    run(world.follow(scenario))


def test_more_than_may_go_at_once_stay() -> None:
    world = World(110, hard_deletes=True)

    async def scenario() -> None:
        for at in range(101):
            world.stored(at).deleted = True
        await asyncio.sleep(120)
        assert world.live() == 110

    run(world.follow(scenario))


def test_a_list_that_lacks_subjects_takes_no_level_back() -> None:
    """Levels of listed subjects alone were asked for: the others counted as gone after a minute."""
    world = World(110)
    there, levels = world.target.registry.config, world.source.registry.config
    levels["s109-value"] = "NONE"

    def lacking(path: str, _query: str) -> tuple[int, bytes] | None:
        if path != "/schemas":
            return None
        status, body = App.carry_out(world.source, "GET", path, "deleted=true", b"")
        shown = [row for row in json.loads(body) if row["subject"] != "s109-value"]
        return status, json.dumps(shown).encode()

    async def scenario() -> None:
        await until(lambda: there == {"s109.b-value": "NONE"}, within_s=130)
        world.source.fault = lacking
        await asyncio.sleep(600)
        assert there == {"s109.b-value": "NONE"}
        del levels["s109-value"]
        await until(lambda: there == {}, within_s=200)

    run(world.follow(scenario))


def test_a_level_that_is_not_shown_for_a_while_is_not_taken_back() -> None:
    """One answer without it took it from every target, until the next answer."""
    world = World(3)
    there, levels = world.target.registry.config, world.source.registry.config
    levels["s0-value"] = levels["s1-value"] = "NONE"
    without = (404, b'{"error_code": 40408, "message": "it has no level of its own"}')

    async def scenario() -> None:
        await until(lambda: there.keys() == {"s0.b-value", "s1.b-value"}, within_s=130)
        world.source.fault = lambda path, _query: without if path == "/config/s0-value" else None
        await asyncio.sleep(50)
        world.source.fault = lambda _path, _query: None
        await asyncio.sleep(130)
        del levels["s1-value"]
        await asyncio.sleep(55)
        assert there == {"s0.b-value": "NONE", "s1.b-value": "NONE"}
        await until(lambda: there == {"s0.b-value": "NONE"}, within_s=130)

    run(world.follow(scenario))


def test_a_registry_that_shows_no_level_at_all_takes_back_none() -> None:
    """It answers by its own code that no subject has one, for longer than a minute."""
    world = World(20)
    there, levels = world.target.registry.config, world.source.registry.config
    levels |= {f"s{at}-value": "NONE" for at in range(20)}
    without = (404, b'{"error_code": 40401, "message": "Subject not found"}')

    async def scenario() -> None:
        await until(lambda: len(there) == 20, within_s=130)
        world.source.fault = lambda path, _query: without if path.startswith("/config") else None
        await asyncio.sleep(600)
        assert len(there) == 20
        world.source.fault = lambda _path, _query: None
        del levels["s1-value"]
        await until(lambda: len(there) == 19, within_s=200)

    run(world.follow(scenario))
