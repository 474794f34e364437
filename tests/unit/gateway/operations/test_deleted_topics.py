"""Windows of deleted topics leave the store, and no others do."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from dispatcher.core.steps import Snapshot
from dispatcher.store.base import StoreError, WindowKey
from gateway.core.limits import DELETED_TOPICS_MS
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.schema import Message
from gateway.operations.deleted_topics import DeletedTopics
from gateway.windows.window_keys import topic_id_text
from tests.rig.admin_parts import Admin, View, worked
from tests.rig.node_parts import TOPIC_ID
from tests.rig.virtual_time import run, until

OLD = topic_id_text(b"o" * 16)
GONE = [WindowKey("g", OLD, 0), WindowKey("g", OLD, 1), WindowKey("h", OLD, 0)]


class Brokers(View):
    known: set[bytes]

    async def call(self, api_key: int, body: Message, **_: Any) -> Message:  # noqa: ARG002
        rows = [(row["TopicId"], row["TopicId"] in self.known) for row in body["Topics"]]
        unknown = int(ErrorCode.UNKNOWN_TOPIC_ID)
        return {
            "Topics": [
                {
                    "TopicId": topic_id,
                    "Name": "orders" if known else None,
                    "ErrorCode": 0 if known else unknown,
                }
                for topic_id, known in rows
            ]
        }


async def with_windows(admin: Admin) -> tuple[DeletedTopics, Brokers]:
    await worked(admin)
    for key in GONE:
        claimed = await admin.store.claim(key, "node")
        await admin.store.create(key, claimed.fence, Snapshot(cursor=3))
    brokers = Brokers(admin.node)
    brokers.known = {TOPIC_ID}
    admin.offsets.upstream = brokers
    return DeletedTopics(admin.offsets, DELETED_TOPICS_MS), brokers


def test_what_two_looks_found_unknown_is_deleted() -> None:
    async def work() -> None:
        admin = Admin()
        async with admin.node:
            topics, brokers = await with_windows(admin)
            before = set(admin.store.windows)
            assert await topics.sweep() == 0, "one look is none"
            brokers.known.add(b"o" * 16)
            assert await topics.sweep() == 0, "it was only late"
            brokers.known.clear()
            assert await topics.sweep() == 0
            assert await topics.sweep() == 3, "not those in memory, whatever the brokers say"
            assert set(admin.store.windows) == before - set(GONE)

    run(work())


def test_so_is_the_number_of_partitions_that_a_group_began_with() -> None:
    async def work() -> None:
        admin = Admin()
        async with admin.node:
            topics, _ = await with_windows(admin)
            for topic_id in (OLD, topic_id_text(TOPIC_ID)):
                await admin.offsets.begun_topics.partitions_of("unreliable once", topic_id, 2)
            await topics.sweep()
            assert OLD in await admin.offsets.begun_topics.topics()
            await topics.sweep()
            assert await admin.offsets.begun_topics.topics() == {topic_id_text(TOPIC_ID)}

    run(work())


def test_a_store_that_is_away_is_asked_again() -> None:
    async def work() -> None:
        admin = Admin()
        async with admin.node:
            topics, _ = await with_windows(admin)
            admin.store.down = True
            with pytest.raises(StoreError):
                await topics.sweep()
            sweeping = admin.node.tasks.create_task(topics.sweep_forever())
            admin.store.down = False
            within_s = 3 * DELETED_TOPICS_MS / 1000
            await until(lambda: not set(GONE) & set(admin.store.windows), within_s=within_s)
            sweeping.cancel()

    run(work())


class Shared:
    """Rows that nodes share."""

    def __init__(self, *topic_ids: bytes) -> None:
        self.rows = {*topic_ids}

    def topics(self) -> set[bytes]:
        return set(self.rows)

    async def delete_topics(self, topic_ids: Collection[bytes]) -> None:
        self.rows -= {*topic_ids}


def test_what_nodes_have_told_of_deleted_topics_goes_with_them() -> None:
    async def work() -> None:
        admin = Admin()
        async with admin.node:
            topics, _ = await with_windows(admin)
            topics.shared = shared = Shared(TOPIC_ID, b"n" * 16, b"o" * 16)
            await topics.sweep()
            assert shared.rows == {TOPIC_ID, b"n" * 16, b"o" * 16}, "one look is none"
            await topics.sweep()
            assert shared.rows == {TOPIC_ID}

    run(work())
