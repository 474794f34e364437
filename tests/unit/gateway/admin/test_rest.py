"""The operator's REST, asked as ASGI: its view of groups and windows, and its refusals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlencode

import pytest
from prometheus_client import CollectorRegistry

from dispatcher.core.model import (
    Acknowledge,
    AckType,
    Acquire,
    MemberId,
    PoisonPolicy,
    SessionId,
)
from gateway.admin import groups
from gateway.admin.health import Health, HealthCollector
from gateway.admin.problems import Refusals
from gateway.admin.rest import rest_app
from gateway.admin.rows import PartitionRow
from gateway.config.groups import GroupSection
from gateway.core.reading.fetching import Unreadable
from gateway.core.share.membership import ShareGroup
from gateway.operations.lag import Lags
from gateway.windows.metrics import WindowCollector
from gateway.windows.window import Window
from tests.rig.admin_parts import Admin
from tests.rig.node_parts import GROUP, TOPIC, Node
from tests.rig.rest_parts import rest_parts
from tests.rig.virtual_time import now_ms, run, settle

M1, S1 = MemberId("m1"), SessionId("s1")


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Rest:
    node: Node
    registry: CollectorRegistry
    lags: Lags
    health: Health = field(default_factory=lambda: Health(True, (), {"windows": 2}))
    refusals: Refusals = field(default_factory=Refusals)
    health_seen: HealthCollector = field(default_factory=HealthCollector)

    async def look(self) -> Health:
        return self.health

    async def ask(self, path: str, *, method: str = "GET", host: str = "localhost") -> Answer:
        parts = rest_parts(
            groups=self.node.groups,
            windows=self.node.windows.table,
            registry=self.registry,
            lags=self.lags,
            health=self.look,
            refusals=self.refusals,
            health_seen=self.health_seen,
        )
        raw, _, query = path.partition("?")
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(raw),
            "raw_path": raw.encode(),
            "query_string": query.encode(),
            "headers": [(b"host", host.encode())],
            "server": ("127.0.0.1", 9180),
            "client": ("127.0.0.1", 1),
        }
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(dict(message))

        await rest_app(parts, loopback=True)(scope, receive, send)
        start = sent[0]
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], headers, b"".join(m.get("body", b"") for m in sent[1:]))


def story(
    tell: Callable[[Rest], Awaitable[None]], rejected: PoisonPolicy = PoisonPolicy.DROP
) -> None:
    async def work() -> None:
        admin = Admin(section=GroupSection(auto_offset_reset="earliest", rejected=rejected))
        async with admin.node as node:
            node.log.produce(b"personal", b"b", b"c")
            node.beat()
            await settle()
            await tell(Rest(node, CollectorRegistry(), admin.lags()))

    run(work())


def test_groups_come_a_page_at_a_time() -> None:
    async def tell(rest: Rest) -> None:
        names = sorted([GROUP, "a/b", "z&y", *(f"g{at}" for at in range(4))])
        for name in names:
            rest.node.groups.ensure(name)
        found: list[str] = []
        after: str | None = ""
        while after is not None:
            answer = await rest.ask("/v1/groups?" + urlencode({"limit": 3, "after": after}))
            assert len(answer.json["groups"]) <= 3
            found += [row["group"] for row in answer.json["groups"]]
            after = answer.json["next"]
        assert found == names
        for limit in ("0", "1001", "-1", "many", ""):
            assert (await rest.ask(f"/v1/groups?limit={limit}")).status == 400

    story(tell)


def test_groups() -> None:
    async def tell(rest: Rest) -> None:
        answer = await rest.ask("/v1/groups")
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        group = {"group": GROUP, "state": "Stable", "members": 1, "topics": [TOPIC], "windows": 2}
        assert answer.json["groups"] == [
            {**group, "lag": None, "lag_seconds": None, "parked": 0}
        ], "nobody has looked yet"
        assert answer.json["next"] is None
        await rest.lags.refresh(stored=True)
        known = {"lag": 3, "lag_seconds": now_ms() / 1000, "parked": 0}
        assert (await rest.ask("/v1/groups")).json["groups"] == [{**group, **known}]

    story(tell)


def test_a_group_and_its_windows() -> None:
    async def tell(rest: Rest) -> None:
        window = rest.node.window(0)
        assert window.acquire(Acquire(M1, S1, 2, now_ms())) is not None
        await window.ask(Acknowledge(M1, S1, [(0, 0, bytes([AckType.REJECT]))], now_ms()))
        rest.node.window(1).fail(RuntimeError("away"))
        rest.node.log.troubles[0] = Unreadable("offset 3: wrong CRC", -1)
        answer = await rest.ask(f"/v1/groups/{GROUP}")
        assert answer.status == 200
        assert answer.json["policies"] == {"rejected": "block", "exhausted": "block"}
        (member,) = answer.json["memberships"]
        assert (member["member_id"], member["client_id"]) == ("m1", "client-m1")
        up, loading = answer.json["partitions"]
        assert (up["state"], up["cursor"], up["read_position"]) == ("up", 0, 3)
        assert (up["unsettled"], up["in_flight"]) == (3, 1)
        assert up["read_trouble"] == "offset 3: wrong CRC"
        (parked,) = up["parked"]
        assert (parked["offset"], parked["reason"], parked["deliveries"]) == (0, "rejected", 1)
        assert "personal" not in answer.body.decode(), "a key may be personal data"
        assert loading == {
            "topic": TOPIC,
            "partition": 1,
            "state": "loading",
            "trouble": "RuntimeError: away",
            "log_end": 0,
            "lag": 0,
            "lag_seconds": 0.0,
            "parked_records": 0,
        }
        assert (up["log_end"], up["lag"], answer.json["lag"]) == (3, 3, 3)
        assert up["trouble"] is None

    story(tell, PoisonPolicy.BLOCK)


def test_other_work_goes_on_between_two_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Telling of one takes longer the more it holds: many at once would hold up the node."""
    order: list[str] = []
    row_of = groups._window

    def seen(window: Window, group: ShareGroup) -> PartitionRow:
        order.append(repr(window.key.partition))
        asyncio.get_running_loop().call_soon(order.append, "other work")
        return row_of(window, group)

    async def tell(rest: Rest) -> None:
        monkeypatch.setattr("gateway.admin.groups._window", seen)
        answer = await rest.ask(f"/v1/groups/{GROUP}")
        assert [row["partition"] for row in answer.json["partitions"]] == [0, 1]
        assert order == ["0", "other work", "1", "other work"]

    story(tell)


