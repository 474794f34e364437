"""The rows of a followed partition."""

from __future__ import annotations

from offsets.core.index import PartitionIndex
from offsets.core.model import Stream
from offsets.followed import Columns, Followed

OWN = Stream("A", "topic", 0)


def columns(*offsets: int) -> Columns:
    found = Columns()
    for offset in offsets:
        found.add(offset, 1_000, OWN, offset)
    return found


def test_records_fetched_before_the_log_start_passed_them_are_left_out() -> None:
    """They waited in the consumer's queue while DeleteRecords or retention took them."""
    followed = Followed(PartitionIndex(OWN, 0))
    followed.take(columns(0, 1), 2)
    followed.index.forget(5)
    followed.take(columns(2, 3, 4), 5)
    assert (followed.index.end, len(followed.index)) == (5, 0)
    followed.take(columns(4, 5, 6), 7)
    assert (list(followed.index.firsts), list(followed.index.records)) == ([5], [2])
    kept = followed.kept(5, 6)
    assert kept is not None
    assert list(kept.offsets) == [5, 6]
