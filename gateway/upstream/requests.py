"""Requests to the upstream that several rooms make in the same way.

Each is a function over the calls it needs, so that a test can answer them without a broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from gateway.upstream.limits import SETTLING_PAUSE_MS

Answer = TypeVar("Answer")

NO_COORDINATOR = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
METADATA_BY_ID_VERSION = 12  # the first that takes topic ids without names


class Coordinators(Protocol):
    """gateway.upstream.cluster.Upstream"""

    def coordinator(self, group: str) -> Awaitable[int]: ...
    def forget_coordinator(self, group: str) -> None: ...


class Calls(Protocol):
    """gateway.upstream.cluster.Upstream"""

    async def call(
        self,
        api_key: int,
        body: Message,
        *,
        broker_id: int | None = None,
        version: int | None = None,
    ) -> Message: ...


async def ask_coordinator(
    upstream: Coordinators,
    group: str,
    ask: Callable[[int], Awaitable[Answer]],
    error_of: Callable[[Answer], int],
    *,
    attempts_max: int | None = None,
) -> Answer:
    """The answer of the group's coordinator. While it says that it is not one, or not yet, the
    coordinator is looked for again; after `attempts_max` (None: no limit) its answer stands, and
    whoever asks next looks for the coordinator anew.

    `ask` gets the coordinator's broker id. Raises UpstreamError.
    """
    attempts = 1
    while True:
        answer = await ask(await upstream.coordinator(group))
        if error_of(answer) not in NO_COORDINATOR:
            return answer
        upstream.forget_coordinator(group)
        if attempts == attempts_max:
            return answer
        attempts += 1
        await asyncio.sleep(SETTLING_PAUSE_MS / 1000)


async def names_by_id(upstream: Calls, ids: Iterable[bytes]) -> dict[bytes, str | None]:
    """The names of topics; None: the cluster knows no such topic. A topic that the cluster says
    something else about is left out.

    Raises UpstreamError, and EncodeError for an upstream that knows no topic ids.
    """
    topics = [{"TopicId": topic_id, "Name": None} for topic_id in ids]
    if not topics:
        return {}
    answer = await upstream.call(
        ApiKey.METADATA, {"Topics": topics}, version=METADATA_BY_ID_VERSION
    )
    found: dict[bytes, str | None] = {}
    for topic in answer["Topics"]:
        if topic["ErrorCode"] == ErrorCode.UNKNOWN_TOPIC_ID:
            found[topic["TopicId"]] = None
        elif topic["ErrorCode"] == 0 and topic["Name"]:
            found[topic["TopicId"]] = topic["Name"]
    return found


async def offsets_at_leader(
    upstream: Calls,
    leader: int,
    places: Iterable[tuple[str, int]],
    timestamp: int,
    isolation: int,
) -> dict[tuple[str, int], tuple[int, int]]:
    """(error code, offset at `timestamp`) by topic and partition, all led by `leader`. Raises
    UpstreamError.
    """
    topics: dict[str, list[Message]] = {}
    for topic, partition in places:
        row = {"PartitionIndex": partition, "Timestamp": timestamp}
        topics.setdefault(topic, []).append(row)
    body = {
        "ReplicaId": -1,
        "IsolationLevel": isolation,
        "Topics": [{"Name": name, "Partitions": rows} for name, rows in topics.items()],
    }
    answer = await upstream.call(ApiKey.LIST_OFFSETS, body, broker_id=leader)
    return {
        (topic["Name"], row["PartitionIndex"]): (row["ErrorCode"], row["Offset"])
        for topic in answer["Topics"]
        for row in topic["Partitions"]
    }
