"""The guard of REST: each role on each route, groups that a token does not see, cookies, failed
logins, and the audit of all of it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
import structlog

from gateway.admin.access import Access
from gateway.admin.api import OPERATIONS
from gateway.admin.health import Health
from gateway.admin.limits import FAILED_LOGINS_PER_ADDRESS_MAX
from gateway.admin.operation import GROUP as GROUP_PARAMETER
from gateway.admin.operation import Operation
from gateway.config.admin import Role
from gateway.core.cluster.topology import Topic
from tests.rig.admin_parts import Admin
from tests.rig.node_parts import GROUP, TOPIC
from tests.rig.rest_parts import access, served, token
from tests.rig.virtual_time import run, settle

OTHER = "payments"  # a group that tokens for `orders-*` do not see


def entries() -> Access:
    return access(
        *(token(role.value, role, values=sees_values(role)) for role in Role),
        *(
            token(f"{role.value}-of-orders", role, ["orders-*"], values=sees_values(role))
            for role in Role
        ),
    )


def sees_values(role: Role) -> bool:
    """In these tests; a configuration may choose otherwise."""
    return role is not Role.VIEWER


def allowed(role: Role, operation: Operation) -> bool:
    if operation.values and not sees_values(role):
        return False
    return operation.role is None or role.includes(operation.role)


# A right request of each route that changes something: body and query.
CHANGES: dict[str, tuple[dict[str, Any] | None, dict[str, str]]] = {
    "parked.release": (
        {"group": GROUP, "topic": TOPIC, "partition": 0, "offsets": "all", "action": "retry"},
        {},
    ),
    "parked.value": (None, {"topic": TOPIC, "partition": "0", "offset": "0"}),
    "unreadable.skip": ({"group": GROUP, "topic": TOPIC, "partition": 0, "offset": 0}, {}),
    "settings.set": ({"values": {"deliveries_max": "3"}}, {"group": GROUP}),
    "group.delete": (None, {}),
    "filters.set": ({"rules": [{"client_id": "a*", "keys": ["b*"]}]}, {"group": GROUP}),
    "filters.remove": (None, {"group": GROUP}),
    "repartitions.start": ({"topic": TOPIC, "partitions": 2}, {}),
    "repartitions.abort": ({"topic": TOPIC}, {}),
    "positions.seek": ({"to": "latest", "execute": True}, {}),
    "config.reload": (None, {}),
    "tls.reload": (None, {}),
    "nodes.drain": ({"node": "b"}, {}),
    "nodes.undrain": ({"node": "b"}, {}),
    "nodes.move": ({"broker": 1, "node": "b"}, {}),
    "login": ({"token": "viewer"}, {}),
    "logout": (None, {}),
}


@asynccontextmanager
async def orders_and_payments(guard: Access, **changes: Any) -> AsyncIterator[httpx.AsyncClient]:
    admin = Admin()
    async with admin.node as node, served(admin, access=guard, **changes) as client:
        node.log.produce(b"personal", b"b", b"c")
        known = node.topology
        secrets = Topic("secrets", b"s" * 16, known.topics[TOPIC].partitions)
        node.change_topology(replace(known, topics={**known.topics, "secrets": secrets}))
        node.beat()
        node.groups.ensure(OTHER)
        await settle()
        yield client


def story(
    tell: Callable[[httpx.AsyncClient], Awaitable[None]],
    guard: Access | None = None,
    **changes: Any,
) -> None:
    async def work() -> None:
        async with orders_and_payments(guard or entries(), **changes) as client:
            await tell(client)

    run(work())


def asked(
    client: httpx.AsyncClient,
    operation: Operation,
    who: str | None,
    group: str = GROUP,
    **more: str,
) -> Awaitable[httpx.Response]:
    """`more`: parameters."""
    body, query = CHANGES.get(operation.action or "", (None, {}))
    query = {**query, **({"group": group} if GROUP_PARAMETER in operation.query else {}), **more}
    if body is not None and "group" in body:
        body = {**body, "group": group}
    headers = {} if who is None else {"Authorization": f"Bearer {who}"}
    path = operation.path.replace("{group}", group)
    return client.request(operation.method, path, params=query, json=body, headers=headers)


def described(operation: Operation) -> str:
    return f"{operation.method} {operation.path}"


@pytest.mark.parametrize("operation", OPERATIONS, ids=described)
def test_each_role_on_each_route(operation: Operation) -> None:
    async def tell(client: httpx.AsyncClient) -> None:
        status = (await asked(client, operation, None)).status_code
        assert (status == 401) is (operation.role is not None)
        for role in Role:
            status = (await asked(client, operation, role.value)).status_code
            assert (status == 403) is not allowed(role, operation), (role, status)
            assert status not in (401, 429, 500), (role, status)

    story(tell)


@pytest.mark.parametrize("operation", OPERATIONS, ids=described)
def test_a_parameter_that_the_route_does_not_have(operation: Operation) -> None:
    """It is refused, behind the guard; scrapers and load balancers may add their own."""

    async def tell(client: httpx.AsyncClient) -> None:
        names = [parameter.name for parameter in (*operation.query, *operation.optional)]
        for who in (None, "viewer", "admin"):
            right = await asked(client, operation, who)
            client.cookies.clear()  # of a login
            wrong = await asked(client, operation, who, tpoic="a")
            if operation.any_query or right.status_code in (401, 403):
                assert wrong.status_code == right.status_code
            else:
                assert wrong.status_code == 400
                assert wrong.headers["content-type"] == "application/problem+json"
                taken = ", ".join(names) or "none"
                assert wrong.json()["title"] == f"no parameter 'tpoic'; this path takes {taken}"

    story(tell)


@pytest.mark.parametrize("twice", ["limit=1&limit=1", "limit=1&topic=a&limit=2", "topic=&topic="])
def test_a_parameter_that_is_given_twice(twice: str) -> None:
    async def tell(client: httpx.AsyncClient) -> None:
        client.headers["authorization"] = "Bearer viewer"
        answer = await client.get(f"/v1/positions?group={GROUP}&{twice}")
        assert answer.status_code == 400
        assert answer.json()["title"] == f"the parameter {twice.partition('=')[0]} is given twice"
        assert (await client.get("/health?limit=1&limit=1")).status_code == 200

    story(tell)


@pytest.mark.parametrize("operation", OPERATIONS, ids=described)
def test_a_token_for_some_groups_on_each_route(operation: Operation) -> None:
    async def tell(client: httpx.AsyncClient) -> None:
        body, _ = CHANGES.get(operation.action or "", (None, {}))
        of_group = operation.of_group or (body is not None and "group" in body)
        for role in Role:
            if not allowed(role, operation):
                continue
            who = f"{role.value}-of-orders"
            answer = await asked(client, operation, who)
            assert (answer.status_code == 403) is operation.whole
            if not of_group:
                assert OTHER not in answer.text or operation.role is None
                continue
            hidden = await asked(client, operation, who, OTHER)
            missing = await asked(client, operation, who, "no such group")
            assert hidden.status_code == missing.status_code == 404
            assert hidden.json()["title"] == f"no group '{OTHER}'", "as of one that is not there"
            assert (await asked(client, operation, role.value, OTHER)).status_code != 403

    story(tell)


def test_a_token_for_some_groups_sees_no_figures_of_others() -> None:
    async def tell(client: httpx.AsyncClient) -> None:
        for who, every in (("admin", True), ("admin-of-orders", False)):
            headers = {"Authorization": f"Bearer {who}"}
            overview = (await client.get("/v1/overview", headers=headers)).json()
            assert (overview["traffic"] is not None) is every
            health = (await client.get("/health", headers=headers)).json()
            lines = ["redis is away", "so is more"] if every else ["redis"]
            assert health["reasons"] == overview["health"]["reasons"] == lines

    async def troubled() -> Health:
        return Health(True, ("redis is away", "so is more"), {}, {"redis": 2, "reading": 0})

    story(tell, health=troubled)


def test_a_token_for_some_groups_seeks_in_their_topics_alone() -> None:
    async def tell(client: httpx.AsyncClient) -> None:
        for topic, statuses in ((TOPIC, (200, 200)), ("secrets", (200, 404))):
            for who, status in zip(("operator", "operator-of-orders"), statuses, strict=True):
                answer = await client.post(
                    f"/v1/positions/seek?group={GROUP}",
                    json={"to": "latest", "topic": topic},
                    headers={"Authorization": f"Bearer {who}"},
                )
                assert answer.status_code == status, (topic, who)

    story(tell)


def test_who_may_not_see_keys_counts_none_by_pattern() -> None:
    """Glob by glob, a preview spells them."""

    async def tell(client: httpx.AsyncClient) -> None:
        found = []
        for who in ("viewer", "operator", "operator-of-orders"):
            answer = await client.post(
                f"/v1/filters/preview?group={GROUP}",
                json={"rules": [{"client_id": "*", "keys": ["pers*"]}]},
                headers={"Authorization": f"Bearer {who}"},
            )
            found.append((answer.status_code, answer.json().get("keys", {}).get("dropped")))
        assert found == [(403, None), (200, 2), (200, 2)]

    story(tell)


def test_every_change_is_in_the_table_above() -> None:
    assert {known.action for known in OPERATIONS if known.action is not None} == set(CHANGES)


def test_a_hidden_group_reads_like_one_that_is_not_there() -> None:
    async def tell(client: httpx.AsyncClient) -> None:
        limited = {"Authorization": "Bearer viewer-of-orders"}
        full = {"Authorization": "Bearer viewer"}
        for path in ("/v1/groups/{}", "/v1/parked?group={}", "/v1/unreadable?group={}"):
            hidden = await client.get(path.format(OTHER), headers=limited)
            absent = await client.get(path.format("absent!!"), headers=full)
            assert hidden.status_code == absent.status_code == 404
            assert hidden.json()["title"].replace(OTHER, "absent!!") == absent.json()["title"]

    story(tell)


@pytest.mark.parametrize(
    "operation", [known for known in OPERATIONS if known.action], ids=described
)
def test_each_change_and_each_refusal_is_audited(operation: Operation) -> None:
    async def tell(client: httpx.AsyncClient) -> None:
        with structlog.testing.capture_logs() as lines:
            done = await asked(client, operation, "admin-of-orders")
        audited = [line for line in lines if line["event"] == "audit"]
        assert len(audited) == 1
        (line,) = audited
        assert line["action"] == operation.action
        if operation.role is not None:
            assert (line["who"], line["role"]) == ("admin-of-orders", "admin")
            assert line["group"] == (None if operation.whole else GROUP)
        assert line["address"] == "127.0.0.1"
        wanted = "done" if done.is_success else f"refused: {done.status_code}"
        assert line["outcome"].startswith(wanted)
        assert guard.audit.rows()[0].action == operation.action
        if operation.role is None:
            return
        with structlog.testing.capture_logs() as lines:
            await asked(client, operation, "viewer")
            await asked(client, operation, "admin-of-orders", OTHER)
            await asked(client, operation, None)
        audited = [line for line in lines if line["event"] == "audit"]
        assert [(line["who"], line["outcome"]) for line in audited] == [
            ("viewer", "refused: 403"),
            ("admin-of-orders", "refused: 403" if operation.whole else "refused: 404"),
            (None, "refused: 401"),
        ]

    guard = entries()
    story(tell, guard)


def test_no_token_is_in_the_log_the_answers_or_the_audit() -> None:
    secret = "keyway_this-is-the-secret"

    async def tell(client: httpx.AsyncClient) -> None:
        texts = []
        with structlog.testing.capture_logs() as lines:
            for shown in (secret, f"x{secret}"):
                headers = {"Authorization": f"Bearer {shown}"}
                texts.append((await client.get("/v1/groups", headers=headers)).text)
                texts.append((await client.get("/v1/login", headers=headers)).text)
                texts.append((await client.post("/v1/login", json={"token": shown})).text)
                texts.append((await client.post("/v1/login", json={shown: 1})).text)
        rows = [row.model_dump() for row in guard.audit.rows()]
        assert len(lines) == len(rows) > 3
        assert secret not in json.dumps([lines, texts, rows])

    guard = access(token(secret, Role.ADMIN).model_copy(update={"name": "ann"}))
    story(tell, guard)


def test_a_browser_logs_in_and_out() -> None:
    async def tell(client: httpx.AsyncClient) -> None:
        assert (await client.get("/v1/groups")).status_code == 401
        wrong = await client.post("/v1/login", json={"token": "wrong"})
        assert (wrong.status_code, wrong.headers["www-authenticate"]) == (
            *(401, 'Bearer realm="keyway"'),
        )
        answer = await client.post("/v1/login", json={"token": "operator-of-orders"})
        assert answer.json() == {
            "name": "operator-of-orders",
            "role": "operator",
            "groups": ["orders-*"],
            "keys": True,
            "values": True,
        }
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert "operator-of-orders" not in cookie
        assert (await client.get("/v1/login")).json() == answer.json()
        shown = (await client.get("/v1/groups")).json()["groups"]
        assert [row["group"] for row in shown] == [GROUP]
        assert (await client.post("/v1/logout", headers=SAME)).status_code == 200
        assert (await client.get("/v1/groups")).status_code == 401

    story(tell)


SAME = {"sec-fetch-site": "same-origin"}
ORIGINS = [
    ({}, False),  # a cookie comes from a browser, and browsers say from where
    (SAME, True),
    ({"sec-fetch-site": "same-site"}, False),
    ({"sec-fetch-site": "cross-site"}, False),
    ({"sec-fetch-site": "none"}, False),
    ({"origin": "http://localhost"}, True),
    ({"origin": "http://LOCALHOST"}, True),
    ({"origin": "http://localhost:9181"}, False),
    ({"origin": "http://evil.example"}, False),
    ({"origin": "http://[evil"}, False),
    ({"origin": "null"}, False),
    ({"sec-fetch-site": "cross-site", "origin": "http://localhost"}, False),
]


@pytest.mark.parametrize(("headers", "good"), ORIGINS)
def test_a_change_with_a_cookie_comes_from_a_page_of_this_node(
    headers: dict[str, str], good: bool
) -> None:
    async def tell(client: httpx.AsyncClient) -> None:
        await client.post("/v1/login", json={"token": "operator"})
        answer = await client.delete(f"/v1/filters?group={GROUP}", headers=headers)
        assert answer.status_code == (200 if good else 403)
        assert (await client.get("/v1/groups", headers=headers)).status_code == 200
        bearer = {**headers, "Authorization": "Bearer operator"}
        answer = await client.delete(f"/v1/filters?group={GROUP}", headers=bearer)
        assert answer.status_code == 200, "no browser sends this by itself"

    story(tell)


@pytest.mark.parametrize(("headers", "good"), [({}, True), *ORIGINS[1:]])
def test_without_tokens_no_other_page_changes_anything(headers: dict[str, str], good: bool) -> None:
    async def tell(client: httpx.AsyncClient) -> None:
        answer = await client.delete(f"/v1/filters?group={GROUP}", headers=headers)
        assert answer.status_code == (200 if good else 403)

    story(tell, access())


def test_without_tokens_everybody_may_do_everything_but_see_keys() -> None:
    async def tell(client: httpx.AsyncClient) -> None:
        shown = (await client.get("/v1/login")).json()
        assert shown == {
            "name": None,
            "role": "admin",
            "groups": ["*"],
            "keys": False,
            "values": False,
        }
        answer = await client.post("/v1/login", json={"token": "any"})
        assert (answer.json(), "set-cookie" in answer.headers) == (shown, False)
        assert (await client.get("/metrics")).status_code == 200

    story(tell, access())


def test_failed_logins_are_limited_and_lock_nobody_out() -> None:
    async def tell(client: httpx.AsyncClient) -> None:
        most = FAILED_LOGINS_PER_ADDRESS_MAX
        with structlog.testing.capture_logs() as lines:
            for at in range(most):
                wrong = {"Authorization": f"Bearer wrong{at}"}
                assert (await client.get("/v1/groups", headers=wrong)).status_code == 401
            for answer in (
                await client.get("/v1/groups", headers={"Authorization": "Bearer wrong"}),
                await client.post("/v1/login", json={"token": "wrong"}),
            ):
                assert answer.status_code == 429
                assert 0 < int(answer.headers["retry-after"]) <= 60
        right = {"Authorization": "Bearer viewer"}
        assert (await client.get("/v1/groups", headers=right)).status_code == 200
        # One line for GET /v1/groups, one for the login: strangers do not fill the log.
        assert [line["action"] for line in lines] == ["GET /v1/groups", "login"]

    story(tell)


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic dmlld2Vy", "viewer", "bearer\tviewer", "Bearer \xff"]
)
def test_headers_that_are_no_token(header: str) -> None:
    async def tell(client: httpx.AsyncClient) -> None:
        headers = {b"Authorization": header.encode("latin-1")}
        answer = await client.get("/v1/groups", headers=headers)
        assert answer.status_code == 401
        assert answer.headers["content-type"] == "application/problem+json"

    story(tell)


def test_health_for_those_who_may_not_see_all() -> None:
    async def tell(client: httpx.AsyncClient) -> None:
        for path in ("/health/ready", "/health/live"):
            assert (await client.get(path)).status_code == 200
        assert set((await client.get("/health/ready")).json()) == {"status", "reasons", "warnings"}
        assert (await client.get("/health")).status_code == 401

    story(tell)


def test_metrics_may_be_open() -> None:
    async def work() -> None:
        async with orders_and_payments(entries(), metrics_open=True) as client:
            assert (await client.get("/metrics")).status_code == 200
            assert (await client.get("/v1/groups")).status_code == 401

    run(work())
