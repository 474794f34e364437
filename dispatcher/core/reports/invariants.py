"""Recounts a window: compares every index and count that is kept for speed with the records."""

from __future__ import annotations

from dispatcher.core.limits import IDLE_KEYS_MAX
from dispatcher.core.model import JoinPolicy
from dispatcher.core.records.draining_keys import is_draining
from dispatcher.core.records.keys import NO_OFFSET, KeyQueue, MemberQueue
from dispatcher.core.records.loads import takes
from dispatcher.core.records.state import WindowState
from dispatcher.core.steps import RetryState


def check(state: WindowState) -> None:
    """Raises AssertionError. To be called between two steps."""
    _check_offsets(state)
    _check_aside(state)
    queues = _check_queues(state)
    _check_members(state)
    _check_ready(state, queues)
    _check_leases(state)
    _check_retries(state)
    _check_limits(state)
    _check_draining_keys(state, queues)
    assert state.window.unread or not state.waiting_for_reread, "nothing is left to wait for"
    assert not state.changes + state.effects + state.ended + state.window.dirty, "step not finished"
    waits = state.window.aside.dirty and state.persisted_front == state.window.front
    assert not waits, "step not finished"


def _check_offsets(state: WindowState) -> None:
    window = state.window
    end = max(window.read_position, window.known_end)
    assert window.cursor <= min(window.read_position, window.front)
    # Behind it there may be what a larger span knew before a restart.
    assert window.read_position <= max(window.front + state.policy.span_max, window.known_end)
    assert max(end - window.front, 1) <= window.capacity
    for offset in range(window.front, window.front + window.capacity):
        at = offset & window.mask
        if offset >= window.read_position:
            assert window.queues[at] is None, f"{offset} is queued and not read"
            if window.leases[at] is not None:
                assert offset in window.unread, f"{offset} is leased and unknown"
            if offset >= end:
                assert not window.is_settled(offset), f"{offset} is settled and unknown"
        else:
            settled = window.is_settled(offset)
            assert settled == (window.queues[at] is None), f"{offset}: settled={settled}"
            assert offset not in window.unread, f"{offset} was read again"
            if settled:
                assert window.leases[at] is None, f"{offset} is settled and leased"
    if window.front < window.read_position:
        assert not window.is_settled(window.front), "the front lags"


def _check_aside(state: WindowState) -> None:
    window = state.window
    aside = window.aside
    offsets = aside.between(0, window.front)
    assert offsets == [o for o in range(window.cursor, window.front) if aside.contains(o)]
    assert len(offsets) == aside.count
    assert window.cursor == (offsets[0] if offsets else window.front), "the cursor lags"
    assert aside.first() == (offsets[0] if offsets else NO_OFFSET)
    for offset in offsets:
        is_asked_for = offset in aside.leases or offset in state.retries.by_offset
        if offset >= window.read_position:
            assert offset not in aside.queues, f"{offset} is queued and not read"
            assert is_asked_for == (offset in window.unread), f"{offset} is leased and unknown"
        elif is_asked_for:
            assert offset in aside.queues, f"{offset} has no queue"
    first = {queue.head for queue in aside.queues.values() if aside.contains(queue.head)}
    assert aside.keys == len(first), f"{aside.keys} keys aside, counted anew {len(first)}"
    settled = [o for o in [*aside.queues, *aside.leases] if not aside.contains(o)]
    assert not settled, f"{settled} are settled and queued"


