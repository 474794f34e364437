import pytest

from keyway.commit_metadata.core.bitmap import bits_of, ranges_of, united


@pytest.mark.parametrize(
    ("bits", "ranges"),
    [
        (b"", []),
        (b"\x00\x00", []),
        (b"\x01", [(100, 100)]),
        (b"\x80", [(107, 107)]),
        (b"\x80\x01", [(107, 108)]),
        (b"\xff\xff\xff", [(100, 123)]),
        (b"\x00\xfe\xff\x03\x00", [(109, 125)]),
        (b"\x00\x00\x00\xf0", [(128, 131)]),
        (b"\x55", [(100, 100), (102, 102), (104, 104), (106, 106)]),
    ],
)
def test_bits_and_ranges_are_the_same_thing(bits: bytes, ranges: list[tuple[int, int]]) -> None:
    assert ranges_of(bits, 100) == ranges
    assert bits_of(ranges, 100, len(bits)) == bits


def test_what_lies_outside_of_the_bitmap_is_left_out() -> None:
    assert bits_of([(0, 99), (105, 111), (115, 10_000)], 100, 2) == b"\xe0\x8f"
    assert bits_of([(90, 100), (116, 120)], 100, 2) == b"\x01\x00", "one bit more at each end"
    assert bits_of([(115, 115), (200, 210)], 100, 2) == b"\x00\x80"


def test_adjacent_ranges_become_one() -> None:
    assert united([(1, 2), (3, 3), (5, 6), (7, 9)]) == [(1, 3), (5, 9)]


def test_ranges_in_any_order_are_united_however_they_overlap() -> None:
    assert united([(7, 9), (1, 2), (5, 5), (3, 3), (8, 8), (8, 12), (20, 20), (14, 15)]) == [
        (1, 3),
        (5, 5),
        (7, 12),
        (14, 15),
        (20, 20),
    ]
    assert united([]) == []
