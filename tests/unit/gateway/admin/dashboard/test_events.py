"""Event streams: the latest snapshot for each viewer, an end for slow ones, for many, at a stop."""

from __future__ import annotations

import asyncio
import json
from typing import cast

import pytest
from starlette.exceptions import HTTPException
from starlette.types import Message

from gateway.admin.dashboard.events import EventStream, Viewers
from gateway.admin.dashboard.overview import Overviews, Snapshot
from gateway.admin.dashboard.overview_of_nodes import OverviewsOfNodes
from gateway.admin.limits import OVERVIEW_S, VIEW_S_MAX, VIEWER_SEND_S_MAX, VIEWERS_MAX
from gateway.admin.tokens import ANYBODY, Caller
from gateway.config.admin import Role
from tests.rig.virtual_time import run, settle


class Counted:
    """Overviews whose snapshots are numbered."""

    def __init__(self) -> None:
        self.made = 0

    async def latest(self) -> Snapshot:
        self.made += 1
        groups = {name: json.dumps({"group": name}).encode() for name in ("a", "b")}
        head = b'{"number":%d' % self.made
        return Snapshot(head, head + b',"outline":true', groups)


class Viewer:
    """A browser: `gone` when it has left, `stuck` when it takes nothing more."""

    def __init__(self, viewers: Viewers, caller: Caller = ANYBODY) -> None:
        self.overviews = Counted()
        of_nodes = OverviewsOfNodes(cast(Overviews, self.overviews), None)
        self.stream = EventStream(lambda: of_nodes.text(caller, None), viewers)
        self.sent: list[Message] = []
        self.gone = False
        self.stuck = asyncio.Event()

    async def receive(self) -> Message:
        if self.gone:
            return {"type": "http.disconnect"}
        await asyncio.Event().wait()
        raise AssertionError("nobody says more")

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        if self.stuck.is_set():
            await asyncio.sleep(3_600)

    async def watch(self) -> None:
        await self.stream({"type": "http", "headers": []}, self.receive, self.send)

    def numbers(self) -> list[int]:
        data = [
            message["body"].decode().partition("data: ")[2]
            for message in self.sent[1:]
            if message["body"]
        ]
        return [json.loads(text)["number"] for text in data]


async def after(seconds: float) -> None:
    await asyncio.sleep(seconds)
    await settle()


def test_an_event_every_two_seconds_until_the_viewer_leaves() -> None:
    async def work() -> None:
        viewers = Viewers()
        async with asyncio.TaskGroup() as tasks:
            viewer = Viewer(viewers)
            tasks.create_task(viewer.watch())
            await after(3 * OVERVIEW_S + 0.5)
            assert viewers.count == 1
            viewer.gone = True
        assert viewer.numbers() == [1, 2, 3, 4]
        assert viewers.count == 0
        start, first = viewer.sent[:2]
        headers = dict(start["headers"])
        assert headers[b"content-type"].startswith(b"text/event-stream")
        assert headers[b"cache-control"] == b"no-store"
        assert b"content-length" not in headers
        assert first["body"].startswith(b"retry: 2000\n\nevent: overview\ndata: {")
        assert first["body"].endswith(b"}\n\n")

    run(work())


def test_a_viewer_sees_its_groups() -> None:
    async def work() -> None:
        async with asyncio.TaskGroup() as tasks:
            viewer = Viewer(Viewers(), Caller("some", Role.VIEWER, ("b*",), keys=False))
            tasks.create_task(viewer.watch())
            await after(0.1)
            viewer.gone = True
        data = json.loads(viewer.sent[1]["body"].decode().partition("data: ")[2])
        assert (data["outline"], data["groups"]) == (True, [{"group": "b"}])

    run(work())


def test_a_viewer_that_takes_nothing_is_dropped_and_holds_nobody_back() -> None:
    async def work() -> None:
        viewers = Viewers()
        async with asyncio.TaskGroup() as tasks:
            slow, quick = Viewer(viewers), Viewer(viewers)
            for viewer in (slow, quick):
                tasks.create_task(viewer.watch())
            await after(0.1)
            slow.stuck.set()
            await after(OVERVIEW_S + VIEWER_SEND_S_MAX)
            assert viewers.count == 1
            assert len(quick.numbers()) >= 6
            quick.gone = True
        assert slow.numbers() == [1, 2]
        assert slow.sent[-1].get("more_body"), "its answer is cut off, so that its browser knows"

    run(work())


def test_a_stream_ends_in_time_so_that_its_caller_is_looked_at_again() -> None:
    async def work() -> None:
        viewer = Viewer(Viewers())
        await viewer.watch()
        assert len(viewer.numbers()) == VIEW_S_MAX / OVERVIEW_S
        assert viewer.sent[-1]["more_body"] is False

    run(work())


def test_there_is_an_end_to_the_viewers() -> None:
    async def work() -> None:
        viewers = Viewers()
        many: list[Viewer] = []
        async with asyncio.TaskGroup() as tasks:
            for _ in range(VIEWERS_MAX):
                many.append(Viewer(viewers))
                tasks.create_task(many[-1].watch())
                await settle(5)
            with pytest.raises(HTTPException, match="dashboards are open") as refused:
                Viewer(viewers)
            assert refused.value.status_code == 503
            many[0].gone = True
            await after(OVERVIEW_S)
            Viewer(viewers)
            for viewer in many:
                viewer.gone = True

    run(work())


def test_all_end_at_once_when_the_node_stops() -> None:
    async def work() -> None:
        viewers = Viewers()
        async with asyncio.TaskGroup() as tasks:
            viewer = Viewer(viewers)
            tasks.create_task(viewer.watch())
            await after(0.1)
            await viewers.end()
            await settle()
            assert viewers.count == 0
        assert viewer.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}

    run(work())