def _check_queues(state: WindowState) -> list[KeyQueue]:
    window = state.window
    queues: list[KeyQueue] = []
    seen = 0
    for first in range(window.cursor, window.read_position):
        queue = window.queue_at(first)
        if queue is None or queue.head != first:
            continue
        queues.append(queue)
        in_flight = 0
        offset = first
        last = first
        retried = False
        while offset >= 0:
            seen += 1
            known = window.queue_at(offset)
            assert known is queue or (known is None and window.aside.contains(offset)), (
                f"{offset} is of another key"
            )
            assert offset >= last, f"{offset} out of order"
            retried = retried or offset in state.retries.by_offset
            lease = window.lease_at(offset)
            if lease is not None:
                in_flight += 1
                assert queue.holder is lease.session, f"{queue!r} in two hands"
            last = offset
            offset = window.after(queue, offset)
        assert queue.tail == last
        assert queue.retried or not retried, f"{queue!r} has a retry"
        assert (queue.backlog is not None) == (first < window.front)
        assert queue.in_flight == in_flight <= state.prefetch, f"{queue!r}: {in_flight} in flight"
        if queue.key is not None:
            assert state.by_key[queue.key] is queue
        if state.owners.loads is None or queue.key is None:
            assert queue.owner is state.owner_of(queue.key, first), f"{queue!r} has a stale owner"
        elif queue.owner is not None:
            assert takes(state.owners.router, queue.owner, queue.key), (
                f"{queue!r} has a stale owner"
            )
    ahead = sum(
        window.queues[offset & window.mask] is not None
        for offset in range(window.front, window.read_position)
    )
    assert window.live == ahead, f"{ahead} live records"
    behind = len(window.aside.between(0, window.read_position))
    assert seen == ahead + behind, "a queue lost records"
    idle = sum(queue.head < 0 for queue in state.by_key.values())
    assert state.idle_keys == idle <= IDLE_KEYS_MAX
    assert len(state.by_key) - idle == sum(queue.key is not None for queue in queues), "lost keys"
    for queue in state.by_key.values():
        assert queue.head >= 0 or (queue.in_flight == 0 and not queue.listed), f"{queue!r} is empty"
    return queues


def _check_members(state: WindowState) -> None:
    assert list(state.by_member.values()) == state.members
    assert list(state.by_member) == [member.member_id for member in state.members]
    cap = state.policy.in_flight_per_member_max
    attentive = [member for member in state.members if not member.attention.silent]
    assert state.attentive == attentive, f"{state.attentive} take keys, not {attentive}"
    takers = [member.member_id for member in state.owners.takers.members]
    assert takers == [member.member_id for member in attentive], f"keys go to {takers}"
    for member in state.members:
        if member.touched:  # by a change of the policy, until the next step
            assert member in state.touched
            continue
        idle = member.ready_count() == 0
        assert member.idle == idle, f"{member!r}: idle={member.idle}"
        if member.limit < 0:
            awake = not idle and member.in_flight < cap
            assert member.awake == awake, f"{member!r}: awake={member.awake}"
    assert state.idle_members == sum(member.idle for member in state.members)


def _check_ready(state: WindowState, queues: list[KeyQueue]) -> None:
    listed: dict[int, MemberQueue] = {}
    for member in state.members:
        waiting = list(member.ready[member.ready_at :])
        assert waiting == sorted(waiting)
        for offset in [*waiting, *member.fresh]:
            queue = state.window.queue_at(offset)
            assert queue is not None, f"{offset} is listed and settled"
            assert id(queue) not in listed, f"{queue!r} is listed twice"
            assert queue.listed
            assert state.window.lease_at(offset) is None, f"{offset} is in flight"
            assert offset == queue.head or state.prefetch > 1, f"{queue!r} is listed at {offset}"
            assert queue.owner is member
            listed[id(queue)] = member
    for member in state.absent.values():
        assert member.ready_count() == 0
        assert not member.joined
        assert member.in_flight > 0, f"{member!r} is neither there nor holds anything"
        assert member.limit < 0, f"{member!r} is not there and has a limit"
    assert len(listed) == sum(queue.listed for queue in queues), "a listed key has no records"
    for queue in queues:
        assert queue.listed == (id(queue) in listed)
        if queue.owner is not None:
            ready = state.may_go_out(queue, queue.owner)
            # With prefetch another session of the owner may hold the key: offered when that ends.
            forgotten = ready and not queue.listed and queue.in_flight == 0
            assert not forgotten, f"{queue!r} is forgotten"
            # With prefetch a key is not unlisted when a record of it fails. Without, a later record
            # of it may be out since before a restart: it is passed over.
            passed = state.prefetch > 1 or queue.in_flight > 0
            assert ready or not queue.listed or passed, f"{queue!r} is not ready"
        elif state.members:
            free = queue.in_flight == 0 and not state.retries.held(queue.head)
            assert not free or state.is_awaited(queue), f"{queue!r} is not skipped"


