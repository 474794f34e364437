"""Attacks through records: batches as large as they may be, read by share groups."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Producer

from gateway.core.wire.apis import ApiKey
from tests.hostile.target import Target, asked, heartbeat, partitions, share_fetch, until
from tests.rig.clients.wire_client import WireClient, fresh_member_id
from tests.rig.kafka import produce

LARGE_BYTES = 90_000_000
LARGE_RECORDS_MAX = 10_000  # of a fetch
ACCEPT = b"\1"


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


def large_batches(target: Target, seconds: float) -> str:
    """Four legal batches of 90 MB through the node, of many records and of one; then four groups
    read them at the same time.
    """
    config: dict[str, str | int] = {
        "message.max.bytes": 100_000_000,
        "batch.size": 100_000_000,
        "batch.num.messages": 1_000_000,
        "queue.buffering.max.kbytes": 1_000_000,
    }
    many = [(b"%d" % at, bytes(900)) for at in range(LARGE_BYTES // 1_000)]
    one = [(b"one", bytes(LARGE_BYTES))]
    for batch in (one, many, one, many):
        produce(target.bootstrap, target.topic, batch, partition=0, config=config)
    with ThreadPoolExecutor(4) as pool:
        groups = [f"large-{at}" for at in range(4)]
        read = pool.map(lambda group: _fetched(group, target, seconds, LARGE_RECORDS_MAX), groups)
        return f"4 batches of {LARGE_BYTES:,} bytes; {'; '.join(read)}"


def inflating_message(target: Target, seconds: float) -> str:
    """Finding 7: a small batch that is 256 MiB when it is decompressed, which takes the longest
    with gzip. The operator skips it: the record behind it arrives.
    """
    config: dict[str, str | int] = {
        "compression.type": "gzip",
        "message.max.bytes": 1_000_000_000,
        "queue.buffering.max.kbytes": 2_000_000,
    }
    produce(target.upstream, target.topic, [(b"big", bytes(1 << 28))], partition=0, config=config)
    produce(target.upstream, target.topic, [(b"big", b"behind")], partition=0)
    began = time.monotonic()
    did = _fetched("inflating", target, max(3.0, seconds / 2))
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


def _fetched(group: str, target: Target, seconds: float, records_max: int = 500) -> str:
    """A member that fetches all the time and accepts all that it got with the next fetch."""
    fetches = records = 0
    member = fresh_member_id()
    with WireClient(target.broker) as client:
        topic = client.call(ApiKey.METADATA, 12, {"Topics": [{"Name": target.topic}]})["Topics"][0]
        asked(client, ApiKey.SHARE_GROUP_HEARTBEAT, 1, heartbeat(group, member, [target.topic]))
        epoch = 0
        got: list[tuple[int, int, bytes]] = []
        for _ in until(seconds):
            topics = partitions(topic["TopicId"], 1)
            topics[0]["Partitions"][0]["AcknowledgementBatches"] = got
            message = share_fetch(group, member, epoch, topics)
            message.update(MaxRecords=records_max, BatchSize=records_max, MaxWaitMs=100)
            try:
                answer = client.call(ApiKey.SHARE_FETCH, 1, message)
            except OSError:
                break
            epoch = epoch + 1 if answer["ErrorCode"] == 0 else 0
            fetches += 1
            got = [
                (first, last, ACCEPT)
                for one in answer["Responses"]
                for part in one["Partitions"]
                for first, last, _ in part["AcquiredRecords"]
            ]
            records += sum(last - first + 1 for first, last, _ in got)
    return f"{fetches:,} fetches, {records:,} records"
