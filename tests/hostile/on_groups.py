"""Attacks through group names, member ids, topic names and share sessions."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import encode_request
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.frames import request_frame
from gateway.members.limits import CONNECTION_MEMBERS_MAX
from tests.hostile.target import (
    Target,
    asked,
    connected,
    heartbeat,
    partitions,
    share_fetch,
    until,
)
from tests.rig.clients.wire_client import WireClient, fresh_member_id
from tests.rig.kafka import create_topic, produce

WORKERS = 16  # a first heartbeat waits for upstream, so one connection alone joins slowly
IDLE_GROUPS, IDLE_LINES = 3_000, 60
WIDE_PARTITIONS, WIDE_LINES = 4, 4
BEAT_S = 10.0  # between two rounds of heartbeats; a member without one for 45 s is evicted
FIRST_RECORD_MS_MAX = 5_000  # of a group beside an attack; a quiet node needs some 100
MANY_GROUPS = 992  # with the victims' they are one page
UNKNOWN_TOPIC = bytes(15) + b"\1"


def many_groups_are_listed(target: Target, seconds: float) -> str:
    """Finding 1: `GET /v1/groups`, page by page, while there are 1,000 groups."""

    def join(worker: int) -> int:
        with WireClient(target.broker) as client:
            for at in range(MANY_GROUPS // WORKERS):
                body = heartbeat(f"many-{worker}-{at}", fresh_member_id(), [target.topic])
                code = asked(client, ApiKey.SHARE_GROUP_HEARTBEAT, 1, body)
                assert code == 0, f"a group was refused: {code}"
        return MANY_GROUPS // WORKERS

    with ThreadPoolExecutor(WORKERS) as pool:
        groups = sum(pool.map(join, range(WORKERS)))
    asked_for = listed = 0
    for _ in until(seconds):
        with urllib.request.urlopen(f"http://{target.admin}/v1/groups", timeout=60) as answer:
            listed = max(listed, len(json.load(answer)["groups"]))
        asked_for += 1
    assert listed >= groups, f"{listed} of {groups} groups were listed"
    return f"{groups:,} groups joined, {listed:,} listed, {asked_for:,} times"


def groups_that_never_fetch(target: Target, seconds: float) -> str:
    """3,000 groups over 60 connections, a heartbeat each; while they are there, one more group
    joins and fetches.
    """
    topic = _wide_topic(target)
    with contextlib.ExitStack() as lines:
        clients = [lines.enter_context(WireClient(target.broker)) for _ in range(IDLE_LINES)]

        def join(line: int) -> int:
            joined = 0
            for at in range(IDLE_GROUPS // IDLE_LINES):
                body = heartbeat(f"idle-{line}-{at}", fresh_member_id(), [topic])
                joined += asked(clients[line], ApiKey.SHARE_GROUP_HEARTBEAT, 1, body) == 0
            return joined

        with ThreadPoolExecutor(IDLE_LINES) as pool:
            joined = sum(pool.map(join, range(IDLE_LINES)))
        assert joined == IDLE_GROUPS, f"{joined} of {IDLE_GROUPS} groups joined"
        waits = [_first_record(target, topic, f"late-{at}") for at in until(seconds)]
        longest_ms = max(waits)
    assert longest_ms < FIRST_RECORD_MS_MAX, f"another group waited {longest_ms} ms"
    return f"{joined:,} groups; {len(waits)} more had their first record within {longest_ms} ms"


def groups_that_all_fetch(target: Target, seconds: float) -> str:
    """As many as a connection carries members of groups, over some connections, fetch from all
    partitions; while their windows open, one more group joins and fetches.
    """
    topic = _wide_topic(target)
    with contextlib.ExitStack() as lines:
        clients = [lines.enter_context(WireClient(target.broker)) for _ in range(WIDE_LINES)]
        rows = partitions(_topic_id(clients[0], topic), WIDE_PARTITIONS)

        def fetch(line: int) -> int:
            refused = 0
            joined: list[tuple[str, str]] = []
            beaten = time.monotonic()
            for at in range(CONNECTION_MEMBERS_MAX + 5):
                if time.monotonic() - beaten > BEAT_S:
                    _beat(clients[line], joined)
                    beaten = time.monotonic()
                group, member = f"wide-{line}-{at}", fresh_member_id()
                body = heartbeat(group, member, [topic])
                code = asked(clients[line], ApiKey.SHARE_GROUP_HEARTBEAT, 1, body)
                refused += code == ErrorCode.GROUP_MAX_SIZE_REACHED
                if code == 0:
                    joined.append((group, member))
                    message = share_fetch(group, member, 0, rows)
                    message.update(MaxWaitMs=0)
                    asked(clients[line], ApiKey.SHARE_FETCH, 1, message)
            return refused

        with ThreadPoolExecutor(WIDE_LINES) as pool:
            fetching = [pool.submit(fetch, line) for line in range(WIDE_LINES)]
            waits = [_first_record(target, topic, f"beside-{at}") for at in until(seconds)]
            refused = sum(task.result() for task in fetching)
        longest_ms = max(waits)
    assert refused == 5 * WIDE_LINES, f"{refused} members were one too many"
    assert longest_ms < FIRST_RECORD_MS_MAX, f"another group waited {longest_ms} ms"
    return f"{refused} refused; {len(waits)} groups had their first record within {longest_ms} ms"


def _beat(client: WireClient, joined: list[tuple[str, str]]) -> None:
    """On a busy machine the joins of one connection take longer than a member's session."""
    for group, member in joined:
        # An epoch of before the first assignment stays good.
        code = asked(client, ApiKey.SHARE_GROUP_HEARTBEAT, 1, heartbeat(group, member, None, 1))
        assert code == 0, f"a member of {group} is gone: {code}"


