"""Attacks through sizes: long requests, long answers, answers nobody reads, one byte at a time."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from collections import Counter

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.decode import REQUEST_ELEMENTS_MAX, REQUEST_ROW_ELEMENTS
from gateway.handlers.limits import SESSION_PARTITIONS_MAX
from tests.hostile.probe import ASKED
from tests.hostile.target import (
    Target,
    asked,
    connected,
    frame,
    heartbeat,
    partitions,
    share_fetch,
    until,
)
from tests.rig.clients.wire_client import WireClient, fresh_member_id
from tests.rig.kafka import produce

# 13 KB each in the answer. Eight requests for 1,000 keep the broker itself silent for three
# seconds, for 8,000 half a minute.
CONFIG_RESOURCES = 1_000  # of one request: its answer passes unread
BROKER_CONFIG_RESOURCES = 120  # of the others, beside a broker: their answers are rewritten
IDLE_CLIENTS = 5_000
SLOW_CLIENTS = 200


def configs_of_everything(target: Target, seconds: float) -> str:
    """Finding 8: small requests for very long answers, eight at a time; all but one ask about a
    broker, too, so that their answers are decoded and encoded.
    """
    topic = {"ResourceType": 2, "ResourceName": target.topic, "ConfigurationKeys": None}
    broker = {"ResourceType": 4, "ResourceName": "1", "ConfigurationKeys": None}
    requests = [
        frame(
            ApiKey.DESCRIBE_CONFIGS,
            4,
            {"Resources": resources, "IncludeSynonyms": True, "IncludeDocumentation": True},
        )
        for resources in ([topic] * CONFIG_RESOURCES, [broker, *[topic] * BROKER_CONFIG_RESOURCES])
    ]
    read = rounds = 0
    for _ in until(seconds):
        lines = [connected(target.broker, timeout_s=60.0) for _ in range(8)]
        for at, line in enumerate(lines):
            line.sendall(requests[min(at, 1)])
        for line in lines:
            size = int.from_bytes(line.recv(4, socket.MSG_WAITALL), "big")
            while size > 0 and (chunk := line.recv(min(size, 1 << 20))):
                size -= len(chunk)
                read += len(chunk)
            assert size == 0, f"{size:,} bytes of an answer did not come"
            line.close()
        rounds += 1
    assert read, "no answer came"
    return f"{rounds} x 8 requests, the longest of {len(requests[0]):,} bytes, {read:,} bytes read"


def answers_nobody_reads(target: Target, seconds: float) -> str:
    """Finding 9: share fetches whose answers stay unread, 40 at a time."""
    produce(target.upstream, target.topic, [(b"%d" % n, bytes(500_000)) for n in range(100)])
    lines: list[socket.socket] = []
    with WireClient(target.broker) as client:
        topic = client.call(ApiKey.METADATA, 12, {"Topics": [{"Name": target.topic}]})["Topics"][0]
        for at in range(40):
            member = fresh_member_id()
            body = heartbeat(f"unread-{at}", member, [target.topic])
            asked(client, ApiKey.SHARE_GROUP_HEARTBEAT, 1, body)
            line = connected(target.broker)
            for epoch in range(20):
                topics = partitions(topic["TopicId"], 1) if epoch == 0 else []
                message = share_fetch(f"unread-{at}", member, epoch, topics)
                message["MaxWaitMs"] = 2_000
                line.sendall(frame(ApiKey.SHARE_FETCH, 1, message, epoch))
            lines.append(line)
        time.sleep(seconds)
    for line in lines:
        line.close()
    return f"{len(lines)} connections with 20 share fetches each, none read"


def half_requests(target: Target, seconds: float) -> str:
    """Finding 9: requests of 8 MB of which the last byte never comes."""
    lines = [connected(target.broker) for _ in range(200)]
    half = (8_000_000).to_bytes(4, "big") + b"\0\x4e\0\1\0\0\0\1\0\4half\0" + bytes(7_900_000)
    sent = 0
    for line in lines:
        with contextlib.suppress(OSError):
            line.settimeout(1.0)
            line.sendall(half)
            sent += 1
    time.sleep(seconds)
    for line in lines:
        line.close()
    return f"{sent} of 200 half requests taken"


def long_before_a_login(target: Target, seconds: float) -> str:
    """Six ApiVersions at a time of 99 MB of tagged fields: the broker kept each of them."""
    tags = b"\xff\xff\x7f" + b"\1\0" * 500_000  # two million; a chunk of them
    head = (99_000_000).to_bytes(4, "big") + b"\0\x12\0\3\0\0\0\1\0\2me"
    taken = rounds = 0
    for _ in until(seconds):
        lines = [connected(target.broker) for _ in range(6)]
        for line in lines:
            with contextlib.suppress(OSError):
                line.sendall(head + tags)
                for _ in range(97):
                    line.sendall(tags[3:])
                taken += 1
        for line in lines:
            line.close()
        rounds += 1
    assert not taken, f"{taken} of {6 * rounds} requests of 99 MB were taken"
    return f"{rounds} x 6 requests, all refused"


def more_clients_than_files(target: Target, seconds: float) -> str:
    """Finding 14: 1,000 connections that stay, to a node that may open 512 files."""
    lines: list[socket.socket] = []
    refused = 0
    for at in until(seconds):
        if at >= 1_000:
            time.sleep(0.05)
            continue
        line = connected(target.bootstrap)
        line.settimeout(0.01)
        with contextlib.suppress(TimeoutError):
            try:
                refused += line.recv(1) == b""
            except ConnectionError:
                refused += 1
        lines.append(line)
    for line in lines:
        line.close()
    return f"{len(lines)} connections, {refused} of them refused"


def many_elements(target: Target, seconds: float) -> str:
    """Finding 10: requests as long as they may be: share fetches that name partitions,
    acknowledgements of ranges, descriptions of offsets.
    """
    most = REQUEST_ELEMENTS_MAX // REQUEST_ROW_ELEMENTS - 10
    member = fresh_member_id()
    done: Counter[str] = Counter()
    with WireClient(target.broker) as client:
        asked(client, ApiKey.SHARE_GROUP_HEARTBEAT, 1, heartbeat("long", member, [target.topic]))
        topic = client.call(ApiKey.METADATA, 12, {"Topics": [{"Name": target.topic}]})["Topics"][0]
        rows = [{"TopicName": target.topic, "Partitions": list(range(most))}]
        ranges = [(2 * at, 2 * at, b"\1") for at in range(2_000)]
        settled = [
            {"PartitionIndex": at, "AcknowledgementBatches": ranges if at < 100 else []}
            for at in range(100)
        ]
        fetched = partitions(topic["TopicId"], min(most, SESSION_PARTITIONS_MAX))
        for at in until(seconds):
            key, version, message = (
                (ApiKey.SHARE_FETCH, 1, share_fetch("long", member, 0, fetched)),
                (
                    ApiKey.SHARE_FETCH,
                    1,
                    share_fetch("long", member, 0, partitions(b"u" * 16, most)),
                ),
                (
                    ApiKey.SHARE_ACKNOWLEDGE,
                    1,
                    {
                        "GroupId": "long",
                        "MemberId": member,
                        "ShareSessionEpoch": 1,
                        "Topics": [{"TopicId": topic["TopicId"], "Partitions": settled}],
                    },
                ),
                (
                    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
                    0,
                    {"Groups": [{"GroupId": "long", "Topics": rows}]},
                ),
            )[at % 4]
            if asked(client, key, version, message) is not None:
                done[key.name] += 1
    return ", ".join(f"{count} x {name}" for name, count in done.items())


def byte_by_byte(target: Target, seconds: float) -> str:
    """Finding 11: Produce headers with many tagged fields, a byte at a time."""
    tags = b"\xff\xff\x03" + b"\1\0" * 30_000
    head = b"\0\0\0\x09\0\0\0\1\0\2me" + tags
    request = (1_000_000).to_bytes(4, "big") + head
    sent = 0
    for _ in until(seconds):
        with contextlib.suppress(OSError), connected(target.broker) as line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for at in range(len(request)):
                line.sendall(request[at : at + 1])
                sent += 1
                if at % 1_000 == 0 and sent > 200_000 * seconds:
                    break
    return f"{sent:,} bytes"


def at_the_door(target: Target, seconds: float) -> str:
    """5,000 idle connections, 200 that send requests a byte at a time, and meanwhile HTTP, TLS and
    nothing at all on as many connections as one client manages.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    idle = [connected(target.bootstrap) for _ in range(IDLE_CLIENTS)]
    slow = [connected(target.bootstrap) for _ in range(SLOW_CLIENTS)]
    trickle = ASKED * 100
    came = 0
    for at in until(seconds):
        for line in list(slow) if at % 10 == 0 else ():
            try:
                line.sendall(trickle[at // 10 : at // 10 + 1])
            except ConnectionError:
                slow.remove(line)
        with contextlib.suppress(ConnectionError), connected(target.bootstrap) as line:
            line.sendall((b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\0", b"", b"\xff")[at % 4])
            came += 1
    for line in (*idle, *slow):
        line.close()
    lost = SLOW_CLIENTS - len(slow)
    assert not lost, f"{lost} of {SLOW_CLIENTS} slow clients lost their connection"
    return f"{len(idle):,} idle, {len(slow)} slow, {came / seconds:,.0f} others a second"


def plain_fetches_nobody_reads(target: Target, seconds: float) -> str:
    """40 clients that fetch all records of a topic, in a pipeline, and read none of the answers."""
    produce(target.upstream, target.topic, [(b"%d" % n, bytes(500_000)) for n in range(100)])
    lines = []
    with WireClient(target.broker) as client:
        topic = client.call(ApiKey.METADATA, 12, {"Topics": [{"Name": target.topic}]})["Topics"][0]
    row = {"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1 << 26, "CurrentLeaderEpoch": -1}
    body = {
        "ReplicaId": -1,
        "MaxBytes": 1 << 26,
        "SessionEpoch": -1,
        "Topics": [{"TopicId": topic["TopicId"], "Partitions": [row]}],
    }
    request = frame(ApiKey.FETCH, 13, body)
    for _ in range(40):
        line = connected(target.broker)
        line.sendall(request * 20)
        lines.append(line)
    time.sleep(seconds)
    first = lines[0].recv(4)
    assert int.from_bytes(first, "big") > 1_000_000, "an answer is waiting to be read"
    for line in lines:
        line.close()
    return f"{len(lines)} connections with 20 fetches each, none read"
