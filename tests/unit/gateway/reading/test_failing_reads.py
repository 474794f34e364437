"""Places where every fetch fails: each by itself, and a line of the log for a topic."""

from __future__ import annotations

import pytest
import structlog

from gateway.core.cluster.topology import TopicPartition
from gateway.core.reading.cache import Source
from gateway.core.reading.fetching import FetchPosition
from gateway.core.wire.errors import ErrorCode
from gateway.reading import failing_reads
from gateway.reading.failing_reads import FailingReads

SOURCE = Source(TopicPartition("orders", b"t" * 16, 0), 1)
BEHIND = FetchPosition(SOURCE, 9, 3)
FRESH = FetchPosition(SOURCE, 9)  # of a group that knows no epoch there
CODE = ErrorCode.CORRUPT_MESSAGE


def fail(reads: FailingReads, place: FetchPosition) -> None:
    reads.failed(place, CODE, "damaged", -1)


def test_a_group_that_goes_away_does_not_make_the_place_of_another_one_good() -> None:
    reads = FailingReads()
    with structlog.testing.capture_logs() as logs:
        for place in (BEHIND, FRESH):
            fail(reads, place)
        reads.dropped(FRESH)
        found = reads.unreadable(SOURCE, 9)
        assert found is not None
        assert "offset 9: damaged" in found.reason
        assert reads.failing_partitions() == 1
        reads.over(BEHIND)
        assert reads.unreadable(SOURCE, 9) is None
        assert reads.failing_partitions() == 0
    assert [line["event"] for line in logs] == ["reading_stopped", "reading_again"]


def test_a_window_that_is_loaded_again_and_again_writes_one_line() -> None:
    reads = FailingReads()
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            fail(reads, BEHIND)
            reads.dropped(BEHIND)
    assert [line["event"] for line in logs] == ["reading_stopped"]


def test_the_topics_that_were_told_of_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failing_reads, "STOPPED_TOPICS_MAX", 2)
    reads = FailingReads()
    for name in ("a", "b", "c"):
        fail(reads, FetchPosition(Source(TopicPartition(name, b"t" * 16, 0), 1), 0))
    assert list(reads._told) == ["b", "c"]
