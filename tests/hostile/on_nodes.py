"""Attacks through the surroundings of a node: its log, its stop, its broker, its admins."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil

from gateway.core.wire.apis import ApiKey
from gateway.embedded.process import wait_until
from tests.hostile.target import ACKED_ON_EVICT, AT_LATEST, Target, connected, health
from tests.rig.clients.wire_client import ShareSession
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import create_topic, produce, set_group_config

LOG_READER = "cat"
SILENCE_TOLD_S_MAX = 6.0  # a ping every 2 s, answered within 3 s
TOLD_S = 1.0  # the round asks /health twice a second, and has to see it, too
HELD_RECORDS = 10
FRESH_GROUPS = 50
CREATED_TOPICS = 6
DEADLINE_S = 30.0


def log_nobody_takes(target: Target, seconds: float) -> str:
    """Finding 3: the reader of the log is gone while clients cause lines; another node begins
    with a full log disk.
    """
    children = psutil.Process(target.node_pid).children()
    (reader,) = [child for child in children if child.name() == LOG_READER]
    reader.kill()
    end = time.monotonic() + seconds
    lines = 0
    while time.monotonic() < end:
        with connected(target.broker) as line:
            line.sendall(b"GET / HTTP/1.1\r\n\r\n")  # a line of the log each
            assert line.recv(1) == b""
        lines += 1
        time.sleep(0.01)
    told = health(target.admin)
    assert told["status"] == "degraded", told
    assert "the log cannot be written" in told["reasons"][0], told
    with _node_with_full_log_disk(target) as other:
        told = health(other.admin)
        assert "No space left on device" in told["reasons"][0], told
        assert other.stop() == 0
    return f"{lines} lines lost; a node began and ended with a full log disk"


@contextmanager
def _node_with_full_log_disk(target: Target) -> Iterator[GatewayProcess]:
    """A second node: one that could not write its first line did not begin."""
    with GatewayProcess(
        Path(target.directory) / "full", target.upstream, stderr=">/dev/full"
    ) as node:
        yield node


def planned_stop(target: Target, seconds: float) -> str:
    """Finding 4: SIGTERM while a member holds records and a client is stuck, with `on_evict: ack`.
    A supervisor starts the node again, and the records have to come once more.
    """
    other = f"{target.topic}-other"
    create_topic(target.upstream, other)
    records = [(b"k%d" % at, b"v") for at in range(HELD_RECORDS)]
    produce(target.upstream, target.topic, records, partition=0)
    group = f"{ACKED_ON_EVICT}{os.getpid()}"
    with (
        ShareSession(target.bootstrap, group, target.topic).join() as healthy,
        ShareSession(target.bootstrap, f"{group}-stuck", other).join() as stuck,
    ):
        held = _fetched(healthy, HELD_RECORDS)
        body = stuck.fetch_body(max_wait_ms=60_000)
        stuck.leader.send(ApiKey.SHARE_FETCH, 1, body)
        began = time.monotonic()
        os.kill(target.node_pid, signal.SIGTERM)
        wait_until(
            lambda: not _alive(target.node_pid), what="the node's end", deadline_s=DEADLINE_S
        )
        took_s = time.monotonic() - began
    wait_until(lambda: health(target.admin)["status"] == "up", what="up", deadline_s=DEADLINE_S)
    with ShareSession(target.bootstrap, group, target.topic).join() as later:
        again = _fetched(later, HELD_RECORDS)
        later.leave()
    assert again == held, f"of {len(held)} records not acknowledged {len(again)} came again"
    time.sleep(max(0.0, seconds - (time.monotonic() - began)))
    return f"stopped in {took_s:.1f} s; all {len(again)} records came again"


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _fetched(session: ShareSession, count: int) -> set[int]:
    """Offsets from as many fetches as it takes."""
    found: set[int] = set()
    while len(found) < count:
        found.update(session.fetch_some(within_s=DEADLINE_S).offsets)
    return found


def broker_that_hangs(target: Target, seconds: float) -> str:
    """Finding 15: the broker is stopped (SIGSTOP), so its connections stay."""
    began = time.monotonic()
    os.kill(target.broker_pid, signal.SIGSTOP)
    try:
        wait_until(
            lambda: health(target.admin)["status"] == "not ready",
            what="/health that tells of the broker",
            deadline_s=SILENCE_TOLD_S_MAX,
            every_s=0.05,
        )
        told_s = time.monotonic() - began
        told = health(target.admin)["reasons"]
        time.sleep(max(TOLD_S, seconds - told_s))
    finally:
        os.kill(target.broker_pid, signal.SIGCONT)
    return f"/health told after {told_s:.1f} s: {told[0]}"


def configured_just_before(target: Target, seconds: float) -> str:
    """Finding 18: `earliest` is set for 50 fresh groups right before the first member of each,
    while the broker is busy with new topics. Each has to start at the first record.
    """
    produce(target.upstream, target.topic, [(b"k%d" % at, b"v") for at in range(3)], partition=0)

    def start_of(group: str) -> int:
        set_group_config(target.bootstrap, group, {"share.auto.offset.reset": "earliest"})
        with ShareSession(target.bootstrap, group, target.topic) as session:
            session.join()
            first = session.fetch_some(within_s=seconds + DEADLINE_S).offsets[0]
            session.leave()
        return first

    groups = [f"{AT_LATEST}{os.getpid()}-{at}" for at in range(FRESH_GROUPS)]
    with ThreadPoolExecutor(11) as pool:
        topics = [
            pool.submit(create_topic, target.upstream, f"{target.topic}-{at}", partitions=3)
            for at in range(CREATED_TOPICS)
        ]
        starts = list(pool.map(start_of, groups))
        for creation in topics:
            creation.result()
    wrong = [at for at in starts if at != 0]
    assert not wrong, f"{len(wrong)} of {len(starts)} groups did not start at the first record"
    return f"{len(starts)} of {len(starts)} groups started at the first record"
