"""Dead letters of a window: held until they are written, and decided anew without a topic."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dispatcher.core.model import Acknowledge, AckType, Acquire, MemberId, PoisonPolicy, SessionId
from dispatcher.core.steps import Notice
from dispatcher.store.base import StoreError
from gateway.config.groups import GroupSection
from gateway.core.reading.cache import RecordsReplaced
from gateway.core.share.dead_letter_queue import DeadLetterQueue
from gateway.windows.window import Window
from tests.rig.node_parts import Node
from tests.rig.virtual_time import now_ms, run, settle, until

M1, S1 = MemberId("m1"), SessionId("s1")


async def reject_first(window: Window) -> None:
    assert window.acquire(Acquire(M1, S1, 100, now_ms())) is not None
    await window.ask(Acknowledge(M1, S1, [(0, 0, bytes([AckType.REJECT]))], now_ms()))


def story(tell: Callable[[Node], Awaitable[None]], section: GroupSection) -> None:
    """A member has joined, the log holds three keys."""

    async def work() -> None:
        async with Node(section) as node:
            node.log.produce(b"a", b"b", b"c")
            node.beat()
            await settle()
            await tell(node)

    run(work())


DEAD = GroupSection(
    auto_offset_reset="earliest",
    rejected=PoisonPolicy.DEAD_LETTER,
    dead_letter_topic="dead",
    isolation_level="read_uncommitted",
)


def test_a_letter_of_a_lost_record_does_not_keep_the_window_from_reading() -> None:
    """It is due when the window is loaded, before that has read again to where the log parts."""

    async def tell(node: Node) -> None:
        window, log = node.window(), node.log
        node.dead_letters.outcomes = [False]
        await reject_first(window)
        await settle()
        log.wishes.clear()  # the node is away
        log.elect(0)
        log.records[0] += [b"x", b"y", b"z"]
        log.serve = lambda: None  # type: ignore[method-assign] # a fetch takes longer than a letter
        node.dead_letters.outcomes = [RecordsReplaced([False])] * 100
        window.fail(StoreError("away for a moment"))
        await asyncio.sleep(20)
        assert window.dispatcher is not None
        del log.serve
        log.serve()
        await until(lambda: window.ready_for(M1, now_ms()) == 3)
        assert node.store.windows[window.key].snapshot().retries == []
        assert len(node.dead_letters.outcomes) > 90, "with back-off"

    story(tell, DEAD)


def test_the_answer_of_a_letter_counts_for_the_log_that_it_was_read_from() -> None:
    async def tell(node: Node) -> None:
        window, letters = node.window(), node.dead_letters
        letters.gate, letters.outcomes = asyncio.Event(), [True, False]
        await reject_first(window)
        await settle()
        node.log.elect(0)
        node.log.records[0] += [b"x"]
        node.log.serve()
        await until(lambda: window.ready_for(M1, now_ms()) == 1)
        await reject_first(window)
        await settle()
        letters.gate.set()
        await settle()
        assert node.stored[window.key] == 0, "x could not be written"
        await until(lambda: node.stored[window.key] == 1)
        assert letters.written == [[0]] * 3

    story(tell, DEAD)


@pytest.mark.parametrize("trouble", [False, RuntimeError("a bug")], ids=str)
def test_dead_letters_that_could_not_be_written_are_written_later(
    trouble: bool | Exception,
) -> None:
    async def tell(node: Node) -> None:
        window = node.window()
        node.dead_letters.outcomes = [trouble]
        await reject_first(window)
        await settle()
        assert node.stored[window.key] == 0, "the key is held"
        await until(lambda: node.stored[window.key] == 1)
        assert node.dead_letters.written == [[0], [0]]
        assert node.dead_letters.isolations == [0, 0], "read as the group reads"

    story(tell, DEAD)


def test_a_record_that_the_log_has_lost_is_no_dead_letter() -> None:
    async def tell(node: Node) -> None:
        node.dead_letters.outcomes = [None]
        await reject_first(node.window())
        await settle()
        assert node.stored[node.window().key] == 1
        counted = [one.notice for one in node.noticed]
        assert counted == [Notice.REJECTED, Notice.TRUNCATED]

    story(tell, DEAD)


def test_a_dead_letter_that_outlives_its_window_is_written_again_and_settles_once() -> None:
    async def tell(node: Node) -> None:
        window = node.window()
        gate = node.dead_letters.gate = asyncio.Event()
        await reject_first(window)
        window.fail(RuntimeError("meanwhile"))
        await until(lambda: len(node.dead_letters.written) == 2)
        gate.set()
        await until(lambda: node.stored[window.key] == 1)
        await settle()
        letters = [n.count for n in node.noticed if n.notice is Notice.DEAD_LETTERED]
        assert letters == [1]

    story(tell, DEAD)


def test_a_queue_of_kafkas_is_what_letters_are_written_to() -> None:
    async def tell(node: Node) -> None:
        window = node.window()
        queue = DeadLetterQueue("dlq.g", copies=True)
        window.retune(DEAD.with_queue(queue))
        await reject_first(window)
        await until(lambda: node.stored[window.key] == 1)
        assert node.dead_letters.queues == [queue]

    story(tell, DEAD)


def test_letters_of_a_group_without_a_topic_have_the_policy_that_counts_now() -> None:
    async def tell(node: Node) -> None:
        window = node.window()
        node.dead_letters.outcomes = [False]
        await reject_first(window)
        await settle()
        assert node.dead_letters.written == [[0]]
        window.retune(
            GroupSection(auto_offset_reset="earliest", isolation_level="read_uncommitted")
        )
        await until(lambda: node.stored[window.key] == 1)
        assert node.dead_letters.written == [[0]], "there is no topic to write it to"
        assert any(noticed.notice is Notice.DROPPED for noticed in node.noticed)

    story(tell, DEAD)
