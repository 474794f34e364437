"""Parked records listed and released while stores fail, windows load and others decide too."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
import structlog

from dispatcher.core.model import (
    Acknowledge,
    Acquire,
    Member,
    MemberId,
    MembersChanged,
    OperatorVerb,
    PoisonPolicy,
    Reason,
    SessionId,
)
from dispatcher.store.base import StoreError, Write
from gateway.config.groups import GroupSection
from gateway.core.routing.ownership import Standing
from gateway.operations import parked_records
from gateway.operations.errors import (
    GroupUnknown,
    InvalidOperation,
    NobodyTakes,
    NotParked,
    PartitionUnknown,
    StateUnavailable,
)
from gateway.operations.parked_records import EVERYTHING, Choice, ParkedRecords
from tests.rig.admin_parts import Admin, ScriptedStarts
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
    return ParkedRecords(admin.offsets, ScriptedStarts(), now_ms)


async def offsets_of(records: ParkedRecords) -> list[int]:
    return [row.offset for row in await records.rows(GROUP)]


async def released(records: ParkedRecords, choice: Choice, verb: OperatorVerb) -> list[int]:
    """The offsets, of one partition."""
    (decided,) = await records.release(GROUP, choice, verb)
    assert decided.failed is None
    return decided.offsets


def test_all_or_none() -> None:
    async def work() -> None:
        admin = Admin(section=BLOCKING)
        async with admin.node:
            records = await parked(admin)
            assert await offsets_of(records) == [0, 1, 2]
            with pytest.raises(NotParked, match=r"offset 3 is not parked \(and 1 more\)"):
                await released(records, Choice(TOPIC, 0, (1, 3, 4)), OperatorVerb.SKIP)
            assert await offsets_of(records) == [0, 1, 2]
            with structlog.testing.capture_logs() as logs:
                chosen = await released(records, Choice(TOPIC, 0, (2, 1, 2)), OperatorVerb.SKIP)
            assert chosen == [1, 2]
            (line,) = [entry for entry in logs if entry["event"] == "parked_released"]
            assert (line["records"], line["first"], line["last"]) == (2, 1, 2)
            assert await offsets_of(records) == [0]
            assert await released(records, Choice(TOPIC, 0), OperatorVerb.RETRY) == [0]
            with pytest.raises(NotParked, match="nothing is parked"):
                await released(records, Choice(TOPIC, 0), OperatorVerb.RETRY)

    run(work())


def test_many_are_decided_about_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each a step of its own in the store; what is decided stays so if a later one fails."""
    monkeypatch.setattr(parked_records, "PARKED_AT_ONCE", 2)

    async def work() -> None:
        admin = Admin(section=BLOCKING)
        async with admin.node:
            records = await parked(admin, 7)
            assert await offsets_of(records) == list(range(7))
            page = await records.rows(GROUP, after=(TOPIC, 0, 1), rows_max=3)
            assert [row.offset for row in page] == [2, 3, 4]
            apply, before = admin.store.apply, len(admin.store.applied)

            async def away_behind_the_second(writes: Sequence[Write]) -> list[StoreError | None]:
                if len(admin.store.applied) == before + 2:
                    admin.store.failures = [StoreError("away")] * 2
                return await apply(writes)

            monkeypatch.setattr(admin.store, "apply", away_behind_the_second)
            done, left = await records.release(GROUP, Choice(TOPIC, 0), OperatorVerb.SKIP)
            assert (done.offsets, done.failed) == ([0, 1, 2, 3], None)
            assert left.failed is not None
            assert await offsets_of(records) == [4, 5, 6]
            assert await released(records, Choice(TOPIC, 0), OperatorVerb.SKIP) == [4, 5, 6]

    run(work())


def test_what_no_member_takes_stays_parked() -> None:
    async def work() -> None:
        admin = Admin(section=BLOCKING)
        async with admin.node:
            records = await parked(admin)
            taker = Member(M1, filters=(b"key-1",))
            await admin.node.window().ask(MembersChanged((taker,), now_ms()))
            done, left = await records.release(GROUP, EVERYTHING, OperatorVerb.RETRY)
            assert (done.offsets, done.failed) == ([1], None)
            assert str(left.failed).startswith("2 records stay parked: no member that is there")
            with pytest.raises(NobodyTakes, match="a record stays parked"):
                await records.release(GROUP, Choice(TOPIC, 0, (2,)), OperatorVerb.RETRY)
            assert await offsets_of(records) == [0, 2]

    run(work())


def test_not_to_the_topic_they_come_from() -> None:
    async def work() -> None:
        section = BLOCKING.model_copy(update={"dead_letter_topic": TOPIC})
        admin = Admin(section=section)
        async with admin.node:
            records = await parked(admin)
            with pytest.raises(InvalidOperation, match="itself"):
                await released(records, Choice(TOPIC, 0, (0,)), OperatorVerb.DEAD_LETTER)
            assert await offsets_of(records) == [0, 1, 2]

    run(work())


