"""From a snapshot to a window, and back. A snapshot may be older than the log or the policy, and
Kafka's commit metadata alone has neither leases nor retries."""

from __future__ import annotations

from dispatcher.core.limits import CHUNK_OFFSETS
from dispatcher.core.model import Policy
from dispatcher.core.records.keys import MemberQueue
from dispatcher.core.records.retry import Retry
from dispatcher.core.records.state import WindowState
from dispatcher.core.steps import LeaseEnded, LeaseState, RetryState, Snapshot
from dispatcher.core.stored.snapshot import kept, placed


def restore(policy: Policy, snapshot: Snapshot) -> WindowState:
    state = WindowState(policy, snapshot.cursor)
    window = state.window
    stored_front, _ = kept(snapshot)
    front, settled = placed(snapshot, min(policy.span_max, CHUNK_OFFSETS))
    window.front = front
    known = [last for _, last in settled]
    known += [offset for lease in snapshot.leases for offset in lease.offsets]
    known += [noted.offset for noted in snapshot.retries]
    window.known_end = max([front, *[offset + 1 for offset in known]])
    window.reserve(window.known_end)
    expected = snapshot.cursor
    aside: list[tuple[int, int]] = []
    for first, last in settled:
        if expected < front:
            aside.append((expected, min(first, front)))
        expected = last + 1
        if expected > front:
            window.mark_hole(max(first, front), expected)
    if expected < front:
        aside.append((expected, front))
    window.aside.add_all(aside)
    state.epochs = snapshot.epochs
    state.persisted_front = stored_front
    if stored_front == front:
        window.aside.take_dirty()
    _leases(state, snapshot)
    _retries(state, snapshot)
    window.advance()
    state.waiting_for_reread = state.prefetch > 1 and bool(window.unread)
    state.read_from = window.read_position
    return state


def _leases(state: WindowState, snapshot: Snapshot) -> None:
    window = state.window
    for lease_state in snapshot.leases:
        state.book.next_id = lease_state.lease_id + 1
        if not lease_state.offsets:
            state.changes.append(LeaseEnded(lease_id=lease_state.lease_id))
            continue
        member = state.absent.get(lease_state.member_id)
        if member is None:
            member = MemberQueue(lease_state.member_id)
            state.absent[lease_state.member_id] = member
        member.in_flight += len(lease_state.offsets)
        session = state.book.session(member, lease_state.session_id)
        session.restored = True
        lease = state.book.adopt(
            lease_state.lease_id, session, lease_state.deadline_ms, lease_state.offsets
        )
        for offset in lease_state.offsets:
            window.lease_again(offset, lease)
            window.unread.add(offset)


def _retries(state: WindowState, snapshot: Snapshot) -> None:
    window = state.window
    for noted in snapshot.retries:
        offset = noted.offset
        retry = Retry(noted, held=noted.state is not RetryState.IN_FLIGHT)
        state.retries.note(retry)
        window.unread.add(offset)
        if noted.state is RetryState.WAITING or noted.state is RetryState.DEAD_LETTER:
            state.retries.wait(retry, noted.due_ms)
        elif noted.state is RetryState.IN_FLIGHT and window.lease_at(offset) is None:
            state.retries.turn(retry, RetryState.WAITING)


def snapshot_of(state: WindowState) -> Snapshot:
    """The window as `restore` would take it: between two steps."""
    window = state.window
    leases: list[LeaseState] = []
    for lease in state.book.leases.values():
        live = [offset for offset in lease.offsets if window.lease_at(offset) is lease]
        leases.append(
            LeaseState(
                lease_id=lease.lease_id,
                member_id=lease.session.member.member_id,
                session_id=lease.session.session_id,
                deadline_ms=lease.deadline_ms,
                offsets=live,
            )
        )
    retries = state.retries.by_offset
    return Snapshot(
        cursor=window.cursor,
        settled=window.settled_ranges(),
        leases=leases,
        retries=[retries[offset].noted() for offset in sorted(retries)],
        front=window.front,
        epochs=state.epochs,
    )
