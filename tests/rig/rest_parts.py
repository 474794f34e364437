"""The parts of REST over a Node of scripted surroundings, and tokens for its callers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import httpx
from prometheus_client import CollectorRegistry
from pydantic import SecretStr
from redis.asyncio import Redis

from gateway.admin.access import Access
from gateway.admin.audit import Audit
from gateway.admin.configuration import Configuration
from gateway.admin.distribution import Distribution
from gateway.admin.failed_logins import FailedLogins
from gateway.admin.health import Health
from gateway.admin.rest import RestParts, rest_app
from gateway.admin.tokens import LoginSessions, Tokens, sha256_of
from gateway.config.admin import AdminSection, MaskRule, Role, TokenSection
from gateway.config.file import Config, ConfigSource
from gateway.core.cluster.topology import Topology
from gateway.core.repartition.plan import Order, Plan
from gateway.core.repartition.record import Pace, Repartition
from gateway.listen.server import Server, ServerSettings
from gateway.members.key_filters import KeyFilters
from gateway.operations.group_administration import GroupAdministration
from gateway.operations.group_histories import GroupHistories
from gateway.operations.parked_records import ParkedRecords
from gateway.operations.unreadable_records import UnreadableRecords
from gateway.repartition.running import RunningTopic
from gateway.windows.record_flow import RecordFlow
from tests.rig.admin_parts import Admin, ScriptedStarts
from tests.rig.gateway_process import Settings
from tests.rig.virtual_time import now_ms


class Hashes:
    """The commands of Redis that a table of rows uses, in memory."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, str]] = {}
        self.counters: dict[str, int] = {}

    async def incr(self, key: str) -> int:
        self.counters[key] = self.counters.get(key, 0) + 1
        return self.counters[key]

    async def hset(self, key: str, mapping: dict[str, str]) -> None:
        self.rows.setdefault(key, {}).update(mapping)

    async def hdel(self, key: str, *names: str) -> None:
        for name in names:
            self.rows.get(key, {}).pop(name, None)

    async def xrevrange(self, key: str, count: int) -> list[Any]:  # noqa: ARG002
        """Nobody reads what changed."""
        return []

    async def xadd(self, key: str, entry: object, **limits: object) -> None: ...

    async def hgetall(self, key: str) -> dict[bytes, str]:
        return {name.encode(): text for name, text in self.rows.get(key, {}).items()}


async def healthy() -> Health:
    return Health(True, (), {})


def access(*tokens: TokenSection, clock: Callable[[], int] = now_ms) -> Access:
    """Without tokens everybody may do everything."""
    known = Tokens(tokens)
    return Access(known, LoginSessions(known, clock), FailedLogins(clock), Audit(clock))


def token(
    text: str,
    role: Role,
    groups: Sequence[str] = ("*",),
    *,
    keys: bool | None = None,
    values: bool = False,
) -> TokenSection:
    """The entry of keyway.yaml for the token `text`, under that name."""
    return TokenSection(
        name=text,
        role=role,
        sha256=SecretStr(sha256_of(text)),
        groups=tuple(groups),
        keys=keys,
        values=values,
    )


def role_tokens(*roles: str) -> list[Settings]:
    """Entries of keyway.yaml for one token of each role, whose text and name is the role's."""
    return [{"name": role, "role": role, "sha256": sha256_of(role)} for role in roles]


@dataclass(slots=True)
class ScriptedRepartitions:
    """Any topic may grow, and none does."""

    records: dict[str, Repartition] = field(default_factory=dict)
    running: dict[str, RunningTopic] = field(default_factory=dict)
    leads: bool = True

    async def plan(self, order: Order) -> Plan:
        return Plan(
            topic=order.topic,
            before=1,
            after=order.after,
            into=order.into,
            partitioner=order.partitioner,
            ordered_groups=(),
            unordered_groups=tuple(order.unordered),
            refusals=(),
        )

    start = plan

    async def abort(self, topic: str, *, force: bool = False) -> Repartition:  # noqa: ARG002
        pace = Pace(adoption_ms=0, settle_ms=0, late_ms=0)
        return Repartition(
            topic=topic, topic_id="00", before=1, after=2, partitioner=None, pace=pace
        )


def rest_parts(admin: Admin | None = None, **changes: Any) -> RestParts:
    """Without an Admin only the table of routes is complete. `changes`: other parts."""
    node = None if admin is None else admin.node
    offsets = cast(Any, None if admin is None else admin.offsets)
    topology = Topology() if node is None else node.topology
    filters = KeyFilters(Config(), cast(Redis, Hashes()), lambda: 1_000)
    guard = changes.get("access") or access()
    masks: tuple[MaskRule, ...] = changes.pop("masks", ())
    record_starts = changes.pop("record_starts", ScriptedStarts())
    parts: dict[str, Any] = {
        "server": Server(ServerSettings(()), topology, {}),
        "upstream": None if admin is None else admin.view,
        "offsets": offsets,
        "groups": None if node is None else node.groups,
        "windows": None if node is None else node.windows.table,
        "parked": ParkedRecords(offsets, record_starts, now_ms),
        "unreadable": UnreadableRecords(offsets),
        "administration": GroupAdministration(offsets, cast(Any, node and node.settings)),
        "repartitions": ScriptedRepartitions(),
        "filters": filters,
        "registry": CollectorRegistry(),
        "lags": None if admin is None else admin.lags(),
        "health": healthy,
        "access": guard,
        "distribution": Distribution(None, now_ms),
        "configuration": None
        if node is None
        else Configuration(
            node.config.model_copy(update={"admin": AdminSection(masks=masks)}),
            ConfigSource(),
            guard.tokens,
            node.settings,
            filters,
            node.groups,
        ),
    }
    parts |= changes
    if parts["lags"] is not None:
        group = parts["groups"].get
        parts["histories"] = GroupHistories(parts["lags"], RecordFlow(), group, now_ms)
    return RestParts(**{"histories": None} | parts)


@asynccontextmanager
async def served(admin: Admin, **changes: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the REST of `admin`, whose node must run."""
    transport = httpx.ASGITransport(rest_app(rest_parts(admin, **changes), loopback=True))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client