def test_two_operators_decide_once() -> None:
    async def work() -> None:
        admin = Admin(section=BLOCKING)
        async with admin.node:
            records = await parked(admin)
            results = await asyncio.gather(
                *(released(records, Choice(TOPIC, 0, (0,)), OperatorVerb.SKIP) for _ in range(3)),
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
                await released(records, Choice(TOPIC, 7), OperatorVerb.SKIP)
            with pytest.raises(PartitionUnknown):
                await released(records, Choice("another", 0), OperatorVerb.SKIP)
            with pytest.raises(InvalidOperation):
                await released(records, Choice(TOPIC, 0, (0,)), OperatorVerb.DEAD_LETTER)
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
                admin.node.windows.table.drop(admin.key(partition))
            assert await released(records, Choice(TOPIC, 0, (0,)), OperatorVerb.SKIP) == [0]
            admin.node.windows.table.drop(admin.key(0))
            assert await offsets_of(records) == [1, 2], "the decision is stored"
            assert admin.node.windows.table.get(GROUP, TOPIC_ID, 0) is not None

    run(work())


def test_a_store_that_is_away_is_said() -> None:
    async def work() -> None:
        admin = Admin(section=BLOCKING)
        async with admin.node:
            records = await parked(admin)
            admin.store.failures = [StoreError("away")] * 2  # the write, and the same once more
            with pytest.raises(StateUnavailable):
                await released(records, Choice(TOPIC, 0, (0,)), OperatorVerb.SKIP)
            assert await offsets_of(records) == [0, 1, 2], "nothing of it happened"

    run(work())


def test_a_window_that_does_not_load_is_not_waited_for_without_end() -> None:
    async def work() -> None:
        admin = Admin(section=BLOCKING)
        async with admin.node:
            records = await parked(admin)
            admin.node.windows.table.drop(admin.key(0))
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
            assert await released(records, Choice(TOPIC, 0, (1,)), OperatorVerb.DEAD_LETTER) == [1]
            await settle()
            assert admin.node.dead_letters.written == [[1]]
            assert await offsets_of(records) == [0, 2]

    run(work())


def test_all_of_a_group_or_those_of_a_filter() -> None:
    async def work() -> None:
        admin = Admin(section=BLOCKING)
        async with admin.node:
            records = await parked(admin)
            chosen = Choice(key=b"key-[01]")
            with pytest.raises(NotParked, match="the group: no parked record matches"):
                await records.release(GROUP, chosen, OperatorVerb.SKIP)
            with pytest.raises(NotParked, match="no parked record matches"):
                await records.release(GROUP, Choice(reason=Reason.RELEASED), OperatorVerb.SKIP)
            assert await released(records, Choice(key=b"*-1"), OperatorVerb.SKIP) == [1]
            rows = await records.rows(GROUP, Choice(key=b"key-?", reason=Reason.REJECTED))
            assert [row.offset for row in rows] == [0, 2]
            assert await released(records, EVERYTHING, OperatorVerb.RETRY) == [0, 2]

    run(work())


def test_a_partition_that_is_away_does_not_hold_up_the_others() -> None:
    async def work() -> None:
        admin = Admin(section=BLOCKING)
        async with admin.node:
            records = await parked(admin)
            admin.node.log.produce(b"x", partition=1)
            await settle()
            other = admin.node.window(1)
            assert other.acquire(Acquire(M1, S1, 9, now_ms())) is not None
            await other.ask(Acknowledge(M1, S1, [(0, 0, REJECT)], now_ms()))
            admin.node.windows.table.drop(admin.key(0))
            admin.store.create_failures = [StoreError("away")] * 1_000
            gone, done = await records.release(GROUP, EVERYTHING, OperatorVerb.SKIP)
            assert (gone.partition, gone.offsets) == (0, [])
            assert "is not loaded" in str(gone.failed)
            assert (done.partition, done.offsets, done.failed) == (1, [0], None)
            admin.store.create_failures.clear()

    run(work())


def test_parked_records_that_no_node_has_now_are_not_left_out_in_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work() -> None:
        admin = Admin(section=BLOCKING)
        async with admin.node:
            records = await parked(admin)
            for window in admin.node.windows.table.all():
                admin.node.windows.table.drop(window.key)

            async def refused() -> str:
                with pytest.raises((NotParked, StateUnavailable)) as raised:
                    await records.release(GROUP, EVERYTHING, OperatorVerb.SKIP)
                return str(raised.value)

            standing = Standing.HANDING_OVER
            monkeypatch.setattr(admin.node.owners, "standing", lambda _: standing)
            assert await refused() == "it moves to another node, or has no leader"
            standing = Standing.ELSEWHERE
            assert await refused() == "it moves to another node, or has no leader"
            monkeypatch.setattr(admin.node.owners, "endpoints", lambda: {1: {}})
            assert await refused() == "the group: nothing is parked", "another node has it"

    run(work())


def test_a_group_that_stopped_still_has_its_parked_records() -> None:
    """Its windows leave memory; also after a restart, when only the store has them. A store that
    is away at the start tells nothing: that is not 0.
    """

    async def work() -> None:
        admin = Admin(section=BLOCKING)
        async with admin.node:
            records = await parked(admin)
            lags, counts = admin.lags(), admin.node.windows.table.parked

            def shown() -> int | None:
                return counts.of_group(GROUP, admin.node.windows.table.of_group(GROUP))

            assert shown() is not None
            for window in admin.node.windows.table.all():
                admin.node.windows.table.drop(window.key)
            assert shown() == 3
            await lags.refresh(stored=True)
            assert shown() == 3
            counts.forget(GROUP)  # another process
            assert shown() is None
            admin.store.down = True
            with pytest.raises(StateUnavailable):
                await admin.lags().refresh(stored=True)
            assert shown() is None
            admin.store.down = False
            await admin.lags().refresh(stored=True)
            assert shown() == 3
            assert await released(records, Choice(TOPIC, 0, (1,)), OperatorVerb.SKIP) == [1]
            for window in admin.node.windows.table.all():
                admin.node.windows.table.drop(window.key)
            assert shown() == 2
            (tp,) = {lag.tp for lag in lags.of_group(GROUP) if lag.tp.partition == 0}
            admin.node.beat("m1", -1)
            await admin.offsets.set_positions(GROUP, {tp: 0})
            assert shown() == 0, "they are to be delivered again"

    run(work())
