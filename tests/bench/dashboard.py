"""The price of an open dashboard: latency through a node of 200 groups with 64 windows each, while
somebody looks and while nobody does.

The viewer asks for all that the page asks for on the most costly view, one group's partitions: the
event stream, and every 2.5 s the group and the pictures of its windows. It draws nothing: a browser
on the same two cores would take more from the node than its questions do. A steady producer and a
share consumer go through the node on another topic; their records tell the latency.

A round is one load, and the viewer comes and goes under it, in slots of SLOT_S. Each slot has a p99
of its own, and the median of those is judged: a moment in which the broker or the machine stands
still is in one slot, the cost of the dashboard is in every slot that has it open.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse

import psutil

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from gateway.embedded.process import wait_until
from tests.bench.cases import Bench
from tests.bench.cost import cpu_s
from tests.bench.latency import STATISTICS, Load, run_once, running
from tests.bench.rows import Row, rows_of
from tests.rig.clients.wire_client import COORDINATOR_STARTS, WireClient
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import create_topic, produce

GROUPS = 200
PARTITIONS = 64
RECORDS_PER_PARTITION = 10  # unsettled in each window
# Small batches, a request each: at 5,000 a second broker, node and clients take both cores, and the
# records wait for those rather than for the node.
PER_SECOND = 2_000
SLOT_S = 6.0
SLOT_ENDS_S_MAX = 3.0  # the viewer leaves with the next overview
OPEN_S_MAX = 240.0  # interpreted, a window takes some 10 ms to load
HEARTBEAT_S = 5.0
NEW_LINE_S = 1.0
EVICTED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
LOOK_S = 2.5  # as static/rest.js
CLOSED, OPEN = "dashboard closed", "dashboard open"
SLOTS = (CLOSED, OPEN, OPEN, CLOSED, CLOSED, OPEN)  # of a round; the next one has them reversed
TOPIC = "bench-dashboard"


def dashboard(bench: Bench, rounds: Iterable[int]) -> list[Row]:
    """p50 and p99 in ms, and the node's CPU time, with and without a viewer, in turns. Raises
    AssertionError.
    """
    samples: dict[str, list[float]] = {
        f"{side}: {statistic}": [] for statistic in STATISTICS for side in (CLOSED, OPEN)
    }
    spent: dict[str, list[float]] = {f"{side}: gateway CPU": [] for side in (CLOSED, OPEN)}
    # The records before the first slot and behind the last one are not judged.
    load = Load(PER_SECOND, SLOT_S, judged_s=len(SLOTS) * (SLOT_S + SLOT_ENDS_S_MAX))
    front = bench.gateway.bootstrap
    with crowded(bench):
        run_once(bench, Load(PER_SECOND), "share", front, front)
        for at in rounds:
            with running(bench, load, "share", front, front) as run:
                time.sleep(load.warmup_s)
                slots = [slot(bench, name) for name in (reversed(SLOTS) if at % 2 else SLOTS)]
            for one in slots:
                found = run.figures(one.since_ns, one.until_ns)
                spent[f"{one.side}: gateway CPU"].append(one.cpu_s)
                for statistic in STATISTICS:
                    samples[f"{one.side}: {statistic}"].append(found[statistic])
                sys.stdout.write(
                    f"round {at + 1}  {one.side}: p50 {found['p50']:.2f},"
                    f" p99 {found['p99']:.2f} ms, {one.cpu_s:.2f} CPU s\n"
                )
    pairs: dict[str, tuple[str, ...]] = {
        f"{OPEN}: {label}": (f"{CLOSED}: {label}",) for label in STATISTICS
    }
    cpu: dict[str, tuple[str, ...]] = {f"{OPEN}: gateway CPU": (f"{CLOSED}: gateway CPU",)}
    return rows_of(samples, pairs, unit="ms", digits=2) + rows_of(
        spent, cpu, unit=f"CPU s in {SLOT_S:.0f} s", digits=2
    )


@dataclass(frozen=True, slots=True)
class Slot:
    side: str
    since_ns: int  # monotonic clock
    until_ns: int
    cpu_s: float  # of the gateway


def slot(bench: Bench, side: str) -> Slot:
    """SLOT_S with the dashboard open or closed. Raises AssertionError."""
    gateway = psutil.Process(bench.gateway.pid)
    with viewer(bench.gateway, looks=side == OPEN) as seen:
        since_ns, before = time.monotonic_ns(), cpu_s(gateway)
        time.sleep(SLOT_S)
        until_ns, after = time.monotonic_ns(), cpu_s(gateway)
    assert (seen.overviews > 0) == (side == OPEN), "the viewer saw nothing"
    assert (seen.answers > 0) == (side == OPEN), "the viewer was not answered"
    return Slot(side, since_ns, until_ns, after - before)


@contextmanager
def crowded(bench: Bench) -> Iterator[None]:
    """GROUPS groups of one member each on a topic of PARTITIONS partitions, all windows up."""
    upstream = bench.kafka.bootstrap_servers
    create_topic(upstream, TOPIC, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        records = [(b"key-%d" % at, b"x" * 100) for at in range(RECORDS_PER_PARTITION)]
        produce(upstream, TOPIC, records, partition=partition)
    members = [Joined(f"bench-dashboard-{at:03}") for at in range(GROUPS)]
    over = threading.Event()

    def stay() -> None:
        while True:
            # The node may take longer for an answer than a line waits.
            with suppress(OSError), WireClient(bench.gateway.address_of(1)) as line:
                while True:
                    for member in members:
                        member.beat(line)
                    if over.wait(HEARTBEAT_S):
                        return
            if over.wait(NEW_LINE_S):
                return

    staying = threading.Thread(target=stay, daemon=True)
    staying.start()
    try:
        wait_until(
            lambda: _windows_up(bench.gateway),
            what=f"{GROUPS} x {PARTITIONS} windows",
            deadline_s=OPEN_S_MAX,
        )
        yield
        assert staying.is_alive(), "the members of the crowd have stopped: see above"
    finally:
        over.set()
        staying.join(OPEN_S_MAX)
        again = sum(max(member.joins - 1, 0) for member in members)
        if again:
            sys.stdout.write(f"{again} times a member was evicted and joined again\n")


@dataclass(slots=True)
class Joined:
    """A member that takes nothing."""

    group: str
    member_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    epoch: int = 0
    joins: int = 0

    def beat(self, line: WireClient) -> None:
        """A member that the node has evicted joins again at once."""
        if not self.heard(line.call(ApiKey.SHARE_GROUP_HEARTBEAT, 1, self.heartbeat())):
            self.heard(line.call(ApiKey.SHARE_GROUP_HEARTBEAT, 1, self.heartbeat()))

    def heartbeat(self) -> Message:
        return {
            "GroupId": self.group,
            "MemberId": self.member_id,
            "MemberEpoch": self.epoch,
            "RackId": None,
            "SubscribedTopicNames": [TOPIC] if self.epoch == 0 else None,
        }

    def heard(self, answer: Message) -> bool:
        """False: the member was evicted, and its next heartbeat joins. Raises AssertionError for an
        error that no member mends.
        """
        error = answer["ErrorCode"]
        if error in EVICTED:
            self.epoch = 0
            return False
        if error not in COORDINATOR_STARTS:
            assert error == ErrorCode.NONE, answer
            self.joins += self.epoch == 0
            self.epoch = answer["MemberEpoch"]
        return True


def _windows_up(gateway: GatewayProcess) -> bool:
    with suppress(OSError, HTTPException):
        with _asked(gateway, "/v1/overview") as answer:
            groups = json.load(answer)["groups"]
        up = sum(int(group["windows"]) - int(group["waiting"]) for group in groups)
        return up >= GROUPS * PARTITIONS
    return False


def _asked(gateway: GatewayProcess, path: str) -> HTTPResponse:
    answer: HTTPResponse = urllib.request.urlopen(f"http://{gateway.admin}{path}", timeout=30)
    return answer


@dataclass(slots=True)
class Seen:
    overviews: int = 0
    answers: int = 0


@contextmanager
def viewer(gateway: GatewayProcess, *, looks: bool) -> Iterator[Seen]:
    """A page on one group's partitions."""
    seen = Seen()
    over = threading.Event()

    def stream() -> None:
        while not over.is_set():
            with suppress(OSError, HTTPException), _asked(gateway, "/v1/events") as events:
                for line in events:
                    seen.overviews += line.startswith(b"data: ")
                    if over.is_set():
                        return

    def ask() -> None:
        group = "bench-dashboard-007"
        query = urllib.parse.urlencode({"group": group, "limit": PARTITIONS})
        while not over.wait(LOOK_S):
            for path in (f"/v1/groups/{group}", f"/v1/windows?{query}"):
                with _asked(gateway, path) as answer:
                    answer.read()
                seen.answers += 1

    threads = [threading.Thread(target=work, daemon=True) for work in (stream, ask) if looks]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        over.set()
        for thread in threads:
            thread.join(30)
