"""Groups and their committed offsets, read and written as a simple consumer (no member, no
generation), with aiokafka's protocol: OffsetFetch v2-3, OffsetCommit v2-3, ListGroups v4.

confluent-kafka (2.16) is not used for these: it writes metadata with a zero byte at its end and
reads metadata beyond its end, so it can pass on neither the metadata of another client nor that of
a gateway; and it lists no share groups.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TypeVar

from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    KafkaError,
    NotCoordinatorError,
    for_code,
)
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.types import (
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from keyway.clusters.config import Cluster

Partition = tuple[str, int]  # topic, partition, by their names on the cluster
Offsets = dict[Partition, tuple[int, str]]  # offset and metadata
Answer = TypeVar("Answer")
Wanted = Mapping[Partition, tuple[int, str]]  # offset and metadata

REQUEST_MS_MAX = 10_000
# Of one request: all its offsets are one batch of __consumer_offsets, 1 MiB by default. One offset
# with 4 KiB of metadata and its names takes less than 5 KiB.
OFFSETS_MAX = 200
GROUPS_AT_ONCE = 16  # asked for at a time, on one connection to each coordinator
ATTEMPTS_MAX = 20  # at finding the coordinator: some seconds, as when its broker restarts
PAUSE_S = 0.25
_MOVED = (
    NotCoordinatorError,
    CoordinatorNotAvailableError,
    CoordinatorLoadInProgressError,
)


class _ListGroupsResponse(Response):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = 16
    API_VERSION = 4
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        (
            "groups",
            CompactArray(
                ("group", CompactString("utf-8")),
                ("protocol_type", CompactString("utf-8")),
                ("state", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _ListGroupsStruct(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 16
    API_VERSION = 4
    RESPONSE_TYPE = _ListGroupsResponse
    SCHEMA = Schema(("states_filter", CompactArray(CompactString("utf-8"))), ("tags", TaggedFields))


class _ListGroups(Request[_ListGroupsStruct]):  # type: ignore[misc]
    """ListGroups v4 (KIP-518): aiokafka itself has no version with states."""

    API_KEY = 16

    def build(self, request_struct_class: type[_ListGroupsStruct]) -> _ListGroupsStruct:
        return request_struct_class([], {})


def group_states(cluster: Cluster) -> dict[str, str]:
    """The state of every group of every kind. Raises aiokafka's KafkaError, OSError."""

    async def ask(client: AIOKafkaClient) -> dict[str, str]:
        states: dict[str, str] = {}
        for broker in client.cluster.brokers():
            response = await client.send(broker.nodeId, _ListGroups())
            error = for_code(response.error_code)
            if response.error_code:
                raise error(f"groups of broker {broker.nodeId}")
            states |= {name: state for name, _, state, _ in response.groups}
        return states

    return asyncio.run(_with_client(cluster, ask))


def commit_offsets(
    cluster: Cluster, wanted: Mapping[str, Wanted]
) -> dict[str, dict[Partition, int] | Exception]:
    """Kafka's error code for each place of each group; 0: committed. In place of a group's codes
    stands aiokafka's KafkaError or an OSError if nothing is known about the group.
    """

    async def commit(client: AIOKafkaClient, group: str) -> dict[Partition, int]:
        codes: dict[Partition, int] = {}
        places = list(wanted[group])
        for at in range(0, len(places), OFFSETS_MAX):
            part = {place: wanted[group][place] for place in places[at : at + OFFSETS_MAX]}
            codes |= await _commit(client, group, part)
        return codes

    return _for_each(cluster, wanted, commit)


def fetch_offsets(cluster: Cluster, groups: Iterable[str]) -> dict[str, Offsets | Exception]:
    """The commits of each group: offset and metadata by place. In their place stands aiokafka's
    KafkaError or an OSError if nothing is known about the group. Raises both.
    """
    return _for_each(cluster, groups, _fetch)


def without_commit(
    cluster: Cluster, places: Mapping[str, Collection[Partition]]
) -> dict[str, set[Partition] | Exception]:
    """Of the places of each group those without a commit, because Kafka says so of each: the list
    of all commits of a group lacks topics that this user may not describe. Exceptions as above.
    """

    async def ask(client: AIOKafkaClient, group: str) -> set[Partition]:
        named: dict[str, list[int]] = {}
        for topic, partition in places[group]:
            named.setdefault(topic, []).append(partition)
        return {
            (topic, partition)
            for topic, partition, offset, _, code in await _offsets(client, group, named)
            if code == 0 and offset < 0
        }

    return _for_each(cluster, places, ask)


