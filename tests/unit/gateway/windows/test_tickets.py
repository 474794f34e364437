"""Answers that callers wait for: known at once, once, or never."""

from __future__ import annotations

import asyncio

import pytest

from dispatcher.core.steps import AckResult, Effect
from gateway.windows.failures import WindowUnavailable
from gateway.windows.tickets import Tickets
from tests.rig.virtual_time import run, settle

EFFECTS: list[Effect] = [AckResult([None])]


def test_an_answer_that_is_there_is_not_waited_for() -> None:
    tickets = Tickets()
    ticket, answered = tickets.issue()
    assert not answered.done()
    tickets.answer(ticket, EFFECTS)
    assert answered.done()
    with pytest.raises(StopIteration) as stopped:
        answered.__await__().send(None)
    assert stopped.value.value is EFFECTS


def test_a_caller_that_waits_is_woken_and_one_that_gave_up_keeps_nobody_from_waiting() -> None:
    async def story() -> None:
        tickets = Tickets()
        ticket, answered = tickets.issue()

        async def wait() -> list[Effect]:
            return await answered

        async with asyncio.TaskGroup() as tasks:
            given_up = tasks.create_task(wait())
            await settle()
            given_up.cancel()
            await settle()
            waiting = tasks.create_task(wait())
            await settle()
            assert not waiting.done()
            tickets.answer(ticket, EFFECTS)
        assert waiting.result() is EFFECTS

    run(story())


@pytest.mark.parametrize("waits", [True, False])
def test_a_refusal_is_raised_each_time(waits: bool) -> None:
    async def story() -> None:
        tickets = Tickets()
        ticket, answered = tickets.issue()
        if waits:
            asyncio.get_running_loop().call_soon(tickets.refuse, ticket, "fenced")
        else:
            tickets.refuse(ticket, "fenced")
        for _ in range(2):
            with pytest.raises(WindowUnavailable, match="fenced"):
                await answered
        assert answered.done()

    run(story())