def test_a_group_whose_windows_have_left_memory() -> None:
    async def tell(rest: Rest) -> None:
        rest.node.windows.table.drop(rest.node.window(0).key)
        rest.node.log.produce(b"d")
        idle, up = (await rest.ask(f"/v1/groups/{GROUP}")).json["partitions"]
        place = {"topic": TOPIC, "partition": 0, "state": "idle"}
        assert idle == {
            **place,
            "cursor": 0,
            "log_end": 4,
            "lag": 4,
            "lag_seconds": now_ms() / 1000,
            "parked_records": 0,
        }
        assert (up["partition"], up["state"], up["lag"]) == (1, "up", 0)

    story(tell)


def test_what_a_join_found_and_what_drains() -> None:
    """PIP-282's and PIP-379's figures, whichever of the two policies the group has."""

    async def tell(rest: Rest) -> None:
        window = rest.node.window(0)
        assert window.acquire(Acquire(M1, S1, 100, now_ms())) is not None
        for number in range(2, 40):
            rest.node.beat(f"m{number}", connection=number)
        rest.node.log.produce(b"personal", b"b", b"c")
        await settle()
        for number in range(2, 40):
            assert window.ready_for(MemberId(f"m{number}"), now_ms()) == 0
        answer = await rest.ask(f"/v1/groups/{GROUP}")
        row = answer.json["partitions"][0]
        assert (row["last_sent_position"], row["individually_sent_positions"]) == (2, [])
        first, second = row["members"][:2]
        assert first["last_sent_position_when_joining"] is None
        assert second["last_sent_position_when_joining"] == 2
        names = ("keys", "in_flight", "blocked", "attempts", "cleared")
        drains = [first[f"draining_{what}"] for what in names]
        assert drains == [3, 3, 3, 3, 0], "with 39 members none of the keys is the first one's"
        assert row["draining_cleared"] == 0
        named = ("member_id", "in_flight", "blocked", "attempts")
        assert [tuple(d[name] for name in named) for d in row["draining"]] == [("m1", 1, 1, 1)] * 3
        late = row["consumers_after_mark_delete_position"]
        assert len(late) == 38
        assert late[0] == {
            "name": "client-m2",
            "id": "m2",
            "address": "127.0.0.1",
            "last_sent_position_when_joining": 2,
        }
        assert "personal" not in answer.body.decode()
        await window.ask(Acknowledge(M1, S1, [(0, 2, bytes([AckType.ACCEPT]))], now_ms()))
        row = (await rest.ask(f"/v1/groups/{GROUP}")).json["partitions"][0]
        assert row["draining"] == row["consumers_after_mark_delete_position"] == []
        assert row["draining_cleared"] == row["members"][0]["draining_cleared"] == 3

    story(tell)


