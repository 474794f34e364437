"""The end of a step: positions move, members are woken, and what the event did becomes a Step."""

from __future__ import annotations

from dispatcher.core.epochs import last_epoch
from dispatcher.core.events.reading import strays_ended
from dispatcher.core.events.room import make_room, read_on
from dispatcher.core.limits import IDLE_KEYS_MAX
from dispatcher.core.model import MemberId
from dispatcher.core.records.keys import NO_OFFSET
from dispatcher.core.records.state import WindowState
from dispatcher.core.steps import (
    Change,
    CursorMoved,
    Effect,
    LeaseEnded,
    MembersReady,
    Noticed,
    RetriesForgotten,
    Step,
    WriteDeadLetters,
)


def finish(state: WindowState) -> Step:
    window = state.window
    if state.waiting_for_reread and not window.unread:
        state.waiting_for_reread = False
        state.relist()
    if state.strays:
        strays_ended(state)
    window.advance()
    make_room(state)
    if window.read_position != state.read_from:
        state.reading = False  # The read under way starts too early now.
    if state.limited:
        _lift_limits(state)
        state.touch_all()  # a limit depends on the other members, too
    _close_leases(state)
    if state.draining_keys.released:
        state.draining_keys.end()
    if state.idle_keys > IDLE_KEYS_MAX:
        state.drop_idle_keys()
    changes = state.changes
    _note_positions(state, changes)
    effects = state.effects
    _write_dead_letters(state, effects)
    _wake(state, effects)
    read_on(state, effects)
    for notice, count in state.counts.items():
        if notice in state.firsts:
            offset, reason = state.firsts[notice]
            effects.append(Noticed(notice=notice, count=count, detail=reason, offset=offset))
        else:
            effects.append(Noticed(notice=notice, count=count))
    state.begin()
    return Step(changes=changes, effects=effects)


def _lift_limits(state: WindowState) -> None:
    """Lifts the limits of members that are alone, or that see all records settled that were sent
    before they joined.
    """
    state.limited = False
    for member in state.members:
        if state.window.cursor > member.limit or len(state.attentive) == 1:
            member.limit = NO_OFFSET
        else:
            state.limited = True


def _close_leases(state: WindowState) -> None:
    for lease in state.ended:
        state.book.close(lease)
        state.changes.append(LeaseEnded(lease_id=lease.lease_id))
        member = lease.session.member
        if member.in_flight == 0:
            state.absent.pop(member.member_id, None)


def _note_positions(state: WindowState, changes: list[Change]) -> None:
    window = state.window
    changes.extend(window.take_dirty())
    if state.forgotten:
        changes.append(RetriesForgotten(offsets=state.forgotten))
    moved = window.cursor != state.persisted_cursor or window.front != state.persisted_front
    if moved or window.aside.dirty:
        state.persisted_cursor, state.persisted_front = window.cursor, window.front
        aside = window.aside.count
        changes.append(CursorMoved(cursor=window.cursor, front=window.front, aside=aside))
    if window.aside.dirty:
        changes.extend(window.aside.take_dirty())


def _write_dead_letters(state: WindowState, effects: list[Effect]) -> None:
    letters = state.dead_letters
    if letters:
        effects.append(
            WriteDeadLetters(
                offsets=[retry.offset for retry in letters],
                deliveries=[retry.deliveries for retry in letters],
                reasons=[retry.reason for retry in letters],
                members=[retry.member_id for retry in letters],
                epoch=last_epoch(state.epochs),
            )
        )


def _wake(state: WindowState, effects: list[Effect]) -> None:
    woken: list[MemberId] = []
    cap = state.policy.in_flight_per_member_max
    touched, state.touched = state.touched, []
    for member in touched:
        member.touched = False
        if not member.joined:
            continue
        idle = member.ready_count() == 0
        if idle != member.idle:
            member.idle = idle
            state.idle_members += 1 if idle else -1
        awake = not idle and member.in_flight < cap
        if awake and member.limit >= 0:
            awake = state.may_have_of(member) > 0
        if awake and not member.awake:
            woken.append(member.member_id)
        member.awake = awake
    if woken:
        effects.append(MembersReady(members=woken))
