"""From a snapshot to a window, and back. What a snapshot holds is not believed blindly: it may be
older than the log or the policy, and Kafka's commit metadata alone has neither leases nor
retries."""

from __future__ import annotations

from dispatcher.core.flow import Flow
from dispatcher.core.keys import MemberQueue
from dispatcher.core.model import LeaseEnded, LeaseState, Policy, RetryState, Snapshot
from dispatcher.core.retry import Retry


def restore(policy: Policy, snapshot: Snapshot) -> Flow:
    flow = Flow(policy, snapshot.cursor)
    window = flow.window
    end = snapshot.cursor
    for _, last in snapshot.settled:
        end = max(end, last + 1)
    for lease in snapshot.leases:
        end = max(end, max(lease.offsets, default=0) + 1)
    for noted in snapshot.retries:
        end = max(end, noted.offset + 1)
    window.known_end = end
    window.reserve(end)
    for first, last in snapshot.settled:
        if last >= window.cursor:
            window.mark_hole(max(first, window.cursor), last + 1)
    _retries(flow, snapshot)
    _leases(flow, snapshot)
    window.advance()
    flow.waiting_for_reread = flow.prefetch > 1 and len(window.unread) > 0
    return flow


def _retries(flow: Flow, snapshot: Snapshot) -> None:
    window = flow.window
    for noted in snapshot.retries:
        offset = noted.offset
        if offset < window.cursor or window.is_settled(offset):
            continue
        retry = Retry(noted, held=noted.state is not RetryState.IN_FLIGHT)
        flow.retries.by_offset[offset] = retry
        window.unread.add(offset)
        if noted.state is RetryState.WAITING or noted.state is RetryState.DEAD_LETTER:
            flow.retries.wait(retry, noted.due_ms)


def _leases(flow: Flow, snapshot: Snapshot) -> None:
    """Of two leases of an offset the one taken later counts. An offset whose retry is not in flight
    has none.
    """
    window = flow.window
    taken: set[int] = set()
    for state in sorted(snapshot.leases, key=_lease_id, reverse=True):
        flow.book.next_id = max(flow.book.next_id, state.lease_id + 1)
        live = [offset for offset in state.offsets if _in_flight(flow, offset, taken)]
        if not live:
            flow.changes.append(LeaseEnded(lease_id=state.lease_id))
            continue
        taken.update(live)
        member = flow.absent.get(state.member_id)
        if member is None:
            member = MemberQueue(state.member_id)
            flow.absent[state.member_id] = member
        member.in_flight += len(live)
        session = flow.book.session(member, state.session_id)
        session.restored = True
        lease = flow.book.adopt(state.lease_id, session, state.deadline_ms, live)
        for offset in live:
            window.leases[offset & window.mask] = lease
            window.unread.add(offset)
    for offset, retry in flow.retries.by_offset.items():
        if retry.state is RetryState.IN_FLIGHT and offset not in taken:
            retry.state = RetryState.WAITING


def _lease_id(state: LeaseState) -> int:
    return state.lease_id


def _in_flight(flow: Flow, offset: int, taken: set[int]) -> bool:
    if offset in taken or offset < flow.window.cursor or flow.window.is_settled(offset):
        return False
    retry = flow.retries.by_offset.get(offset)
    return retry is None or retry.state is RetryState.IN_FLIGHT


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
    leases.sort(key=_lease_id)
    retries = flow.retries.by_offset
    return Snapshot(
        cursor=window.cursor,
        settled=window.settled_ranges(),
        leases=leases,
        retries=[retries[offset].noted() for offset in sorted(retries)],
    )