def _wide_topic(target: Target) -> str:
    name = f"{target.topic}-wide"
    create_topic(target.upstream, name, partitions=WIDE_PARTITIONS)
    return name


def _topic_id(client: WireClient, topic: str) -> bytes:
    answer = client.call(ApiKey.METADATA, 12, {"Topics": [{"Name": topic}]})
    found: bytes = answer["Topics"][0]["TopicId"]
    return found


def _first_record(target: Target, topic: str, group: str) -> int:
    """Milliseconds from the join of a group until it has a record; it starts at the earliest."""
    began, member = time.monotonic(), fresh_member_id()
    produce(target.upstream, topic, [(b"k", b"v")], partition=0)
    with WireClient(target.broker) as client:
        topic_id = _topic_id(client, topic)
        body = heartbeat(group, member, [topic])
        code = asked(client, ApiKey.SHARE_GROUP_HEARTBEAT, 1, body)
        assert code == 0, f"{group} was refused: {code}"
        for epoch in range(1_000):
            rows = partitions(topic_id, 1) if epoch == 0 else []
            message = share_fetch(group, member, epoch, rows)
            message.update(MaxRecords=1, BatchSize=1, MaxWaitMs=500)
            answer = client.call(ApiKey.SHARE_FETCH, 1, message)
            assert answer["ErrorCode"] == 0, answer
            if any(
                row["Records"] for response in answer["Responses"] for row in response["Partitions"]
            ):
                break
            produce(target.upstream, topic, [(b"k", b"v")], partition=0)
    return round((time.monotonic() - began) * 1000)


def names_of_no_topic(target: Target, seconds: float) -> str:
    """Finding 2: names that no topic has stay watched."""
    beats = described = 0
    with WireClient(target.broker) as client:
        for at in until(seconds):
            names = [f"no-{at}-{n}-" + "x" * 200 for n in range(500)]
            if at % 3 == 0:
                names = ["\n" * 32_000]
            body = heartbeat(f"names-{at}", fresh_member_id(), names)
            if asked(client, ApiKey.SHARE_GROUP_HEARTBEAT, 1, body) is None:
                break
            beats += 1
            rows = [{"TopicName": name, "Partitions": [0]} for name in names]
            groups = [{"GroupId": f"names-{at}", "Topics": rows}]
            if asked(client, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, {"Groups": groups}) is None:
                break
            described += 1
    return f"{beats:,} heartbeats, {described:,} descriptions of 500 names"


def sessions_of_strangers(target: Target, seconds: float) -> str:
    """Finding 5: sessions for members that never joined, and one of unknown partitions."""
    opened = repeated = 0
    with WireClient(target.broker) as client:
        for _ in range(2_500):
            body = share_fetch("strangers", fresh_member_id(), 0, [])
            opened += asked(client, ApiKey.SHARE_FETCH, 1, body) == 0
        member = fresh_member_id()
        joined = heartbeat("strangers", member, [target.topic])
        asked(client, ApiKey.SHARE_GROUP_HEARTBEAT, 1, joined)
        many = partitions(UNKNOWN_TOPIC, 40_000)
        asked(client, ApiKey.SHARE_FETCH, 1, share_fetch("strangers", member, 0, many))
        for at in until(seconds):
            asked(client, ApiKey.SHARE_FETCH, 1, share_fetch("strangers", member, at + 1, []))
            repeated += 1
    assert not opened, f"{opened:,} sessions of members that never joined"
    return f"{opened:,} of 2,500 sessions opened, {repeated:,} fetches of 40,000 partitions"


def comes_and_goes(target: Target, seconds: float) -> str:
    """Finding 12: connections that join a group and are gone."""
    count = 0
    for at in until(seconds):
        with contextlib.suppress(OSError), WireClient(target.broker) as client:
            body = heartbeat(f"gone-{at}", fresh_member_id(), [target.topic])
            count += asked(client, ApiKey.SHARE_GROUP_HEARTBEAT, 1, body) == 0
    return f"{count:,} joined and hung up"


