"""`keyway doctor`: looks at everything that a node needs, and changes nothing.

It gathers facts: of this machine, of upstream under the gateway's own identity, of Redis. The
judgement is in gateway/node/diagnosis.py.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Awaitable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, cast

import httpx
from redis.asyncio import Redis as RedisClient
from redis.exceptions import RedisError, ResponseError

from dispatcher.core.model import PoisonPolicy
from gateway.compiled import describe
from gateway.config.admin import AdminSection
from gateway.config.file import Config
from gateway.config.state import StateSection
from gateway.core.cluster.acl import HEARTBEAT_VERSION, heartbeat_of_nobody
from gateway.core.cluster.discovery import metadata_request
from gateway.core.wire.apis import ApiKey
from gateway.core.wire.errors import EncodeError
from gateway.embedded.jars import JAVA_MEND, java
from gateway.embedded.process import SetupError
from gateway.listen.authentication import authentications_of
from gateway.listen.listeners import CannotListen, listening_socket, port_of, port_option
from gateway.node.diagnosis import (
    Broker,
    Cluster,
    Finding,
    Redis,
    of_cluster,
    of_embedded,
    of_files,
    of_modules,
    of_permissions,
    of_ports,
    of_redis,
    of_silent_redis,
    of_silent_upstream,
    ok,
    warning,
)
from gateway.node.limits import DOCTOR_ANSWER_MS_MAX, DOCTOR_PINGS
from gateway.node.other_nodes import look_at_nodes
from gateway.node.redis_state import configured, try_to_write, url_of
from gateway.node.secret_files import readable_by_all, secret_files
from gateway.node.settings import server_settings, upstream_settings
from gateway.upstream.cluster import Upstream
from gateway.upstream.commits import METADATA_LIMIT
from gateway.upstream.configs import broker_config, group_config
from gateway.upstream.errors import UpstreamError
from gateway.upstream.settings import UpstreamSettings

PROBE = "keyway-doctor"  # a group that does not exist


async def look(config: Config, file: Path | None = None) -> list[Finding]:
    """`file`: where it was read from. Raises ConfigError for settings that no node could start
    with.
    """
    settings = upstream_settings(config)
    listeners = server_settings(config, settings).listeners  # reads the files of TLS
    authentications_of(listeners)  # those of users, identities and keys
    found = [_java(), of_modules(describe(), shutil.which("cc") or shutil.which("gcc"))]
    cluster = None
    try:
        cluster = await _cluster(settings)
    except UpstreamError as error:
        found += of_silent_upstream(settings.bootstrap_servers, str(error))
    if cluster is not None:
        found += of_cluster(cluster)
        found += of_permissions(cluster, dead_letter_topics(config))
    found += await _redis(config.state)
    found += of_files({known: readable_by_all(known[1]) for known in secret_files(config, file)})
    found += await look_at_nodes(config, None if cluster is None else cluster.cluster_id)
    brokers = None if cluster is None else [broker.broker_id for broker in cluster.brokers]
    found += await _ports(config, brokers)
    return found


def dead_letter_topics(config: Config) -> list[str]:
    """The topics that a policy writes dead letters to."""
    used = {
        group.dead_letter_topic
        for group in config.groups
        if PoisonPolicy.DEAD_LETTER in (group.rejected, group.exhausted)
    }
    return sorted(topic for topic in used if topic is not None)


def _java() -> Finding:
    try:
        return ok("Java", java())
    except SetupError as error:
        reason = str(error).removesuffix(f": {JAVA_MEND}")
        return warning("Java", f"{reason} (a node alone does without)", JAVA_MEND)


# -------------------------------------------------------------------------------------- upstream


async def _cluster(settings: UpstreamSettings) -> Cluster:
    """Raises UpstreamError if no broker answers."""
    async with Upstream(settings) as upstream:
        topology = await upstream.refresh()
        brokers = [
            await _broker(upstream, broker.id, f"{broker.host}:{broker.port}")
            for broker in topology.brokers.values()
        ]
        return Cluster(
            cluster_id=topology.cluster_id or "without an id",
            brokers=brokers,
            operations=await _operations(upstream),
            group_error=await _group_error(upstream),
            config_error=await _config_error(upstream),
        )


async def _broker(upstream: Upstream, broker_id: int, address: str) -> Broker:
    body = {"ClientSoftwareName": "keyway", "ClientSoftwareVersion": "doctor"}
    try:
        answer = await upstream.call(
            ApiKey.API_VERSIONS,
            body,
            broker_id=broker_id,
            version=3,
            timeout_ms=DOCTOR_ANSWER_MS_MAX,
        )
    except UpstreamError as error:
        return Broker(broker_id, address, silence=str(error))
    versions = {api["ApiKey"]: (api["MinVersion"], api["MaxVersion"]) for api in answer["ApiKeys"]}
    try:
        limit = (await broker_config(upstream, broker_id, [METADATA_LIMIT])).get(METADATA_LIMIT)
    except UpstreamError as error:
        return Broker(broker_id, address, versions=versions, config_error=str(error))
    return Broker(
        broker_id,
        address,
        versions=versions,
        metadata_bytes=int(limit) if limit is not None and limit.isdecimal() else None,
    )


async def _operations(upstream: Upstream) -> Mapping[str, int]:
    """The permitted operations on every topic that the gateway may see."""
    body = metadata_request([]) | {"Topics": None, "IncludeTopicAuthorizedOperations": True}
    try:
        answer = await upstream.call(ApiKey.METADATA, body)
    except EncodeError:
        return {}
    return {
        topic["Name"]: topic["TopicAuthorizedOperations"]
        for topic in answer["Topics"]
        if topic["Name"]
    }


async def _group_error(upstream: Upstream) -> int:
    body = heartbeat_of_nobody(PROBE)
    answer = await upstream.call(ApiKey.HEARTBEAT, body, version=HEARTBEAT_VERSION)
    return int(answer["ErrorCode"])


async def _config_error(upstream: Upstream) -> str:
    try:
        await group_config(upstream, PROBE)
    except UpstreamError as error:
        return str(error)
    return ""


# ----------------------------------------------------------------------------------------- Redis


async def _redis(state: StateSection) -> list[Finding]:
    if (url := url_of(state)) is None:
        return [_embedded(state.directory)]
    address = configured(url)
    client = RedisClient.from_pool(
        address.pool(
            socket_timeout=DOCTOR_ANSWER_MS_MAX / 1000,
            socket_connect_timeout=DOCTOR_ANSWER_MS_MAX / 1000,
            decode_responses=True,
        )
    )
    try:
        return list(of_redis(await _facts(client, by_sentinels=bool(address.sentinels))))
    except (RedisError, OSError, TimeoutError) as error:
        return list(of_silent_redis(str(error) or "in time"))
    finally:
        await client.aclose()


async def _facts(client: RedisClient, *, by_sentinels: bool) -> Redis:
    await cast(Awaitable[object], client.ping())  # connects
    times = []
    for _ in range(DOCTOR_PINGS):
        began = time.perf_counter()
        await cast(Awaitable[object], client.ping())
        times.append(time.perf_counter() - began)
    seconds, microseconds = await client.time()
    clock_off_s = seconds + microseconds / 1e6 - time.time_ns() / 1e9
    info: dict[str, Any] = {}
    closed = ""
    try:
        info = await client.info()
    except ResponseError as error:  # also this is sometimes closed
        closed = str(error)
    try:
        save = (await client.config_get("save")).get("save")
    except RedisError:  # CONFIG is often closed where Redis is rented
        save = None
    refusal = ""
    try:
        await try_to_write(client)
    except ResponseError as error:
        refusal = str(error)
    replicas = None
    if by_sentinels:
        try:
            told = (await client.config_get("min-replicas-to-write")).get("min-replicas-to-write")
            replicas = None if told is None else int(told)
        except RedisError:
            replicas = None
    statuses = (info.get("rdb_last_bgsave_status"), info.get("aof_last_write_status"))
    return Redis(
        version=str(info.get("redis_version", "of an unknown version")),
        append_only=bool(info.get("aof_enabled")),
        save=save,
        write_failed="err" in statuses,
        max_bytes=int(info.get("maxmemory", 0)),
        eviction=str(info.get("maxmemory_policy", "")),
        round_trip_s=sorted(times)[len(times) // 2],
        clock_off_s=clock_off_s,
        replicas_wanted=replicas,
        mode=str(info.get("redis_mode", "")),
        role=str(info.get("role", "")),
        closed=closed,
        refusal=refusal,
    )


def _embedded(directory: Path) -> Finding:
    whole = existing = directory.absolute()
    while not existing.exists():
        existing = existing.parent
    return of_embedded(
        str(whole),
        writable=existing.is_dir() and os.access(existing, os.W_OK | os.X_OK),
        free_bytes=shutil.disk_usage(existing).free,
    )


# ----------------------------------------------------------------------------------------- ports


async def _ports(config: Config, brokers: list[int] | None) -> list[Finding]:
    """`brokers`: their ids; None: not known."""
    listen, admin = config.listen, config.admin
    places = {"admin.port": (admin.host, admin.port)}
    for listener in listen.all():
        option = f"listen.{listener.name}" if listen.listeners else "listen"
        places[f"{option}.bootstrap_port"] = (listener.host, listener.bootstrap_port)
        ids = () if listener.sni is not None else brokers or ()
        for broker_id, slot in product(ids, range(listen.slots_per_broker)):
            port = port_of(listener.port_base, listen.port_step, broker_id, slot)
            places[port_option(option, broker_id, slot)] = (listener.host, port)
    refused = dict(_refused(places))
    ports = {option: port for option, (_, port) in places.items()}
    node_listens = bool(refused) and await _node_listens(admin)
    known = brokers is not None
    return list(of_ports(ports, refused, node_listens=node_listens, brokers_known=known))


def _refused(places: Mapping[str, tuple[str, int]]) -> Iterator[tuple[str, str]]:
    for option, (host, port) in places.items():
        try:
            listening_socket(host, port, option).close()
        except CannotListen as error:
            yield option, str(error)


async def _node_listens(admin: AdminSection) -> bool:
    host = "127.0.0.1" if admin.host in ("", "0.0.0.0") else admin.host  # noqa: S104
    host = f"[{host}]" if ":" in host else host
    try:
        # Whoever answers on a port of this machine; no secret is sent.
        async with httpx.AsyncClient(
            timeout=DOCTOR_ANSWER_MS_MAX / 1000, verify=admin.tls is None
        ) as client:
            scheme = "http" if admin.tls is None else "https"
            answer = await client.get(f"{scheme}://{host}:{admin.port}/health/live")
            return bool(answer.json() == {"status": "alive"})
    except (httpx.HTTPError, ValueError):
        return False
