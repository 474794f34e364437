"""Parked records listed and released while stores fail, windows load and others decide too."""

from __future__ import annotations

import asyncio

import pytest
import structlog

from dispatcher.core.model import (
    Acknowledge,
    Acquire,
    MemberId,
    OperatorVerb,
    PoisonPolicy,
    SessionId,
)
from dispatcher.store.base import StoreError
from gateway.config import GroupSection
from gateway.operations.errors import (
    GroupUnknown,
    InvalidOperation,
    NotParked,
    PartitionUnknown,
    StateUnavailable,
)
from gateway.operations.parked_records import ParkedRecords
from tests.rig.admin_parts import Admin, ScriptedHeaders
from tests.rig.node_parts import GROUP, TOPIC, TOPIC_ID
from tests.rig.virtual_time import now_ms, run, settle

M1, S1 = MemberId("m1"), SessionId("s1")
REJECT = b"\3"
BLOCKING = GroupSection(auto_offset_reset="earliest", rejected=PoisonPolicy.BLOCK)


async def parked(admin: Admin, count: int = 3) -> ParkedRecords:
    """`count` records of as many keys, each with one more behind it, are parked in partition 0."""
    keys = [b"key-%d" % at for at in range(count)]
    admin.node.log.produce(*keys, *keys)
    admin.node.beat()
    await settle()
    acquired = admin.node.window().acquire(Acquire(M1, S1, 100, now_ms()))
    assert acquired is not None
    batches = [(offset, offset, REJECT) for offset in acquired.offsets]
    await admin.node.window().ask(Acknowledge(M1, S1, batches, now_ms()))
    await settle()
    return ParkedRecords(admin.offsets, ScriptedHeaders(), now_ms)


async def offsets_of(records: ParkedRecords) -> list[int]:
    return [row.offset for row in await records.rows(GROUP)]


def test_all_or_none() -> None:
    async def work() -> None:
        admin = Admin(section=BLOCKING)
        async with admin.node:
            records = await parked(admin)
            assert await offsets_of(records) == [0, 1, 2]
            with pytest.raises(NotParked, match=r"offset 3 is not parked \(and 1 more\)"):
                await records.release(GROUP, TOPIC, 0, [1, 3, 4], OperatorVerb.SKIP)
            assert await offsets_of(records) == [0, 1, 2]
            with structlog.testing.capture_logs() as logs:
                released = await records.release(GROUP, TOPIC, 0, [2, 1, 2], OperatorVerb.SKIP)
            assert released == [1, 2]
            (line,) = [entry for entry in logs if entry["event"] == "parked_released"]
            assert (line["records"], line["first"], line["last"]) == (2, 1, 2)
            assert await offsets_of(records) == [0]
            assert await records.release(GROUP, TOPIC, 0, None, OperatorVerb.RETRY) == [0]
            with pytest.raises(NotParked, match="nothing is parked"):
                await records.release(GROUP, TOPIC, 0, None, OperatorVerb.RETRY)

    run(work())


def test_not_to_the_topic_they_come_from() -> None:
    async def work() -> None:
        section = BLOCKING.model_copy(update={"dead_letter_topic": TOPIC})
        admin = Admin(section=section)
        async with admin.node:
            records = await parked(admin)
            with pytest.raises(InvalidOperation, match="itself"):
                await records.release(GROUP, TOPIC, 0, [0], OperatorVerb.DEAD_LETTER)
            assert await offsets_of(records) == [0, 1, 2]

    run(work())


def test_two_operators_decide_once() -> None:
    async def work() -> None:
        admin = Admin(section=BLOCKING)
        async with admin.node:
            records = await parked(admin)
            results = await asyncio.gather(
                *(records.release(GROUP, TOPIC, 0, [0], OperatorVerb.SKIP) for _ in range(3)),
                return_exceptions=True,
            )
            assert sorted(type(result).__name__ for result in results) == [
                "NotParked",
                "NotParked",
                "list",
            ]

    run(work())


def test_what_is_not_there() -> None:
    async def work() -> None:
        admin = Admin(section=BLOCKING)
        async with admin.node:
            records = await parked(admin)
            with pytest.raises(GroupUnknown):
                await records.rows("another")
            with pytest.raises(PartitionUnknown):
                await records.release(GROUP, TOPIC, 7, None, OperatorVerb.SKIP)
            with pytest.raises(PartitionUnknown):
                await records.release(GROUP, "another", 0, None, OperatorVerb.SKIP)
            with pytest.raises(InvalidOperation):
                await records.release(GROUP, TOPIC, 0, [0], OperatorVerb.DEAD_LETTER)
            assert await offsets_of(records) == [0, 1, 2]

    run(work())


def test_a_window_that_is_not_in_memory_is_opened() -> None:
    async def work() -> None:
        admin = Admin(section=BLOCKING)
        async with admin.node:
            records = await parked(admin)
            admin.node.beat("m1", -1)
            await settle()
            for partition in (0, 1):
                admin.node.windows.drop(admin.key(partition))
            assert await records.release(GROUP, TOPIC, 0, [0], OperatorVerb.SKIP) == [0]
            admin.node.windows.drop(admin.key(0))
            assert await offsets_of(records) == [1, 2], "the decision is stored"
            assert admin.node.windows.get(GROUP, TOPIC_ID, 0) is not None

    run(work())


def test_a_store_that_is_away_is_said() -> None:
    async def work() -> None:
        admin = Admin(section=BLOCKING)
        async with admin.node:
            records = await parked(admin)
            admin.store.failures = [StoreError("away")] * 2  # the write, and the same once more
            with pytest.raises(StateUnavailable):
                await records.release(GROUP, TOPIC, 0, [0], OperatorVerb.SKIP)
            assert await offsets_of(records) == [0, 1, 2], "nothing of it happened"

    run(work())


def test_a_window_that_does_not_load_is_not_waited_for_without_end() -> None:
    async def work() -> None:
        admin = Admin(section=BLOCKING)
        async with admin.node:
            records = await parked(admin)
            admin.node.windows.drop(admin.key(0))
            admin.store.create_failures = [StoreError("away")] * 1_000
            with pytest.raises(StateUnavailable, match="is not loaded"):
                await records.rows(GROUP)
            admin.store.create_failures.clear()

    run(work())


def test_dead_letters_are_written_for_a_group_that_has_a_topic_for_them() -> None:
    async def work() -> None:
        section = BLOCKING.model_copy(update={"dead_letter_topic": "dlq"})
        admin = Admin(section=section)
        async with admin.node:
            records = await parked(admin)
            assert await records.release(GROUP, TOPIC, 0, [1], OperatorVerb.DEAD_LETTER) == [1]
            await settle()
            assert admin.node.dead_letters.written == [[1]]
            assert await offsets_of(records) == [0, 2]

    run(work())