def long_member_ids(target: Target, seconds: float) -> str:
    """Finding 13: member ids as long as the wire permits."""
    taken = refused = 0
    with WireClient(target.broker) as client:
        for _ in until(seconds):
            member = os.urandom(15_000).hex()
            body = heartbeat("long", member, [target.topic])
            code = asked(client, ApiKey.SHARE_GROUP_HEARTBEAT, 1, body)
            taken += code == 0
            refused += code != 0
    return f"{taken:,} joined, {refused:,} refused"


def long_client_ids(target: Target, seconds: float) -> str:
    """Joins that are refused for a client id as long as the wire permits, which the log shows."""
    refused = 0
    name = "c" * 32_000
    request = encode_request(
        ApiKey.SHARE_GROUP_HEARTBEAT, 1, heartbeat("named", fresh_member_id(), [target.topic])
    )
    with connected(target.broker) as line:
        for at in until(seconds):
            line.sendall(request_frame(ApiKey.SHARE_GROUP_HEARTBEAT, 1, at, name, request))
            size = int.from_bytes(line.recv(4, socket.MSG_WAITALL), "big")
            refused += len(line.recv(size, socket.MSG_WAITALL)) == size
    return f"{refused:,} refused"


def rejects_everything(target: Target, seconds: float) -> str:
    """Finding 20: a member that rejects every record, one in each request."""
    records = [(b"%d" % at, b"x") for at in range(10_000)]
    produce(target.upstream, target.topic, records, partition=0)
    group, member = "rejecting", fresh_member_id()
    rejected = epoch = 0
    rows: list[tuple[int, int, bytes]] = []
    with WireClient(target.broker) as client:
        topic = client.call(ApiKey.METADATA, 12, {"Topics": [{"Name": target.topic}]})["Topics"][0]
        asked(client, ApiKey.SHARE_GROUP_HEARTBEAT, 1, heartbeat(group, member, [target.topic]))
        for _ in until(seconds):
            topics = partitions(topic["TopicId"], 1)
            topics[0]["Partitions"][0]["AcknowledgementBatches"] = rows
            message = share_fetch(group, member, epoch, topics)
            message.update(MaxRecords=1, BatchSize=1, MaxWaitMs=100)
            answer = client.call(ApiKey.SHARE_FETCH, 1, message)
            if answer["ErrorCode"] != 0:
                break
            rejected += len(rows)
            epoch += 1
            rows = [
                (first, last, b"\3")
                for one in answer["Responses"]
                for part in one["Partitions"]
                for first, last, _ in part["AcquiredRecords"]
            ]
    return f"{rejected:,} requests that reject a record"


def two_connections(target: Target, seconds: float) -> str:
    """Finding 17: a member that fetches on one connection and acknowledges on another."""
    produce(target.upstream, target.topic, [(b"%d" % n, b"v") for n in range(2_000)])
    member = fresh_member_id()
    done = refused = 0
    with WireClient(target.broker) as one, WireClient(target.broker) as two:
        topic = one.call(ApiKey.METADATA, 12, {"Topics": [{"Name": target.topic}]})["Topics"][0]
        asked(one, ApiKey.SHARE_GROUP_HEARTBEAT, 1, heartbeat("two", member, [target.topic]))
        epoch = 0
        for _ in until(seconds):
            topics = partitions(topic["TopicId"], 1) if epoch == 0 else []
            message = share_fetch("two", member, epoch, topics)
            message.update(MaxRecords=100, BatchSize=100, MaxWaitMs=100)
            fetched = one.call(ApiKey.SHARE_FETCH, 1, message)
            epoch += 1
            ranges = [
                (first, last, b"\1")
                for row in fetched["Responses"]
                for part in row["Partitions"]
                for first, last, _ in part["AcquiredRecords"]
            ]
            if not ranges:
                continue
            rows = [{"PartitionIndex": 0, "AcknowledgementBatches": ranges}]
            settled = {
                "GroupId": "two",
                "MemberId": member,
                "ShareSessionEpoch": epoch,
                "Topics": [{"TopicId": topic["TopicId"], "Partitions": rows}],
            }
            code = asked(two, ApiKey.SHARE_ACKNOWLEDGE, 1, settled)
            epoch += 1
            done += code == 0
            refused += code != 0
    assert not refused, f"{refused} acknowledgements refused"
    return f"{done} acknowledgements on another connection than their fetch"


def late_and_gone(target: Target, seconds: float) -> str:
    """Finding 21: 100 librdkafka members of one group that join late and leave at once."""
    rounds = stuck = 0
    for at in until(seconds):
        produce(target.upstream, target.topic, [(b"%d-%d" % (at, n), b"v") for n in range(2_000)])
        crowd = [sys.executable, "-m", "tests.hostile.late_crowd", target.bootstrap]
        said = subprocess.run(
            [*crowd, f"crowd-{at}", target.topic, "100"],
            capture_output=True,
            text=True,
            timeout=90,
            check=True,
        )
        stuck += int(said.stdout)
        rounds += 1
    assert not stuck, f"{stuck} of {rounds} x 100 members did not close"
    return f"{rounds} x 100 members closed"
