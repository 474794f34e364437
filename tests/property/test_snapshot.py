from hypothesis import given

from dispatcher.core.steps import Change, RetryState, Snapshot
from dispatcher.core.stored.snapshot import StoredWindow, apply_changes, state_of
from tests.rig.window_changes import histories


@given(histories)
def test_a_snapshot_that_is_stored_again_is_the_same(steps: list[list[Change]]) -> None:
    state = StoredWindow(0)
    for step in steps:
        state.apply(step)
        snapshot = state.snapshot()
        assert state_of(snapshot).snapshot() == snapshot


@given(histories)
def test_a_snapshot_keeps_its_form(steps: list[list[Change]]) -> None:
    snapshot = Snapshot(0)
    for step in steps:
        snapshot = apply_changes(snapshot, step)
        edges = [edge for low, high in snapshot.settled for edge in (low, high + 1)]
        assert edges == sorted(set(edges))
        assert not edges or edges[0] >= snapshot.cursor
        settled = [range(low, high + 1) for low, high in snapshot.settled]
        in_flight = [offset for lease in snapshot.leases for offset in lease.offsets]
        assert len(in_flight) == len(set(in_flight))
        states = {retry.offset: retry.state for retry in snapshot.retries}
        waiting = {o for o, state in states.items() if state is not RetryState.IN_FLIGHT}
        assert waiting.isdisjoint(in_flight)
        lease_ids = [lease.lease_id for lease in snapshot.leases]
        for ascending in (lease_ids, list(states)):
            assert ascending == sorted(set(ascending))
        for offset in [*in_flight, *states]:
            assert offset >= snapshot.cursor
            assert not any(offset in run for run in settled)
