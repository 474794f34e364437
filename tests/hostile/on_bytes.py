"""Attacks through sizes: long requests, long answers, answers nobody reads, one byte at a time."""

from __future__ import annotations

import contextlib
import json
import socket
import time
import urllib.error
import urllib.request
from collections import Counter

from confluent_kafka import Producer

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.decode import REQUEST_ELEMENTS_MAX, REQUEST_ROW_ELEMENTS
from gateway.handlers.limits import SESSION_PARTITIONS_MAX
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


def configs_of_everything(target: Target, seconds: float) -> str:
    """Finding 8: one small request for a very long answer, eight at a time."""
    resource = {"ResourceType": 2, "ResourceName": target.topic, "ConfigurationKeys": None}
    request = frame(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        {"Resources": [resource] * 8_000, "IncludeSynonyms": True, "IncludeDocumentation": True},
    )
    read = rounds = 0
    for _ in until(seconds):
        lines = [connected(target.broker) for _ in range(8)]
        for line in lines:
            line.sendall(request)
        for line in lines:
            with contextlib.suppress(OSError):
                while chunk := line.recv(1 << 20):
                    read += len(chunk)
                    if len(chunk) < 1 << 10:
                        break
            line.close()
        rounds += 1
    return f"{rounds} x 8 requests of {len(request):,} bytes, {read:,} bytes read"


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


def tiny_records(target: Target, seconds: float) -> str:
    """Finding 6: one batch of 500,000 records without a byte of value, read by a share group."""
    producer = Producer(
        {
            "bootstrap.servers": target.upstream,
            "linger.ms": 5_000,
            "batch.num.messages": 1_000_000,
            "batch.size": 100_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "message.max.bytes": 100_000_000,
            "compression.type": "zstd",
        }
    )
    for _ in range(500_000):
        producer.produce(target.topic, b"", None)
    producer.flush(30)
    return _fetched("tiny", target, seconds)


def inflating_message(target: Target, seconds: float) -> str:
    """Finding 7: a small batch that is 256 MiB when it is decompressed. The operator skips it: the
    record behind it arrives.
    """
    config: dict[str, str | int] = {
        "compression.type": "zstd",
        "message.max.bytes": 1_000_000_000,
        "queue.buffering.max.kbytes": 2_000_000,
    }
    produce(target.upstream, target.topic, [(b"big", bytes(1 << 28))], partition=0, config=config)
    produce(target.upstream, target.topic, [(b"big", b"behind")], partition=0)
    began = time.monotonic()
    did = _fetched("inflating", target, seconds / 2)
    body = {"group": "inflating", "topic": target.topic, "partition": 0, "offset": 0}
    status = _posted(target, "/v1/unreadable/skip", body)
    left = max(1.0, seconds - (time.monotonic() - began))
    return f"{did}; skipped with HTTP {status}; {_fetched('inflating', target, left)}"


def _posted(target: Target, path: str, body: dict[str, object]) -> int:
    """The status of the answer."""
    request = urllib.request.Request(
        f"http://{target.admin}{path}",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def _fetched(group: str, target: Target, seconds: float) -> str:
    """A member that fetches all the time, in small portions."""
    fetches = records = 0
    member = fresh_member_id()
    with WireClient(target.broker) as client:
        topic = client.call(ApiKey.METADATA, 12, {"Topics": [{"Name": target.topic}]})["Topics"][0]
        asked(client, ApiKey.SHARE_GROUP_HEARTBEAT, 1, heartbeat(group, member, [target.topic]))
        epoch = 0
        for _ in until(seconds):
            topics = partitions(topic["TopicId"], 1) if epoch == 0 else []
            message = share_fetch(group, member, epoch, topics)
            message.update(MaxRecords=500, BatchSize=500, MaxWaitMs=100)
            try:
                answer = client.call(ApiKey.SHARE_FETCH, 1, message)
            except OSError:
                break
            epoch = epoch + 1 if answer["ErrorCode"] == 0 else 0
            fetches += 1
            records += sum(
                last - first + 1
                for one in answer["Responses"]
                for part in one["Partitions"]
                for first, last, _ in part["AcquiredRecords"]
            )
    return f"{fetches:,} fetches, {records:,} records"
