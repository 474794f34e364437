"""Merging the states of the store and of Kafka's commit, against sets of offsets."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.dispatcher import Dispatcher
from dispatcher.core.limits import CHUNK_OFFSETS
from dispatcher.core.model import Policy, Ticked
from dispatcher.core.steps import Change, Snapshot
from dispatcher.core.stored.reconcile import merged
from dispatcher.core.stored.snapshot import StoredWindow, state_of
from keyway.commit_metadata.core.bitmap import ranges_of
from tests.rig.window_changes import OFFSETS, histories

commits = st.builds(
    lambda cursor, bits: Snapshot(cursor, [(a, b) for a, b in ranges_of(bits, cursor) if a > 0]),
    st.sampled_from(OFFSETS),
    st.binary(max_size=40),
)


def is_settled(snapshot: Snapshot, offset: int) -> bool:
    behind = any(low <= offset <= high for low, high in snapshot.settled)
    return offset < snapshot.cursor or behind


def edges_of(snapshot: Snapshot) -> list[int]:
    return [edge for low, high in snapshot.settled for edge in (low, high + 1)]


def stored_after(steps: list[list[Change]]) -> Snapshot:
    state = StoredWindow(0)
    for step in steps:
        state.apply(step)
    return state.snapshot()


@given(histories, commits)
def test_merged_is_the_union_of_what_is_settled(
    steps: list[list[Change]], committed: Snapshot
) -> None:
    stored = stored_after(steps)
    both = merged(stored, committed)
    assert both.cursor >= max(stored.cursor, committed.cursor)
    edges = {
        edge for state in (stored, committed, both) for edge in (state.cursor, *edges_of(state))
    }
    for offset in edges | {edge - 1 for edge in edges} | set(OFFSETS):
        either = is_settled(stored, offset) or is_settled(committed, offset)
        assert is_settled(both, offset) == either, offset
    assert both.retries == [retry for retry in stored.retries if not is_settled(both, retry.offset)]
    left = [
        replace(lease, offsets=[at for at in lease.offsets if not is_settled(both, at)])
        for lease in stored.leases
    ]
    assert both is stored or both.leases == [lease for lease in left if lease.offsets]


@given(histories, commits)
def test_merged_has_the_form_of_a_snapshot_and_merging_again_adds_nothing(
    steps: list[list[Change]], committed: Snapshot
) -> None:
    stored = stored_after(steps)
    both = merged(stored, committed)
    edges = edges_of(both)
    assert edges == sorted(set(edges))
    assert not edges or edges[0] > both.cursor
    assert state_of(both).snapshot() == both
    assert both is stored or all(lease.offsets for lease in both.leases)
    assert merged(both, committed) is both
    core = Dispatcher(Policy(span_max=8 * CHUNK_OFFSETS), both)
    assert core.cursor == both.cursor
    core.handle(Ticked(0))
    core.check_invariants()
