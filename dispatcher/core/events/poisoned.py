"""Poison records, rejected or exhausted: the DLQ's answers, the operator's decisions, retries whose
time has come.
"""

from __future__ import annotations

from typing import assert_never

from dispatcher.core.model import DeadLettered, OperatorAct, OperatorVerb, Reason
from dispatcher.core.records.retry import Retry, backoff_ms
from dispatcher.core.records.state import WindowState
from dispatcher.core.steps import Notice, RetryState


def dead_lettered(state: WindowState, event: DeadLettered) -> None:
    for offset in event.offsets:
        retry = state.retries.by_offset.get(offset)
        if retry is None or retry.state is not RetryState.DEAD_LETTER:
            continue  # Truncated meanwhile.
        if event.durable:
            end_record(state, offset)
            state.count_poison(Notice.TRUNCATED if event.gone else Notice.DEAD_LETTERED, retry)
        elif event.no_topic:
            queue = state.window.queue_at(offset)
            state.poison_anew(retry, event.now_ms)
            state.offer_key_of(queue)
        else:
            retry.dead_letter_failures += 1
            due_ms = event.now_ms + backoff_ms(state.policy, retry.dead_letter_failures)
            state.retries.wait(retry, due_ms)
            state.changes.append(retry.noted())


def operator_act(state: WindowState, event: OperatorAct) -> None:
    """Offsets that are not parked are passed over."""
    for offset in event.offsets:
        retry = state.retries.by_offset.get(offset)
        if retry is None or retry.state is not RetryState.PARKED:
            continue
        match event.verb:
            case OperatorVerb.RETRY:
                state.retries.turn(retry, RetryState.WAITING)
                retry.due_ms = event.now_ms
                retry.held = False
                retry.reason = Reason.OPERATOR
                state.changes.append(retry.noted())
                state.offer_key_of(state.window.queue_at(offset))
            case OperatorVerb.SKIP:
                end_record(state, offset)
                state.count_poison(Notice.DROPPED, retry)
            case OperatorVerb.DEAD_LETTER:
                state.dead_letter(retry)
            case _:
                assert_never(event.verb)


def end_record(state: WindowState, offset: int) -> None:
    """Settles a held record and lets the next of its key go."""
    queue = state.window.queue_at(offset)
    state.settle(offset)
    state.offer_key_of(queue)


def retries_due(state: WindowState, now_ms: int) -> None:
    for retry in state.retries.take_due(now_ms):
        again(state, retry)


def again(state: WindowState, retry: Retry) -> None:
    if retry.state is RetryState.DEAD_LETTER:
        state.dead_letters.append(retry)
    else:
        retry.held = False
        state.offer_key_of(state.window.queue_at(retry.offset))
