"""Targets that are late or away: named, counted, tried again, and no other waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, cast

import aiohttp
import pytest

from keyway.clusters.core.names import compile_pattern
from keyway.clusters.core.subjects import pair_subjects
from schema_dist import service, transport
from schema_dist.confirming import Confirming
from schema_dist.core.contents import Contents
from schema_dist.core.model import Schema
from schema_dist.metrics import Metrics
from schema_dist.parts import TargetParts
from schema_dist.rest_client import RestClient
from schema_dist.rest_writer import RestTarget
from schema_dist.service import Follower, News
from schema_dist.state_topic import StateTopic
from schema_dist.target_sync import Allowed
from schema_dist.transport import Connections
from tests.rig.patience import patient_s
from tests.rig.schema_registry.app import App
from tests.rig.schema_registry.in_process import MemoryLedger
from tests.rig.schema_registry.site import version
from tests.rig.schema_registry.sockets import listening, until

NAMES = pair_subjects(compile_pattern("{topic}"), compile_pattern("{topic}.b"))
ANSWER_S = 2.0


class Ledger(MemoryLedger):
    def __init__(self) -> None:
        super().__init__()
        self.reports: list[Mapping[str, Any]] = []

    async def report(self, status: Mapping[str, Any]) -> None:
        self.reports.append(status)

    async def beat(self, told: Mapping[str, Any]) -> None:
        """Nobody asks."""


class Server:
    """The rig's registry behind a socket; each answer leaves after `late_s`."""

    def __init__(self, late_s: float) -> None:
        self.app = App()
        self.late_s = late_s

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *headers = head.split("\r\n")
            sizes = [header for header in headers if header.lower().startswith("content-length:")]
            body = await reader.readexactly(int(sizes[0].split(":")[1]) if sizes else 0)
            await asyncio.sleep(self.late_s)
            path, _, query = line.split()[1].partition("?")
            status, data = self.app.carry_out(line.split()[0], path, query, body)
            writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\n\r\n".encode())
            writer.write(data)

    def has(self, subject: str) -> bool:
        return subject in self.app.registry.subjects


def test_a_registry_that_is_too_late_is_tried_again_and_delays_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "TIMEOUT", aiohttp.ClientTimeout(sock_read=ANSWER_S))
    monkeypatch.setattr(service, "RETRY_S_MIN", 0.01)
    told: list[Mapping[str, Any]] = []
    monkeypatch.setattr(
        service._LOG, "warning", lambda text, **fields: told.append({"text": text, **fields})
    )
    late, quick, metrics, news = Server(late_s=2 * ANSWER_S), Server(late_s=0), Metrics(), News()
    ledgers: dict[str, Ledger] = {}
    contents = Contents()
    contents.put(version("s-value", 1, 7, Schema("AVRO", '"string"')), 0)

    def failed() -> float:
        found = metrics.registry.get_sample_value(
            "keyway_schemas_failed_rounds_total", {"target": "late"}
        )
        return found or 0.0

    async def run() -> None:
        async with (
            asyncio.timeout(patient_s(60)),
            AsyncExitStack() as stack,
            asyncio.TaskGroup() as tasks,
        ):
            running, may = [], Allowed(Confirming(None))
            for name, server in (("late", late), ("quick", quick)):
                url = await stack.enter_async_context(listening(server.serve))
                http = await stack.enter_async_context(Connections())
                target = RestTarget(RestClient(url, http))
                ledgers[name] = Ledger()
                state = cast(StateTopic, ledgers[name])
                parts = TargetParts(name, target, state, NAMES, lambda _subject: True)
                running.append(tasks.create_task(Follower(parts, "a", metrics, may).run(news)))
            await news.publish(contents)
            await until(lambda: failed() >= 2 and quick.has("s.b-value"))
            assert not late.has("s.b-value")
            late.late_s = 0
            await until(lambda: late.has("s.b-value"))
            await until(lambda: ledgers["late"].reports[-1]["problem"] is None)
            for task in running:
                task.cancel()

    asyncio.run(run())
    first, *_, last = ledgers["late"].reports
    assert first["target"] == "late"
    assert "no answer in time" in first["problem"]
    assert (last["in_sync"], last["behind"]) == (1, 0)
    assert [report["problem"] for report in ledgers["quick"].reports] == [None]
    assert {line["target"] for line in told} == {"late"}
    assert all("no answer in time" in line["error"] for line in told)
    assert metrics.registry.get_sample_value(
        "keyway_schemas_failed_rounds_total", {"target": "quick"}
    ) in (None, 0.0)
