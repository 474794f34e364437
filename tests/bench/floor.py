"""A share fetch beside its floor: CPU of the gateway, and of Redis, for each fetch and what it
acknowledges.

One librdkafka share consumer on a topic of few keys, so that every fetch returns a record of each
key and acknowledges those of the one before. The floor (floor_server.py) takes turns with it in the
same rounds: a ratio of the two holds on any machine.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from dispatcher.core.model import LeaseId, MemberId, SessionId
from dispatcher.core.steps import Change, CursorMoved, LeaseEnded, LeaseTaken, Snapshot
from dispatcher.store.base import WindowKey, Write
from dispatcher.store.redis import RedisStore
from dispatcher.store.script_calls import apply_calls
from gateway.embedded.redis import EmbeddedRedis
from tests.bench.cases import PARTITIONS, Bench, finish
from tests.bench.cost import cpu_s
from tests.bench.floor_server import ANSWER_BYTES, REQUEST_BYTES, WINDOWS
from tests.bench.load import drawn, load
from tests.bench.rows import Row, rows_of
from tests.rig.gateway_process import REPOSITORY
from tests.rig.kafka import create_topic
from tests.rig.operating import metrics

PART = "share fetch"
UNIT = "µs of CPU per fetch"
FLOOR = "share fetch: the floor"
FLOOR_REDIS = "share fetch: the floor, Redis"
RECORDS = 10_000  # of a round, KEYS a fetch
KEYS = 10
FLOOR_FETCHES = 3_000  # of a round
WIDE = 100  # partitions, of which as many as keys have records
CASES = {
    f"share fetch: {KEYS} keys, {PARTITIONS} partitions": PARTITIONS,
    f"share fetch: {KEYS} keys, {WIDE} partitions": WIDE,
}
REDIS = ": Redis"
PAIRS: dict[str, tuple[str, ...]] = {}
for _case in CASES:
    PAIRS |= {_case: (FLOOR,), _case + REDIS: (FLOOR_REDIS,)}
FETCHES = 'keyway_server_requests_total{api="share_fetch"}'
ANSWER_S_MAX = 30.0
_numbers = itertools.count(1)


def share_fetch(bench: Bench, rounds: Iterable[int]) -> list[Row]:
    """A row per case, and per case of Redis, each against the floor's."""
    for case, partitions in CASES.items():
        create_topic(bench.kafka.bootstrap_servers, _topic(case), partitions=partitions)
        load(bench.kafka.bootstrap_servers, _topic(case), drawn(RECORDS, KEYS))
    costs: dict[str, list[float]] = {}
    with floor(bench.directory / "floor") as least:
        for at in rounds:
            found = least.measure()
            for case in CASES:
                found |= _consumed(bench, case)
            for name, cost in found.items():
                costs.setdefault(name, []).append(cost)
            figures = ", ".join(f"{cost:.0f}" for cost in found.values())
            sys.stdout.write(f"round {at + 1}  {PART}: {figures} µs\n")
    return rows_of(costs, PAIRS, unit=UNIT)


def _topic(case: str) -> str:
    return f"bench-floor-{CASES[case]}"


def _consumed(bench: Bench, case: str) -> dict[str, float]:
    gateway = psutil.Process(bench.gateway.pid)
    (redis,) = (child for child in gateway.children() if child.name() == "redis-server")
    before = cpu_s(gateway), cpu_s(redis), metrics(bench.gateway).get(FETCHES, 0)
    command = [
        *(sys.executable, "-m", "tests.bench.librdkafka_consume", "share"),
        *(bench.gateway.bootstrap, f"bench-floor-{next(_numbers)}", _topic(case)),
        *(str(RECORDS), str(int(bench.run_s_max))),
    ]
    finish(bench, command)
    fetches = metrics(bench.gateway)[FETCHES] - before[2]
    return {
        case: (cpu_s(gateway) - before[0]) * 1e6 / fetches,
        case + REDIS: (cpu_s(redis) - before[1]) * 1e6 / fetches,
    }


class Floor:
    def __init__(self, server: subprocess.Popen[str], redis: int) -> None:
        assert server.stdout is not None
        self._port = int(server.stdout.readline())
        self._server = psutil.Process(server.pid)
        self._redis = psutil.Process(redis)

    def measure(self) -> dict[str, float]:
        before = cpu_s(self._server), cpu_s(self._redis)
        with socket.create_connection(("127.0.0.1", self._port), ANSWER_S_MAX) as line:
            for _ in range(FLOOR_FETCHES):
                line.sendall(bytes(REQUEST_BYTES))
                answered = 0
                while answered < ANSWER_BYTES:
                    data = line.recv(ANSWER_BYTES)
                    assert data, "the floor hung up"
                    answered += len(data)
        spent = cpu_s(self._server) - before[0], cpu_s(self._redis) - before[1]
        return {
            FLOOR: spent[0] * 1e6 / FLOOR_FETCHES,
            FLOOR_REDIS: spent[1] * 1e6 / FLOOR_FETCHES,
        }


@contextmanager
def floor(directory: Path) -> Iterator[Floor]:
    directory.mkdir(parents=True, exist_ok=True)
    with EmbeddedRedis(directory / "redis") as redis:
        commands = directory / "commands"
        commands.write_bytes(asyncio.run(_commands(redis.url)))
        command = [sys.executable, "-m", "tests.bench.floor_server"]
        address = redis.url.removeprefix("unix://").partition("?")[0]
        with subprocess.Popen(
            [*command, address, str(commands)], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
        ) as server:
            try:
                assert redis.pid is not None
                yield Floor(server, redis.pid)
            finally:
                server.kill()


async def _commands(url: str) -> bytes:
    """The step of a steady state, of WINDOWS windows, as RedisStore sends it: the records of one
    lease are settled, and others are leased.
    """
    store = RedisStore(url)
    try:
        writes = []
        for at in range(WINDOWS):
            key = WindowKey("floor", "topic", at)
            fence = (await store.claim(key, "node")).fence
            await store.create(key, fence, Snapshot(0))
            writes.append(Write(key, fence, _step()))
        assert not any(await store.apply(writes))  # Redis knows the script now.
        return apply_calls(store._sha.encode(), *store._claims.steps(writes)[:2])[0]
    finally:
        await store.close()


def _step() -> list[Change]:
    member, session = MemberId("m" * 36), SessionId("s" * 36)
    offsets = [1_001, 1_003]
    return [
        LeaseEnded(LeaseId(1)),
        CursorMoved(1_000, 1_000),
        LeaseTaken(LeaseId(2), member, session, 1_700_000_000_000, offsets),
    ]