def _check_leases(state: WindowState) -> None:
    window = state.window
    held: dict[int, int] = {}
    for offset in range(window.cursor, window.front + window.capacity):
        lease = window.lease_at(offset)
        if lease is not None:
            held[lease.lease_id] = held.get(lease.lease_id, 0) + 1
            assert state.book.leases[lease.lease_id] is lease
    by_member: dict[int, int] = {}
    by_session: dict[int, int] = {}
    for lease in state.book.leases.values():
        assert lease.live == held.get(lease.lease_id, 0) > 0, f"{lease!r} holds another count"
        session = lease.session
        place = (session.member.member_id, session.session_id)
        assert state.book.sessions[place] is session
        by_member[id(session.member)] = by_member.get(id(session.member), 0) + lease.live
        by_session[id(session)] = by_session.get(id(session), 0) + 1
        assert session.member.joined or state.absent[session.member.member_id] is session.member
    for session in state.book.sessions.values():
        assert session.leases == by_session[id(session)]
    for member in [*state.members, *state.absent.values()]:
        assert member.in_flight == by_member.get(id(member), 0), f"{member!r} holds another count"


def _check_retries(state: WindowState) -> None:
    window = state.window
    timers = set(state.retries.timers)
    for offset, retry in state.retries.by_offset.items():
        assert offset in window.unread or window.queue_at(offset) is not None, (
            f"{retry!r} of nothing"
        )
        leased = window.lease_at(offset) is not None
        assert leased == (retry.state is RetryState.IN_FLIGHT), f"{retry!r} leased={leased}"
        if leased:
            assert not retry.held
        if retry.state is RetryState.WAITING and retry.held:
            assert (retry.due_ms, offset) in timers, f"{retry!r} waits for ever"
        if retry.state in (RetryState.PARKED, RetryState.DEAD_LETTER):
            assert retry.held
    retries = state.retries
    by_state: dict[RetryState, list[int]] = {one: [] for one in RetryState}
    for offset in sorted(retries.by_offset):
        by_state[retries.by_offset[offset].state].append(offset)
    assert retries.offsets.first(retries.offsets.count + 1) == sorted(retries.by_offset)
    assert retries.parked.first(retries.parked.count + 1) == by_state[RetryState.PARKED]
    assert retries.waiting == len(by_state[RetryState.WAITING])
    assert retries.dead_lettering == len(by_state[RetryState.DEAD_LETTER])


def _check_limits(state: WindowState) -> None:
    for member in state.provisional:
        assert state.by_member[member.member_id] is member, f"{member!r} is not there"
        assert len(state.attentive) > 1, f"{member!r} joined nobody"
        assert not member.attention.silent, f"{member!r} is silent"
    limited = [member for member in state.members if member.limit >= 0]
    assert state.limited == (len(limited) > 0), f"{limited} have a limit"
    for member in limited:
        assert member.ready_at == 0, f"{member!r} has taken from the front of its list"
        assert state.policy.join_policy is JoinPolicy.LAST_SENT
        assert state.window.cursor <= member.limit == member.joined_behind, (
            f"{member!r} still waits"
        )
        assert len(state.attentive) > 1, f"{member!r} waits for nobody"
        assert not member.attention.silent, f"{member!r} is silent"


def _check_draining_keys(state: WindowState, queues: list[KeyQueue]) -> None:
    by_key = state.draining_keys.by_key
    for queue in queues:
        assert is_draining(queue) == (queue in by_key), f"{queue!r}: {by_key.get(queue)!r}"
    held: dict[int, int] = {}
    for queue, drain in by_key.items():
        assert is_draining(queue), f"{queue!r} does not drain"
        assert queue.holder is not None
        assert queue.holder.member is drain.holder, f"{queue!r} drains at {drain!r}"
        held[id(drain.holder)] = held.get(id(drain.holder), 0) + 1
    for member in [*state.members, *state.absent.values()]:
        assert member.draining == held.get(id(member), 0), f"{member!r} drains another count"
