from __future__ import annotations

from random import Random

import pytest

from keyway.commit_metadata.core.limits import OFFSET_MAX
from keyway.commit_metadata.core.run_lengths import packed, ranges_in

Ranges = list[tuple[int, int]]


def some_ranges(random: Random, start: int, longest: int) -> Ranges:
    ranges: Ranges = []
    at = start + random.randint(0, 3)
    for _ in range(random.randint(1, 60)):
        last = at + random.randint(0, 1 << random.randint(0, longest))
        ranges.append((at, last))
        at = last + 2 + random.randint(0, 1 << random.randint(0, longest))
    return ranges


@pytest.mark.parametrize("start", [0, 100, 1 << 53])
@pytest.mark.parametrize("longest", [1, 8, 30, 54])
def test_ranges_come_back(start: int, longest: int) -> None:
    random = Random(longest)
    for _ in range(50):
        ranges = some_ranges(random, start, longest)
        assert ranges_in(packed(ranges, start, 10_000), start) == ranges


@pytest.mark.parametrize("size_max", [0, 1, 2, 3, 8, 30, 60])
def test_what_does_not_fit_is_told_in_larger_cells(size_max: int) -> None:
    """Nothing is told that is not settled, and each range lacks less than a cell at its ends."""
    random = Random(size_max)
    for _ in range(50):
        ranges = some_ranges(random, 10, 9)
        data = packed(ranges, 10, size_max)
        assert len(data) <= size_max
        found = ranges_in(data, 10)
        assert found is not None
        if not data:
            continue
        cell = 1 << data[1]
        for low, high in ranges:
            inside = [(a, b) for a, b in found if low <= a and b <= high]
            lacks = high + 1 - low - sum(b + 1 - a for a, b in inside)
            assert lacks <= 2 * (cell - 1)
        assert all(any(low <= a and b <= high for low, high in ranges) for a, b in found)


def test_the_smallest_cells_that_fit_are_taken() -> None:
    ranges = [(at * 100 + 1, at * 100 + 99) for at in range(200)]
    size = len(packed(ranges, 0, 10_000))
    assert ranges_in(packed(ranges, 0, size), 0) == ranges
    assert packed(ranges, 0, size - 1)[2] == 1, "the shift"


@pytest.mark.parametrize(
    ("ranges", "data"),
    [
        ([], ""),
        ([(105, 105), (107, 300)], "02000280001410"),
        (
            [(at, at) for at in range(101, 125, 2)],
            "0c0000800000000000000000000000000000000000000000",
        ),
    ],
)
def test_what_an_earlier_version_wrote_is_read(ranges: Ranges, data: str) -> None:
    """Kafka keeps it for as long as the group lives: the form never changes under its name."""
    assert packed(ranges, 100, 10_000).hex() == data
    assert ranges_in(bytes.fromhex(data), 100) == ranges


@pytest.mark.parametrize(
    "data",
    [
        b"\x01",  # no shift
        b"\x80",
        b"\xff" * 9,
        b"\x01\x28\x00",  # a shift that nobody writes
        b"\x01\x00",  # no lengths
        b"\x09\x00\x00",  # nine ranges in eight bits
        b"\x02\x00\xff\xff\xff\xfd\xff\xff\xff\xff\xff\xff\xff",  # no log has so many offsets
    ],
)
def test_what_is_none_is_refused(data: bytes) -> None:
    """Any client with the right to commit may write metadata with the right checksum."""
    assert ranges_in(data, 100) is None


def test_no_bytes_lead_beyond_the_largest_offset() -> None:
    random = Random(3)
    for _ in range(2_000):
        data = bytes([random.randint(0, 20), random.randint(0, 39)]) + random.randbytes(30)
        for low, high in ranges_in(data, 1 << 61) or []:
            assert (1 << 61) <= low <= high < OFFSET_MAX
    assert ranges_in(packed([(5, 5)], 0, 99), OFFSET_MAX + 1) is None
