"""The configuration over REST: secrets as stars, differences from the file, the reload."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import httpx
from redis.asyncio import Redis

from gateway.admin.configuration import Configuration
from gateway.config.admin import Role
from gateway.config.file import ConfigSource
from gateway.members.key_filters import KeyFilters
from tests.rig.admin_parts import Admin
from tests.rig.node_parts import GROUP
from tests.rig.rest_client import pages
from tests.rig.rest_parts import Hashes, access, served, token
from tests.rig.virtual_time import run, settle

ADMIN = token("root", Role.ADMIN)
ENTRY = "{name: root, role: admin, sha256: " + ADMIN.sha256.get_secret_value() + "}"
SAME = f"admin: {{tokens: [{ENTRY}]}}\ngroups:\n  - {{assignment_interval_ms: 0, match: '*'"


def write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")


def story(folder: Path, tell: Callable[[httpx.AsyncClient, Admin, Path], Awaitable[None]]) -> None:
    """The node runs with the contents of SAME, its one section closed."""

    async def work() -> None:
        file = folder / "keyway.yaml"
        write(file, SAME + "}")
        source = ConfigSource(file)
        admin = Admin()
        node = admin.node
        node.settings.reload(source.read())
        async with node:
            filters = KeyFilters(source.read(), cast(Redis, Hashes()), lambda: 1_000)
            guard = access(ADMIN)
            configuration = Configuration(
                source.read(), source, guard.tokens, node.settings, filters, node.groups
            )
            node.log.produce(b"a", b"b")
            node.beat()
            await settle()
            parts = {"access": guard, "filters": filters, "configuration": configuration}
            async with served(admin, **parts) as client:
                client.headers["authorization"] = "Bearer root"
                await tell(client, admin, file)

    run(work())


def test_the_running_configuration_without_its_secrets(tmp_path: Path) -> None:
    async def tell(client: httpx.AsyncClient, _: Admin, file: Path) -> None:
        shown = (await client.get("/v1/config")).json()
        assert shown["file"] == str(file)
        assert (shown["differences"], shown["problem"]) == ([], None)
        assert shown["config"]["groups"][0]["lock_duration_ms"] == 30_000
        redis = "state: {redis_url: 'redis://:hunter2@h:1'}\n"
        write(file, redis + SAME.replace("root, role", "eve, role") + "}")
        answer = await client.get("/v1/config")
        assert "hunter2" not in answer.text
        assert ADMIN.sha256.get_secret_value() not in answer.text
        assert answer.json()["differences"] == [
            {"option": "admin.tokens.0.name", "running": "root", "file": "eve", "reload": True},
            {"option": "state.redis_url", "running": None, "file": "*" * 10, "reload": False},
        ]

    story(tmp_path, tell)


def test_a_reload(tmp_path: Path) -> None:
    async def tell(client: httpx.AsyncClient, admin: Admin, file: Path) -> None:
        rules = "filters: [{client_id: 'x*', keys: ['k*']}]"
        entry = "{name: ann, role: viewer, sha256: " + "0f" * 32 + "}"
        two = SAME.replace(f"[{ENTRY}]", f"[{ENTRY}, {entry}]")
        write(file, f"listen: {{port_base: 9300}}\n{two}, lock_duration_ms: 7000, {rules}}}")
        answer = await client.post("/v1/config/reload")
        assert answer.status_code == 200, answer.text
        reloaded = answer.json()["reloaded"]
        assert "groups.0.lock_duration_ms" in reloaded
        assert "groups.0.filters.0.client_id" in reloaded
        assert "admin.tokens.1.name" in reloaded
        assert answer.json()["restart"] == ["listen.port_base"]
        assert admin.node.settings.of(GROUP).lock_duration_ms == 7_000
        assert admin.node.window().section.lock_duration_ms == 7_000
        shown = (await client.get("/v1/filters", params={"group": GROUP})).json()
        assert shown["rules"] == [{"client_id": "x*", "keys": ["k*"]}]
        differences = (await client.get("/v1/config")).json()["differences"]
        assert [difference["option"] for difference in differences] == ["listen.port_base"]
        write(file, SAME.replace(ENTRY, entry) + "}")
        assert (await client.post("/v1/config/reload")).status_code == 200
        assert (await client.get("/v1/groups")).status_code == 401, "its token is gone"

    story(tmp_path, tell)


def test_masks_and_limits_are_told_as_what_a_reload_takes(tmp_path: Path) -> None:
    async def tell(client: httpx.AsyncClient, _: Admin, file: Path) -> None:
        masked = SAME.replace("}]}", "}], masks: [{fields: ['*.iban']}]}")
        write(file, "limits: [{name: all, connections: 9}]\n" + masked + "}")
        differences = (await client.get("/v1/config")).json()["differences"]
        assert {"admin.masks.0.fields", "limits.0.connections"} <= {
            difference["option"] for difference in differences
        }
        assert {difference["reload"] for difference in differences} == {True}
        assert (await client.post("/v1/config/reload")).json()["restart"] == []
        assert (await client.get("/v1/config")).json()["differences"] == []

    story(tmp_path, tell)


def test_settings_that_shape_windows_need_a_restart(tmp_path: Path) -> None:
    async def tell(client: httpx.AsyncClient, admin: Admin, file: Path) -> None:
        write(file, SAME + ", lock_duration_ms: 7000, span_max: 64}")
        differences = (await client.get("/v1/config")).json()["differences"]
        assert {difference["reload"] for difference in differences} == {False}
        answer = (await client.post("/v1/config/reload")).json()
        assert answer == {
            "reloaded": [],
            "restart": ["groups.0.lock_duration_ms", "groups.0.span_max"],
        }
        assert admin.node.settings.of(GROUP).lock_duration_ms == 30_000

    story(tmp_path, tell)


def test_a_file_with_a_fault_changes_nothing(tmp_path: Path) -> None:
    async def tell(client: httpx.AsyncClient, _: Admin, file: Path) -> None:
        write(file, "admin: {host: 0.0.0.0}")
        shown = (await client.get("/v1/config")).json()
        assert "tokens is needed" in shown["problem"]
        answer = await client.post("/v1/config/reload")
        assert answer.status_code == 409
        assert "tokens is needed" in answer.json()["title"]
        assert (await client.get("/v1/config")).status_code == 200, "the token still counts"

    story(tmp_path, tell)


def test_the_audit(tmp_path: Path) -> None:
    async def tell(client: httpx.AsyncClient, _: Admin, __: Path) -> None:
        await client.delete("/v1/filters", params={"group": GROUP})
        await client.post("/v1/config/reload")
        await client.get("/v1/groups", headers={"authorization": "Bearer wrong"})
        rows = (await client.get("/v1/audit")).json()["audit"]
        assert [row["action"] for row in rows] == [
            *("GET /v1/groups", "config.reload", "filters.remove"),
        ]
        assert [row["who"] for row in rows] == [None, "root", "root"]
        (row,) = (await client.get("/v1/audit", params={"group": GROUP})).json()["audit"]
        assert (row["role"], row["address"], row["outcome"]) == ("admin", "127.0.0.1", "done")
        paged = await pages(client, "/v1/audit", "audit")
        assert paged == rows
        await client.post("/v1/config/reload")
        later = (await client.get(f"/v1/audit?after={rows[0]['id']}")).json()
        assert later == {"audit": rows[1:], "next": None}, "a page is behind, whatever comes"
        for wrong in ("after=x", "after=-1", "limit=0", "limit=1001"):
            assert (await client.get(f"/v1/audit?{wrong}")).status_code == 400, wrong

    story(tmp_path, tell)
