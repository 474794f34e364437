"""Tells the checkers of the steps of a window, once they are persisted, in their order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from dispatcher.core.hold import HoldMoved
from dispatcher.core.life.commands import Ticket
from dispatcher.core.model import (
    Acknowledge,
    Acquire,
    DeadLettered,
    Event,
    Gone,
    LogCut,
    LogTruncated,
    MembersChanged,
    NotSent,
    OperatorAct,
    OperatorVerb,
    Policy,
    RecordsRead,
    SessionClosed,
    SessionLost,
    SessionOpened,
    Ticked,
    present,
)
from dispatcher.core.steps import AckResult, Delivered, Effect, Notice, Noticed, Step
from tests.sim.causes import accepted_by_nobody
from tests.sim.checkers import CheckFailure
from tests.sim.due import withheld
from tests.sim.lost import judge_read
from tests.sim.verdicts import check_verdicts

if TYPE_CHECKING:
    from tests.sim.window import Window

Observer = Callable[[list[Effect]], None] | None


@dataclass(frozen=True, slots=True)
class Pending:
    """One event that is not answered yet, and the policy it was handled under."""

    event: Event
    step: Step
    answer: Observer
    policy: Policy
    held: bool = False  # some records waited for another window, or were of a lost tail


def refused(window: Window, ticket: Ticket) -> Observer:
    """With a retriable error."""
    entry = window.pending.pop(ticket)
    window.checkers.holds.refused(entry.event)
    return entry.answer


def judge(window: Window, entry: Pending, *, told: bool) -> None:  # noqa: C901 - one case per event
    checkers, event, step = window.checkers, entry.event, entry.step
    if not entry.policy.reliable:
        window.unreliable.judge(event, step, told=told)
        return
    checkers.retuned(entry.policy)
    now_ms = event.now_ms
    if isinstance(event, Acquire | Acknowledge):
        checkers.silence.heard(event.member_id, now_ms)
    others = checkers.somebody_attentive
    for effect in step.effects:
        if isinstance(effect, Noticed) and effect.notice in (Notice.SILENT, Notice.HEARD_AGAIN):
            name = effect.detail.removeprefix("member ")
            checkers.silence_told(effect.notice, name, now_ms, others=others)
    match event:
        case Acknowledge():
            (result,) = [e for e in step.effects if isinstance(e, AckResult)]
            checkers.acknowledging(
                event.member_id, event.session_id, event.batches, result.errors, now_ms
            )
        case NotSent():
            checkers.not_sent(event, step.changes)
        case SessionClosed():
            checkers.closed(event.member_id, event.session_id)
        case SessionLost():
            checkers.lost(event.member_id, event.session_id, now_ms)
        case SessionOpened():
            checkers.opened(event.member_id, event.session_id, now_ms)
        case MembersChanged():
            there = present(event.members)
            checkers.awaited = event.members[len(there) :]
            checkers.members_changed(there, event.reason, now_ms)
        case DeadLettered():
            for offset in event.offsets if event.durable else ():
                checkers.cause(offset, "dead-lettered")
        case OperatorAct():
            for offset in event.offsets:
                if event.verb is OperatorVerb.SKIP:
                    checkers.cause(offset, "skipped by the operator")
                elif event.verb is OperatorVerb.RETRY:
                    checkers.operator_retries(offset)
        case Ticked():
            for name in event.waiting:
                checkers.silence.heard(name, now_ms)
            checkers.expired(now_ms)
        case RecordsRead():
            checkers.read(event)
            judge_read(checkers, event)
        case Acquire() | LogTruncated() | LogCut() | HoldMoved() | Gone():
            pass
        case _:
            assert_never(event)
    checkers.persisted(step.changes, acquired=isinstance(event, Acquire))
    check_verdicts(
        *(entry.policy, event, step, checkers.deliveries, checkers.settled),
        owed=checkers.log.records,
        nobody_takes=lambda offset: accepted_by_nobody(checkers, offset, unknown=True),
    )
    if isinstance(event, Acquire):
        (delivered,) = [e for e in step.effects if isinstance(e, Delivered)]
        _judge_delivered(window, event, delivered, told=told, held=entry.held)


def _judge_delivered(
    window: Window, event: Acquire, effect: Delivered, *, told: bool, held: bool
) -> None:
    checkers = window.checkers
    if not told:
        checkers.never_arrived(effect)
        return
    checkers.delivered(effect, event.records_max, window.world.now_ms)
    few = (
        not held
        and len(effect.offsets) < event.records_max
        and checkers.may_hold_more(event.member_id)
    )
    if few and window.handled % window.world.options.recount_every == 0:
        offset = withheld(checkers, event.member_id, event.now_ms)
        if offset is not None:
            raise CheckFailure("NothingWithheld", f"{offset} from {event.member_id}")
