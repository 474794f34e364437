"""Where a group starts on a partition it has never read."""

from __future__ import annotations

import asyncio

import pytest

from gateway.config.groups import GroupSection
from gateway.core.cluster.topology import TopicPartition
from gateway.windows.start_position import duration_ms, isolation_of, start_position

TP = TopicPartition("t", b"x" * 16, 0)
NOW_MS = 100 * 86_400_000
END = 500


class Offsets:
    """A log of 500 records, one per day up to now."""

    def __init__(self, *, none_so_late: bool = False) -> None:
        self.none_so_late = none_so_late
        self.asked: list[tuple[int, int]] = []

    async def list_offset(self, tp: TopicPartition, timestamp: int, isolation: int) -> int:
        assert tp == TP
        self.asked.append((timestamp, isolation))
        if timestamp == -2:
            return 7
        return END if timestamp == -1 else -1 if self.none_so_late else 90


def start(offsets: Offsets, section: GroupSection, *, added_later: bool = False) -> int:
    return asyncio.run(start_position(offsets, section, "g", TP, NOW_MS, added_later=added_later))


@pytest.mark.parametrize(
    ("reset", "position", "timestamp"),
    [
        ("earliest", 7, -2),
        ("latest", END, -1),
        ("by_duration:P1D", 90, NOW_MS - 86_400_000),
        ("by_duration:PT1H30M", 90, NOW_MS - 5_400_000),
        ("by_duration:P999D", 90, 0),  # before there was any time
        ("by_duration:whatever", END, -1),
        ("something new", END, -1),
    ],
)
def test_position(reset: str, position: int, timestamp: int) -> None:
    offsets = Offsets()
    section = GroupSection().model_copy(update={"auto_offset_reset": reset})
    assert start(offsets, section) == position
    assert offsets.asked[-1] == (timestamp, 1)


def test_a_partition_that_was_added_starts_at_its_start() -> None:
    assert start(Offsets(), GroupSection(auto_offset_reset="latest"), added_later=True) == 7


def test_nothing_so_late_means_the_end() -> None:
    offsets = Offsets(none_so_late=True)
    assert start(offsets, GroupSection(auto_offset_reset="by_duration:PT1S")) == END


def test_a_record_that_comes_while_the_start_is_looked_up_is_not_skipped() -> None:
    class Growing(Offsets):
        end = END

        async def list_offset(self, tp: TopicPartition, timestamp: int, isolation: int) -> int:
            found = await super().list_offset(tp, timestamp, isolation)
            self.end += timestamp >= 0  # a producer writes right behind the answer
            return self.end if timestamp == -1 else found

    offsets = Growing(none_so_late=True)
    assert start(offsets, GroupSection(auto_offset_reset="by_duration:PT1H")) == END


def test_isolation() -> None:
    assert isolation_of(GroupSection()) == 1
    assert isolation_of(GroupSection(isolation_level="read_uncommitted")) == 0


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT1S", 1_000),
        ("PT0.5S", 500),
        ("P2DT3H4M5S", 183_845_000),
        ("pt1m", 60_000),
        ("PT0S", 0),
        ("P", None),
        ("PT", None),
        ("", None),
        ("1D", None),
        ("P1Y", None),
        ("P-1D", None),
        ("PT1H ", None),
    ],
)
def test_durations(text: str, ms: int | None) -> None:
    assert duration_ms(text) == ms
