"""Keys over REST: one, the hot ones, and those who may see them."""

from __future__ import annotations

import base64

import httpx

from dispatcher.core.model import Acknowledge, AckType, Acquire
from dispatcher.core.routing.hashes import key_hash32
from dispatcher.core.routing.kept_keys import kept_bytes
from gateway.config.admin import Role
from tests.rig.admin_parts import M1, S1, Admin
from tests.rig.node_parts import GROUP, TOPIC
from tests.rig.rest_client import pages, rows, story
from tests.rig.rest_parts import access, token
from tests.rig.virtual_time import now_ms, settle


def test_a_key_by_its_name_and_by_its_hash() -> None:
    async def tell(client: httpx.AsyncClient, admin: Admin) -> None:
        path = f"/v1/keys?group={GROUP}"
        window = admin.node.window(0)
        assert window.acquire(Acquire(M1, S1, 1, now_ms())) is not None
        key_hash = f"{key_hash32(b'personal'):08x}"
        (named,) = await rows(client, f"{path}&key=personal", "keys")
        assert named == {
            "topic": TOPIC,
            "partition": 0,
            "state": "in_flight",
            "owner": "m1",
            "holder": "m1",
            "records": 2,
            "in_flight": 1,
            "first_offset": 0,
            "attempts": 0,
            "reason": None,
            "due_ms": None,
            "key_hash": key_hash,
            "key": "personal",
            "key_base64": base64.b64encode(b"personal").decode(),
        }
        quoted = "&key_base64=" + base64.b64encode(b"personal").decode().replace("=", "%3D")
        assert await rows(client, path + quoted, "keys") == [named]
        (hashed,) = await rows(client, f"{path}&key_hash={key_hash}", "keys")
        assert hashed == {k: v for k, v in named.items() if k not in ("key", "key_base64")}
        assert await rows(client, f"{path}&key_hash=00000000", "keys") == []
        (idle,) = await rows(client, f"{path}&key=unheard-of", "keys")
        assert (idle["state"], idle["owner"], idle["records"]) == ("idle", "m1", 0)
        assert idle["first_offset"] is None
        for wrong in ("key=a&key_hash=00000000", "key_base64=x", "key_hash=1", "key_hash=zzzzzzzz"):
            assert (await client.get(f"{path}&{wrong}")).status_code == 400, wrong
        long = await client.get(path, params={"key": "k" * 4_097})
        assert long.status_code == 400

    story(tell)


def test_a_long_key_is_found_by_its_name_and_shown_as_it_is_kept() -> None:
    async def tell(client: httpx.AsyncClient, admin: Admin) -> None:
        long = b"long-" + b"k" * 2_000
        admin.node.log.produce(long)
        admin.node.beat()
        await settle()
        (row,) = await rows(client, f"/v1/keys?group={GROUP}&key={long.decode()}", "keys")
        assert (row["state"], row["records"]) == ("ready", 1)
        assert row["key"] == kept_bytes(long).decode()
        by_hash = f"/v1/keys?group={GROUP}&key_hash={row['key_hash']}"
        assert [found["records"] for found in await rows(client, by_hash, "keys")] == [1]

    story(tell)


def test_a_key_in_many_partitions_comes_a_page_at_a_time() -> None:
    async def tell(client: httpx.AsyncClient, admin: Admin) -> None:
        admin.node.log.produce(b"personal", partition=1)
        await settle()
        path = f"/v1/keys?group={GROUP}"
        for wanted in ("key=personal", f"key_hash={key_hash32(b'personal'):08x}"):
            found = await pages(client, f"{path}&{wanted}", "keys")
            assert [(row["partition"], row["records"]) for row in found] == [(0, 2), (1, 1)]
        behind = await rows(client, f"{path}&key=personal&after={TOPIC}-0-9", "keys")
        assert [row["partition"] for row in behind] == [1]
        (idle,) = await pages(client, f"{path}&key=unheard-of", "keys")
        assert idle["state"] == "idle"
        for wrong in ("key=a&after=x", "key=a&after=x-1", "key=a&limit=101", f"after={TOPIC}-0-0"):
            assert (await client.get(f"{path}&{wrong}")).status_code == 400, wrong
        assert "next" not in (await client.get(path)).json(), "a ranking has no pages"

    story(tell)


def test_keys_with_one_hash_in_one_partition_come_a_page_at_a_time() -> None:
    async def tell(client: httpx.AsyncClient, admin: Admin) -> None:
        admin.node.log.produce(b"k149454", b"k24956", b"k149454", partition=1)
        await settle()
        assert key_hash32(b"k24956") == key_hash32(b"k149454") == 0xAA0C506C
        found = await pages(client, f"/v1/keys?group={GROUP}&key_hash=aa0c506c", "keys")
        assert [(row["first_offset"], row["records"]) for row in found] == [(0, 2), (1, 1)]

    story(tell)


def test_hot_keys_and_those_who_may_see_them() -> None:
    seer = token("seer", Role.VIEWER, keys=True)
    guard = access(token("op", Role.OPERATOR), seer, token("viewer", Role.VIEWER))

    async def tell(client: httpx.AsyncClient, admin: Admin) -> None:
        admin.node.log.produce(b"\xff", b"\xff", b"\xff")
        await settle()
        path = f"/v1/keys?group={GROUP}&limit=2"
        for who in ("op", "seer"):
            client.headers["authorization"] = f"Bearer {who}"
            first, second = await rows(client, path, "keys")
            assert (first["key"], first["key_base64"], first["records"]) == (None, "/w==", 3)
            assert (second["key"], second["records"]) == ("personal", 2)
        client.headers["authorization"] = "Bearer viewer"
        answer = await client.get(path)
        assert "personal" not in answer.text
        assert [row["records"] for row in answer.json()["keys"]] == [3, 2]
        assert "key" not in answer.json()["keys"][0]

    story(tell, access=guard)


def test_keys_of_parked_records_and_those_who_may_see_them() -> None:
    guard = access(token("op", Role.OPERATOR), token("viewer", Role.VIEWER))

    async def tell(client: httpx.AsyncClient, admin: Admin) -> None:
        window = admin.node.window(0)
        assert window.acquire(Acquire(M1, S1, 1, now_ms())) is not None
        await window.ask(Acknowledge(M1, S1, [(0, 0, bytes([AckType.REJECT]))], now_ms()))
        for who, seen in (("op", "personal"), ("viewer", None)):
            client.headers["authorization"] = f"Bearer {who}"
            (row,) = await rows(client, f"/v1/parked?group={GROUP}", "parked")
            assert row.get("key") == seen
            assert row["key_hash"] == f"{key_hash32(b'personal'):08x}"

    story(tell, access=guard)