def _for_each(
    cluster: Cluster,
    groups: Iterable[str],
    ask: Callable[[AIOKafkaClient, str], Awaitable[Answer]],
) -> dict[str, Answer | Exception]:
    """Asks about some groups at a time. Returns the answer of each group, or its KafkaError or
    OSError.
    """

    async def ask_all(client: AIOKafkaClient) -> dict[str, Answer | Exception]:
        answers: dict[str, Answer | Exception] = {}
        turns = asyncio.Semaphore(GROUPS_AT_ONCE)

        async def ask_one(group: str) -> None:
            async with turns:
                try:
                    answers[group] = await ask(client, group)
                except (KafkaError, OSError) as error:
                    answers[group] = error

        async with asyncio.TaskGroup() as tasks:
            for group in groups:
                tasks.create_task(ask_one(group))
        return answers

    return asyncio.run(_with_client(cluster, ask_all))


async def _with_client(
    cluster: Cluster, work: Callable[[AIOKafkaClient], Awaitable[Answer]]
) -> Answer:
    client = AIOKafkaClient(**_settings(cluster))
    try:
        await client.bootstrap()
        return await work(client)
    finally:
        await client.close()


async def _coordinator(client: AIOKafkaClient, group: str, attempt: int) -> int | None:
    """The node of the group's coordinator; None if there is none at the moment, or if it is not
    connected yet. Pauses before each `attempt` but the first, which is 0.
    """
    if attempt:
        await asyncio.sleep(PAUSE_S)
    try:
        node: int = await client.coordinator_lookup(CoordinationType.GROUP, group)
    except _MOVED:
        return None
    if await client.ready(node):
        return node
    await client.force_metadata_update()
    return None


async def _commit(client: AIOKafkaClient, group: str, wanted: Wanted) -> dict[Partition, int]:
    codes = dict.fromkeys(wanted, CoordinatorNotAvailableError.errno)
    left = dict(wanted)
    for attempt in range(ATTEMPTS_MAX):
        node = await _coordinator(client, group, attempt)
        if node is None:
            continue
        response = await client.send(node, _request(group, left))
        for topic, partitions in response.topics:
            codes |= {(topic, partition): code for partition, code in partitions}
        left = {place: commit for place, commit in left.items() if for_code(codes[place]) in _MOVED}
        if not left:
            break
    return codes


async def _fetch(client: AIOKafkaClient, group: str) -> Offsets:
    return {
        (topic, partition): (offset, metadata or "")
        for topic, partition, offset, metadata, code in await _offsets(client, group, None)
        if code == 0 and offset >= 0
    }


async def _offsets(
    client: AIOKafkaClient, group: str, named: Mapping[str, list[int]] | None
) -> list[tuple[str, int, int, str | None, int]]:
    """Topic, partition, offset, metadata and error code of the partitions that are named; None: of
    all that have a commit.
    """
    asked = None if named is None else list(named.items())
    error: type[KafkaError] = CoordinatorNotAvailableError
    for attempt in range(ATTEMPTS_MAX):
        node = await _coordinator(client, group, attempt)
        if node is None:
            continue
        response = await client.send(node, OffsetFetchRequest(group, asked))
        error = for_code(response.error_code)
        if error in _MOVED:
            continue
        if response.error_code:
            break
        return [
            (topic, partition, offset, metadata, code)
            for topic, partitions in response.topics
            for partition, offset, metadata, code in partitions
        ]
    raise error(f"offsets of group {group}")


def _request(group: str, wanted: Wanted) -> OffsetCommitRequest:
    topics: dict[str, list[tuple[int, int, str]]] = {}
    for (topic, partition), (offset, metadata) in wanted.items():
        topics.setdefault(topic, []).append((partition, offset, metadata))
    return OffsetCommitRequest(group, -1, "", -1, list(topics.items()))


def _settings(cluster: Cluster) -> dict[str, object]:
    settings: dict[str, object] = {
        "bootstrap_servers": cluster.bootstrap_servers.split(","),
        "client_id": "keyway-offsets",
        "request_timeout_ms": REQUEST_MS_MAX,
    }
    security = ("SASL_" if cluster.sasl is not None else "") + (
        "SSL" if cluster.tls is not None else "PLAINTEXT"
    )
    settings["security_protocol"] = security
    if cluster.sasl is not None:
        settings["sasl_mechanism"] = cluster.sasl.mechanism
        settings["sasl_plain_username"] = cluster.sasl.username
        settings["sasl_plain_password"] = cluster.sasl.secret()
    if cluster.tls is not None:
        context = ssl.create_default_context(cafile=cluster.tls.ca_file)
        if cluster.tls.cert_file is not None:
            context.load_cert_chain(cluster.tls.cert_file, cluster.tls.key_file)
        context.check_hostname = cluster.tls.verify_hostname
        settings["ssl_context"] = context
    return settings


__all__ = ["KafkaError", "commit_offsets", "fetch_offsets", "group_states", "without_commit"]
