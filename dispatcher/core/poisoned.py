"""Poison records: the DLQ's answers, the operator's decisions, retries whose time has come."""

from __future__ import annotations

from typing import assert_never

from dispatcher.core.flow import Flow
from dispatcher.core.model import (
    DeadLettered,
    Notice,
    OperatorAct,
    OperatorVerb,
    Reason,
    RetryState,
)
from dispatcher.core.retry import Retry, backoff_ms


def dead_lettered(flow: Flow, event: DeadLettered) -> None:
    for offset in event.offsets:
        retry = flow.retries.by_offset.get(offset)
        if retry is None or retry.state is not RetryState.DEAD_LETTER:
            continue  # Truncated meanwhile.
        if event.durable:
            end_record(flow, offset)
            flow.count(Notice.DEAD_LETTERED, 1)
        else:
            retry.dead_letter_failures += 1
            due_ms = event.now_ms + backoff_ms(flow.policy, retry.dead_letter_failures)
            flow.retries.wait(retry, due_ms)
            flow.changes.append(retry.noted())


def operator_act(flow: Flow, event: OperatorAct) -> None:
    """Offsets that are not parked are passed over."""
    for offset in event.offsets:
        retry = flow.retries.by_offset.get(offset)
        if retry is None or retry.state is not RetryState.PARKED:
            continue
        match event.verb:
            case OperatorVerb.RETRY:
                retry.state = RetryState.WAITING
                retry.due_ms = event.now_ms
                retry.held = False
                retry.reason = Reason.OPERATOR
                flow.changes.append(retry.noted())
                flow.offer_key_of(flow.window.queues[offset & flow.window.mask])
            case OperatorVerb.SKIP:
                end_record(flow, offset)
                flow.count(Notice.DROPPED, 1)
            case OperatorVerb.DEAD_LETTER:
                flow.dead_letter(retry)
            case _:
                assert_never(event.verb)


def end_record(flow: Flow, offset: int) -> None:
    """Settles a held record and lets the next of its key go."""
    queue = flow.window.queues[offset & flow.window.mask]
    flow.settle(offset)
    flow.offer_key_of(queue)


def retries_due(flow: Flow, now_ms: int) -> None:
    for retry in flow.retries.take_due(now_ms):
        again(flow, retry)


def again(flow: Flow, retry: Retry) -> None:
    if retry.state is RetryState.DEAD_LETTER:
        flow.dead_letters.append(retry)
    else:
        retry.held = False
        flow.offer_key_of(flow.window.queues[retry.offset & flow.window.mask])
