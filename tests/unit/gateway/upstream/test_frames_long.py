"""Long answers of brokers: one at a time comes to the node."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from gateway.core.wire.apis import ApiKey
from gateway.upstream.errors import Unreachable
from gateway.upstream.frames import Frames, LongAnswers
from gateway.upstream.limits import LONG_ANSWER_BYTES

LONG = LONG_ANSWER_BYTES + 1_000


class Line(asyncio.Transport):
    """A broker's connection: the test says when its bytes come."""

    def __init__(self, budget: LongAnswers) -> None:
        super().__init__()
        self.reading = True
        self.closing = False
        self.frames = Frames(budget)
        self.frames.connection_made(self)
        self.answer = self.frames.ask(ApiKey.FETCH, 4, "id", b"")

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def is_reading(self) -> bool:
        return self.reading

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True

    def begin(self, size: int) -> None:
        """The size, the correlation id and two bytes of the rest."""
        self.frames.data_received(size.to_bytes(4, "big") + bytes(4) + b"ab")

    def end(self, size: int) -> None:
        self.frames.data_received(bytes(size - 6))


def run(work: Coroutine[None, None, None]) -> None:
    asyncio.run(work)


def test_the_next_one_comes_when_the_first_is_there() -> None:
    async def work() -> None:
        budget = LongAnswers()
        first, second, third = (Line(budget) for _ in range(3))
        for line in (first, second, third):
            line.begin(LONG)
        assert [line.reading for line in (first, second, third)] == [True, False, False]
        first.end(LONG)
        assert first.answer.result() == bytes(4) + b"ab" + bytes(LONG - 6)
        assert [line.reading for line in (first, second, third)] == [True, True, False]
        second.end(LONG)
        third.end(LONG)
        assert third.reading
        assert third.answer.done()

    run(work())


def test_a_connection_that_ends_makes_room() -> None:
    async def work() -> None:
        budget = LongAnswers()
        first, second, third = (Line(budget) for _ in range(3))
        for line in (first, second, third):
            line.begin(LONG)
        second.frames.abort(Unreachable("gave up waiting"))
        first.frames.connection_lost(None)
        assert third.reading
        third.end(LONG)
        assert third.answer.done()
        for line in (first, second):
            assert isinstance(line.answer.exception(), Unreachable)

    run(work())


def test_ordinary_answers_wait_for_nobody() -> None:
    async def work() -> None:
        budget = LongAnswers()
        first, second = Line(budget), Line(budget)
        first.begin(LONG)
        second.begin(LONG_ANSWER_BYTES)
        assert second.reading
        second.end(LONG_ANSWER_BYTES)
        assert len(second.answer.result()) == LONG_ANSWER_BYTES

    run(work())
