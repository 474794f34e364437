"""Facts for `keyway doctor` about the other nodes that share its Redis: what they say of
themselves, and whether they can be reached. No secret is sent.
"""

from __future__ import annotations

import asyncio
import secrets
import time

import httpx
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.admin.peers import NODE_ONLY, PROOF
from gateway.config.file import Config
from gateway.node.diagnosis import Finding, skipped
from gateway.node.limits import DOCTOR_ANSWER_MS_MAX, DOCTOR_NODES_MAX
from gateway.node.nodes_diagnosis import OtherNode, Ours, of_nodes
from gateway.node.redis_state import configured, url_of
from gateway.routing.build import (
    ADMIN_TLS,
    CLOCK_OFF_MS,
    SETTINGS,
    agreed_settings,
    settings_digest,
)
from gateway.routing.shared_table import NodeRow, RoutingUnavailable, living_nodes

_CLUSTER = "upstream cluster"
_SECONDS = DOCTOR_ANSWER_MS_MAX / 1000


async def look_at_nodes(config: Config, cluster_id: str | None) -> list[Finding]:
    """`cluster_id` None: upstream could not be asked. Raises ConfigError."""
    name, url = config.nodes.id, url_of(config.state)
    if name is None or url is None:
        return []
    pool = configured(url).pool(socket_timeout=_SECONDS, socket_connect_timeout=_SECONDS)
    client: Redis = Redis.from_pool(pool)
    try:
        rows = [row for row in await living_nodes(client) if row.node.id != name]
        clock_off_s = await _clock_off_s(client)
    except (RoutingUnavailable, RedisError, OSError, TimeoutError):
        return [skipped("nodes", "Redis")]
    finally:
        await client.aclose()
    agreed = agreed_settings(config, cluster_id or "")
    if cluster_id is None:
        del agreed[_CLUSTER]
    ours = Ours(name, agreed, settings_digest(config), clock_off_s)
    others = await asyncio.gather(*(_other(row) for row in rows[:DOCTOR_NODES_MAX]))
    return list(of_nodes(ours, others))


async def _clock_off_s(client: Redis) -> float:
    began = time.time_ns()
    seconds, microseconds = await client.time()
    return seconds + microseconds / 1e6 - (began + time.time_ns()) / 2e9


async def _other(row: NodeRow) -> OtherNode:
    rest = str(row.facts.get("admin", ""))
    off_ms = row.facts.get(CLOCK_OFF_MS)
    silence, *found = await asyncio.gather(
        _rest_silence(row.node.id, rest, tls=bool(row.facts.get(ADMIN_TLS))),
        *(_closed(host, port) for host, port in _one_of_each_listener(row)),
    )
    return OtherNode(
        id=row.node.id,
        agreed=row.agreed,
        settings=str(row.facts.get(SETTINGS)),
        clock_off_s=float(off_ms) / 1000 if isinstance(off_ms, int | float) else None,
        rest=rest,
        rest_silence=silence,
        closed={
            f"{host}:{port}": reason
            for (host, port), reason in zip(_one_of_each_listener(row), found, strict=True)
            if reason
        },
    )


def _one_of_each_listener(row: NodeRow) -> list[tuple[str, int]]:
    """The other ports of a listener are at the same host."""
    if not row.node.serves:
        return []
    return sorted(set(row.node.serves[min(row.node.serves)].values()))


async def _rest_silence(node: str, address: str, *, tls: bool) -> str:
    """Why this node does not answer there; "": it does. On loopback, another one may."""
    url = f"{'https' if tls else 'http'}://{address}{PROOF}?nonce={secrets.token_hex(16)}"
    try:
        # Only the node's name is asked for.
        async with httpx.AsyncClient(timeout=_SECONDS, verify=False, trust_env=False) as client:  # noqa: S501
            said = (await client.get(url, headers={NODE_ONLY: node})).json()
            found = said.get("node") if isinstance(said, dict) else None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return " ".join(str(error).split()) or type(error).__name__
    if found == node:
        return ""
    return f"node {found} answers there" if found else "something else answers there"


async def _closed(host: str, port: int) -> str:
    """Why nobody takes connections there; "": somebody does."""
    try:
        async with asyncio.timeout(_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return f"no answer within {_SECONDS:g} s"
    except OSError as error:
        return error.strerror or str(error)
    writer.close()
    return ""
