"""The node as attacks see it, and their common frames."""

from __future__ import annotations

import contextlib
import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.codec import encode_request
from gateway.core.wire.frames import request_frame
from gateway.core.wire.schema import Message
from tests.hostile.measured import NO_ANSWER
from tests.rig.clients.wire_client import WireClient

# Groups whose names begin so have a policy of their own.
AT_LATEST = "at-latest-"  # the default: a group starts behind the last record
ACKED_ON_EVICT = "acked-on-evict-"


@dataclass(frozen=True, slots=True)
class Target:
    """`host:port` of each; `topic` is the attacker's own, with one partition."""

    bootstrap: str
    broker: str  # the virtual broker, leader and coordinator of everything
    admin: str
    upstream: str
    topic: str
    node_pid: int
    broker_pid: int
    directory: str  # of this attack: logs and nodes of its own
    login: tuple[str, ...] = ()  # of clients that do nothing wrong: name and password


Attack = Callable[[Target, float], str]  # for about so many seconds; returns its deeds


def frame(key: ApiKey, version: int, message: Message, correlation_id: int = 1) -> bytes:
    body = encode_request(key, version, message)
    return request_frame(key, version, correlation_id, "attacker", body)


def connected(address: str, timeout_s: float = 30.0) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=timeout_s)


def until(seconds: float) -> Iterator[int]:
    """Counts from 0 until the seconds are over."""
    end = time.monotonic() + seconds
    at = 0
    while time.monotonic() < end:
        yield at
        at += 1


def health(admin: str) -> dict[str, Any]:
    """Of the node; without an answer its status says so."""
    try:
        with urllib.request.urlopen(f"http://{admin}/health", timeout=5) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        return dict(json.load(error))
    except (OSError, ValueError):
        return {"status": NO_ANSWER, "reasons": []}


def asked(client: WireClient, key: ApiKey, version: int, message: Message) -> int | None:
    """The top-level error code of the answer; None: the node closed the connection."""
    with contextlib.suppress(OSError):
        code: int = client.call(key, version, message).get("ErrorCode", 0)
        return code
    return None


def heartbeat(group: str, member: str, topics: list[str] | None, epoch: int = 0) -> Message:
    return {
        "GroupId": group,
        "MemberId": member,
        "MemberEpoch": epoch,
        "SubscribedTopicNames": topics,
    }


def share_fetch(group: str, member: str, epoch: int, topics: list[Message]) -> Message:
    return {
        "GroupId": group,
        "MemberId": member,
        "ShareSessionEpoch": epoch,
        "MaxWaitMs": 0,
        "MinBytes": 0,
        "MaxBytes": 1 << 26,
        "MaxRecords": 100_000,
        "BatchSize": 100_000,
        "Topics": topics,
        "ForgottenTopicsData": [],
    }


def partitions(topic_id: bytes, count: int, first: int = 0) -> list[Message]:
    """The Topics of a share fetch that names so many partitions of one topic."""
    rows = [
        {"PartitionIndex": at, "AcknowledgementBatches": []} for at in range(first, first + count)
    ]
    return [{"TopicId": topic_id, "Partitions": rows}]
