"""From a snapshot to a window, and back. A snapshot may be older than the log or the policy, and
Kafka's commit metadata alone has neither leases nor retries."""

from __future__ import annotations

from dispatcher.core.flow import Flow
from dispatcher.core.keys import MemberQueue
from dispatcher.core.model import LeaseEnded, LeaseState, Policy, RetryState, Snapshot
from dispatcher.core.retry import Retry


def restore(policy: Policy, snapshot: Snapshot) -> Flow:
    flow = Flow(policy, snapshot.cursor)
    window = flow.window
    known = [last for _, last in snapshot.settled]
    known += [offset for lease in snapshot.leases for offset in lease.offsets]
    known += [noted.offset for noted in snapshot.retries]
    window.known_end = max([snapshot.cursor, *[offset + 1 for offset in known]])
    window.reserve(window.known_end)
    for first, last in snapshot.settled:
        window.mark_hole(first, last + 1)
    _leases(flow, snapshot)
    _retries(flow, snapshot)
    window.advance()
    flow.waiting_for_reread = flow.prefetch > 1 and bool(window.unread)
    return flow


def _leases(flow: Flow, snapshot: Snapshot) -> None:
    window = flow.window
    for state in snapshot.leases:
        flow.book.next_id = state.lease_id + 1
        if not state.offsets:
            flow.changes.append(LeaseEnded(lease_id=state.lease_id))
            continue
        member = flow.absent.get(state.member_id)
        if member is None:
            member = MemberQueue(state.member_id)
            flow.absent[state.member_id] = member
        member.in_flight += len(state.offsets)
        session = flow.book.session(member, state.session_id)
        session.restored = True
        lease = flow.book.adopt(state.lease_id, session, state.deadline_ms, state.offsets)
        for offset in state.offsets:
            window.leases[offset & window.mask] = lease
            window.unread.add(offset)


def _retries(flow: Flow, snapshot: Snapshot) -> None:
    window = flow.window
    for noted in snapshot.retries:
        offset = noted.offset
        retry = Retry(noted, held=noted.state is not RetryState.IN_FLIGHT)
        flow.retries.by_offset[offset] = retry
        window.unread.add(offset)
        if noted.state is RetryState.WAITING or noted.state is RetryState.DEAD_LETTER:
            flow.retries.wait(retry, noted.due_ms)
        elif noted.state is RetryState.IN_FLIGHT and window.leases[offset & window.mask] is None:
            retry.state = RetryState.WAITING


def snapshot_of(flow: Flow) -> Snapshot:
    """The window as `restore` would take it: between two steps."""
    window = flow.window
    leases: list[LeaseState] = []
    for lease in flow.book.leases.values():
        live = [
            offset
            for offset in lease.offsets
            if window.holds(offset) and window.leases[offset & window.mask] is lease
        ]
        leases.append(
            LeaseState(
                lease_id=lease.lease_id,
                member_id=lease.session.member.member_id,
                session_id=lease.session.session_id,
                deadline_ms=lease.deadline_ms,
                offsets=live,
            )
        )
    retries = flow.retries.by_offset
    return Snapshot(
        cursor=window.cursor,
        settled=window.settled_ranges(),
        leases=leases,
        retries=[retries[offset].noted() for offset in sorted(retries)],
    )
