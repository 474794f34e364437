"""Acquired ranges and rows of share responses (KIP-932)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.cluster.topology import PartitionInfo
from gateway.core.share.answers import (
    acknowledge_row,
    acquired_ranges,
    by_topic,
    fair_shares,
    fetch_row,
    node_endpoints,
)
from gateway.core.wire.errors import ErrorCode


def test_contiguous_offsets_of_one_attempt_become_one_range() -> None:
    assert acquired_ranges([3, 4, 5, 9], [1, 1, 1, 1]) == [(3, 5, 1), (9, 9, 1)]


def test_another_attempt_starts_another_range() -> None:
    assert acquired_ranges([3, 4, 5], [1, 2, 2]) == [(3, 3, 1), (4, 5, 2)]


@given(st.dictionaries(st.integers(0, 300), st.integers(1, 3), max_size=60))
def test_ranges_ascend_are_disjoint_and_cover_exactly_the_offsets(attempts: dict[int, int]) -> None:
    offsets = sorted(attempts)
    ranges = acquired_ranges(offsets, [attempts[offset] for offset in offsets])
    covered = [offset for first, last, _ in ranges for offset in range(first, last + 1)]
    assert covered == offsets
    assert all(
        attempts[o] == count for first, last, count in ranges for o in range(first, last + 1)
    )


@pytest.mark.parametrize(
    ("ready", "total", "shares"),
    [
        ([], 10, []),
        ([1_000, 1_000, 1_000, 1_000], 2_000, [500, 500, 500, 500]),
        ([1_000, 0, 10], 500, [490, 0, 10]),
        ([3, 3, 3], 4, [2, 1, 1]),
        ([5, 5], 100, [5, 5]),
        ([5, 5], 0, [0, 0]),
    ],
)
def test_partitions_share_a_fetch(ready: list[int], total: int, shares: list[int]) -> None:
    assert fair_shares(ready, total) == shares


@given(st.lists(st.integers(0, 50), max_size=8), st.integers(0, 200))
def test_nobody_gets_more_while_one_that_has_more_gets_less(ready: list[int], total: int) -> None:
    shares = fair_shares(ready, total)
    assert sum(shares) == min(total, sum(ready))
    for share, has in zip(shares, ready, strict=True):
        assert share == has or share >= max(shares) - 1


def test_records_are_empty_bytes_never_null() -> None:
    assert fetch_row(0)["Records"] == b""


def test_rows_are_grouped_by_topic_in_the_order_they_came() -> None:
    rows = [
        (b"b", {"PartitionIndex": 0}),
        (b"a", {"PartitionIndex": 0}),
        (b"b", {"PartitionIndex": 1}),
    ]
    assert [(t["TopicId"], len(t["Partitions"])) for t in by_topic(rows)] == [(b"b", 2), (b"a", 1)]


def test_endpoints_are_those_that_clients_are_told() -> None:
    endpoints = node_endpoints({1_000_001: ("gateway", 10_201), 1: ("gateway", 9201)})
    assert endpoints == [
        {"NodeId": 1, "Host": "gateway", "Port": 9201},
        {"NodeId": 1_000_001, "Host": "gateway", "Port": 10_201},
    ]


def test_nobody_is_named_as_leader_by_less_than_zero() -> None:
    """franz-go takes broker 0 beside an error for the new leader."""
    for row in (fetch_row(0), acknowledge_row(0, error=ErrorCode.INVALID_RECORD_STATE)):
        assert row["CurrentLeader"] == {"LeaderId": -1, "LeaderEpoch": -1}


def test_a_current_leader_is_a_virtual_broker() -> None:
    row = fetch_row(0, leader=PartitionInfo(2, 7, slot=1))
    assert row["CurrentLeader"] == {"LeaderId": 1_000_002, "LeaderEpoch": 7}