NAMES = ("a/b", "a/", "/", "a b", "%", "%2F", "../x", "..", "grüße", "{group}", "?", "#", "a;b=c")
ODD_NAMES = (*NAMES, "a\nb", "a\n", "\n", "a\r\nb", "\u2028", "a\0b")


@pytest.mark.parametrize("name", ODD_NAMES)
def test_groups_with_odd_names(name: str) -> None:
    async def tell(rest: Rest) -> None:
        rest.node.groups.ensure(name)
        answer = await rest.ask(f"/v1/groups/{quote(name, safe='')}")
        assert answer.status == 200
        assert answer.json["group"] == name
        assert answer.json["state"] == "Empty"

    story(tell)


@pytest.mark.parametrize(
    ("path", "method", "title"),
    [
        ("/v1/nothing", "GET", "no such path; /v1/openapi.json lists all"),
        ("/v1/groups", "DELETE", "this path takes GET, HEAD only"),
        ("/v1/groups/none", "GET", "no group 'none'"),
    ],
)
def test_a_refusal_says_what_to_do(path: str, method: str, title: str) -> None:
    async def tell(rest: Rest) -> None:
        assert (await rest.ask(path, method=method)).json["title"] == title

    story(tell)


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/v1/groups/none", "GET", 404),
        ("/v1/nothing", "GET", 404),
        ("/dashboard/none.js", "GET", 404),
        ("/dashboard/../rows.py", "GET", 404),
        ("/v1/groups", "DELETE", 405),
        ("/metrics", "POST", 405),
        ("/v1/groups/%ED%A0%80", "GET", 400),  # half a surrogate pair
        ("/v1/groups/a%FF", "GET", 400),
        ("/v1/groups?after=%FF", "GET", 400),
        ("/v1/parked?group=%ED%A0%80", "GET", 400),
        ("/v1/parked?group=" + "x" * 1_025, "GET", 400),  # Kafka would be asked about it
    ],
)
def test_refusals_are_problems(path: str, method: str, status: int) -> None:
    async def tell(rest: Rest) -> None:
        answer = await rest.ask(path, method=method)
        assert answer.status == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json["status"] == status
        assert answer.json["title"]
        assert rest.refusals.counts == {status: 1}

    story(tell)


def test_a_page_from_elsewhere_is_not_served() -> None:
    async def tell(rest: Rest) -> None:
        assert (await rest.ask("/v1/groups", host="evil.example")).status == 421
        assert rest.refusals.counts == {421: 1}, "counted around all checks"

    story(tell)


def test_metrics_and_health() -> None:
    async def tell(rest: Rest) -> None:
        rest.registry.register(WindowCollector(rest.node.windows.table))
        rest.registry.register(rest.refusals)
        rest.registry.register(rest.health_seen)
        await rest.ask("/v1/nothing")
        answer = await rest.ask("/metrics")
        assert b'keyway_rest_refused_total{status="404"} 1.0\n' in answer.body
        assert answer.headers["content-type"].startswith("text/plain")
        assert b"keyway_window_cursor{" in answer.body
        assert b"keyway_health_ready 1.0\n" in answer.body, "each scrape looks"
        rest.health = Health(False, ("Redis",), {}, {"redis": 1})
        answer = await rest.ask("/metrics")
        assert b"keyway_health_ready 0.0\n" in answer.body
        assert b'keyway_health_troubles{part="redis"} 1.0\n' in answer.body

    story(tell)


def test_health_by_who_asks() -> None:
    """An alarm, a load balancer, a supervisor that restarts a hanging node."""

    async def tell(rest: Rest) -> None:
        async def statuses() -> list[int]:
            paths = ("/health", "/health/ready", "/health/live")
            return [(await rest.ask(path)).status for path in paths]

        assert await statuses() == [200, 200, 200]
        well = {"status": "up", "reasons": [], "warnings": [], "windows": 2}
        assert (await rest.ask("/health")).json == well
        rest.health = Health(ready=True, reasons=("a window waits",), figures={})
        assert await statuses() == [503, 200, 200]
        answer = (await rest.ask("/health/ready")).json
        assert answer == {"status": "degraded", "reasons": ["a window waits"], "warnings": []}
        rest.health = Health(ready=False, reasons=("no Redis",), figures={})
        assert await statuses() == [503, 503, 200]
        assert (await rest.ask("/health/live")).json == {"status": "alive"}

    story(tell)
