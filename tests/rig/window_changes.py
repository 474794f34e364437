"""Random changes of one window, for comparing the results of stores."""

from __future__ import annotations

from hypothesis import strategies as st

from dispatcher.core.limits import CHUNK_OFFSETS, STRETCH_OFFSETS
from dispatcher.core.model import LeaseId, MemberId, Reason, SessionId
from dispatcher.core.steps import (
    AsideSet,
    BitsSet,
    Change,
    CursorMoved,
    LeaseEnded,
    LeaseExtended,
    LeaseTaken,
    RetriesForgotten,
    RetryNoted,
    RetryState,
)

# Few and near, around the borders of two chunks, so that changes meet each other.
OFFSETS = [
    *range(8),
    *range(CHUNK_OFFSETS - 12, CHUNK_OFFSETS + 12),
    *range(2 * CHUNK_OFFSETS - 4, 2 * CHUNK_OFFSETS + 4),
    5 * CHUNK_OFFSETS,
]
STRETCHES = sorted({offset // STRETCH_OFFSETS for offset in OFFSETS})
offsets = st.sampled_from(OFFSETS)
offset_lists = st.lists(offsets, max_size=12, unique=True).map(sorted)
lease_ids = st.integers(1, 5).map(LeaseId)
members = st.sampled_from(["m1", "m2", "mémber"]).map(MemberId)
sessions = st.sampled_from(["s1", "s2"]).map(SessionId)
times = st.integers(0, 2**45)

changes: st.SearchStrategy[Change] = st.one_of(
    st.tuples(offsets, offsets).map(lambda pair: CursorMoved(min(pair), max(pair))),
    st.builds(AsideSet, st.sampled_from(STRETCHES), st.binary(max_size=STRETCH_OFFSETS // 8)),
    st.builds(
        BitsSet,
        st.integers(0, 2),
        st.sampled_from([0, 1, 4_000, CHUNK_OFFSETS // 8 - 2]),
        st.binary(min_size=1, max_size=2),
    ),
    st.builds(LeaseTaken, lease_ids, members, sessions, times, offset_lists),
    st.builds(LeaseExtended, lease_ids, times),
    st.builds(LeaseEnded, lease_ids),
    st.builds(
        RetryNoted,
        offsets,
        st.integers(1, 9),
        times,
        st.sampled_from(RetryState),
        st.sampled_from(Reason),
        members,
    ),
    st.builds(RetriesForgotten, offset_lists),
)


def ascending_cursor(steps: list[list[Change]]) -> list[list[Change]]:
    """The same steps without moves that would take cursor or front back, which no window makes."""
    cursor = front = 0
    kept: list[list[Change]] = []
    for step in steps:
        kept.append([])
        for change in step:
            if isinstance(change, CursorMoved):
                if change.cursor < cursor or change.front < front:
                    continue
                cursor, front = change.cursor, change.front
            kept[-1].append(change)
    return kept


histories = st.lists(st.lists(changes, max_size=8), max_size=8).map(ascending_cursor)
