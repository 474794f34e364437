"""Memory of the gateway with every window full: 64 partitions, 16,384 unsettled records in each.

Three librdkafka share consumers take the records of one poll and then sit still, so that nothing
is settled and the windows read up to their span. Resident memory is taken when they have been full
for REST_S; its peak since the start has the buffers of reading in it. A gateway of its own for each
run; its Redis is a process of its own and not counted. Two topics: 5,000 keys in every partition,
and a key of its own for every record, the most that windows can cost.
"""

from __future__ import annotations

import itertools
import random
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import psutil

from dispatcher.core.model import Policy
from gateway.embedded.process import wait_until
from tests.bench.cases import KEYS, Bench
from tests.bench.load import load
from tests.bench.rows import Row, rows_of
from tests.rig.clients.share_members import ShareHost
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import create_topic

PARTITIONS = 64
SPAN = Policy().span_max
PAUSED = 3
# A member with nothing to do makes every window read up to its last offset; with the paused ones
# alone they would stop up to an eighth before it.
TAKES_NOTHING = "idle;keys=no-such-key"
FILL_S_MAX = 60.0
REST_S = 3.0  # memory of the traffic is let go of, and given back to the system
MIB = 1024 * 1024
FULL = f"memory: {PARTITIONS} full windows, {KEYS:,} keys in each"
FULL_OWN_KEYS = f"memory: {PARTITIONS} full windows, a key per record"
EMPTY = "memory: just started"
HELD = ("keyway_window_span", "keyway_window_aside_records")
_numbers = itertools.count(1)


def memory(bench: Bench, rounds: Iterable[int]) -> list[Row]:
    """Resident memory in MiB, once per round and topic. Raises TimeoutError if the windows do not
    fill.
    """
    topics = {FULL: ("bench-memory", KEYS), FULL_OWN_KEYS: ("bench-memory-own-keys", None)}
    samples: dict[str, list[float]] = {EMPTY: []}
    pairs: dict[str, tuple[str, ...]] = dict.fromkeys(topics, (EMPTY,))
    for topic, keys in topics.values():
        _load(bench.kafka.bootstrap_servers, topic, keys)
    for at in rounds:
        for name, (topic, _) in topics.items():
            start, full, peak = _run(bench, topic)
            samples[EMPTY].append(start)
            samples.setdefault(name, []).append(full)
            samples.setdefault(f"{name}; peak", []).append(peak)
            figures = f"{full:.0f} MiB, peak {peak:.0f}, {start:.0f} at start"
            sys.stdout.write(f"round {at + 1}  {name}: {figures}\n")
    return rows_of(samples, pairs, unit="MiB", digits=1)


def _load(bootstrap: str, topic: str, keys: int | None) -> None:
    """As many records in each partition as a window holds, and one more."""
    create_topic(bootstrap, topic, partitions=PARTITIONS)
    chosen = random.Random(5)
    load(
        bootstrap,
        topic,
        (
            (b"key-%05d" % (at if keys is None else int(chosen.random() * keys)), partition)
            for at in range(SPAN + 1)
            for partition in range(PARTITIONS)
        ),
    )


def _run(bench: Bench, topic: str) -> tuple[float, float, float]:
    """MiB of a gateway that has just started, with all windows full, and at most."""
    directory = bench.directory / f"memory-{next(_numbers)}"
    groups = [{"match": "*", "auto_offset_reset": "earliest"}]
    gateway = GatewayProcess(directory, bench.kafka.bootstrap_servers, groups=groups)
    with gateway, ShareHost.librdkafka() as host:
        process = psutil.Process(gateway.pid)
        start = process.memory_info().rss
        host.member(gateway.bootstrap, "memory", [topic], name=TAKES_NOTHING)
        for _ in range(PAUSED):
            member = host.member(gateway.bootstrap, "memory", [topic])
            assert member.poll_some(), "a member got nothing"
        wait_until(
            lambda: _full_windows(gateway.admin) == PARTITIONS,
            what="full windows",
            deadline_s=FILL_S_MAX,
        )
        time.sleep(REST_S)
        assert _full_windows(gateway.admin) == PARTITIONS, "the windows did not stay full"
        full = process.memory_info().rss
        status = Path(f"/proc/{gateway.pid}/status").read_text()
        peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
    return start / MIB, full / MIB, peak / MIB


def _full_windows(admin: str) -> int:
    """How many windows hold as many records as their span has offsets, all unsettled. On a busy
    machine the tick finds the front slow, and some of them aside.
    """
    with urllib.request.urlopen(f"http://{admin}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    held: Counter[str] = Counter()
    for line in lines:
        name, brace, rest = line.partition("{")
        if brace and name in HELD:
            window, _, count = rest.rpartition(" ")
            held[window] += int(float(count))
    return sum(count >= SPAN for count in held.values())
