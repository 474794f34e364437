from base64 import urlsafe_b64encode
from binascii import crc32

import pytest

from keyway.commit_metadata.core.metadata import Times, _framed, decode, encode, read, read_times


def test_metadata_comes_back() -> None:
    settled = [(105, 105), (107, 300), (16_000, 16_483)]
    assert decode(100, encode(100, settled)) == settled


def test_nothing_settled_beyond_the_cursor_is_said_and_not_merely_left_out() -> None:
    text = encode(100, [])
    assert text.startswith("kw1:")
    assert decode(100, text) == []


def test_what_lies_below_the_cursor_is_left_out() -> None:
    assert decode(100, encode(100, [(3, 50), (90, 110), (120, 120)])) == [(100, 110), (120, 120)]
    assert decode(100, encode(100, [(90, 99), (101, 101)])) == [(101, 101)]
    assert decode(100, encode(100, [(90, 100), (105, 105)])) == [(100, 100), (105, 105)]


@pytest.mark.parametrize(
    ("settled", "text"),
    [
        ([], "kw1:WZOqHXI"),
        ([(105, 105), (107, 300)], "kw1:F_26g3IFAQHCAQ"),
        ([(227, 227), (355, 482)], "kw1:OL8qMHJ_AX-AAQ"),
        ([(o, o) for o in range(101, 125, 2)], "kw1:MEzuSWKqqqo"),
    ],
)
def test_what_an_earlier_version_wrote_is_read(settled: list[tuple[int, int]], text: str) -> None:
    """Kafka keeps it for as long as the group lives: the form never changes under its name."""
    assert encode(100, settled) == text
    assert decode(100, text) == settled


def test_few_ranges_are_short_however_far_they_reach() -> None:
    assert len(encode(0, [(5_000, 9_999), (10_001, 16_383)])) < 24


@pytest.mark.parametrize("settled", [[], [(105, 105)], [(o, o) for o in range(101, 500, 2)]])
def test_the_origin_comes_back_with_what_is_settled(settled: list[tuple[int, int]]) -> None:
    text = encode(100, settled, origin=1_795_275_285_654_321)
    assert decode(100, text) == settled
    assert read(100, text)[1] == 1_795_275_285_654_321
    assert decode(101, text) is None
    assert read(101, text)[1] == 0
    assert encode(100, settled, origin=1_795_275_285_654_322)[:9] != text[:9], "it is in the sum"


@pytest.mark.parametrize("settled", [[], [(105, 105)], [(o, o) for o in range(101, 500, 2)]])
def test_the_time_comes_back_beside_the_origin(settled: list[tuple[int, int]]) -> None:
    text = encode(100, settled, origin=1_795_275_285_654_321, settled_ms=1_795_275_299_000)
    assert decode(100, text) == settled
    assert read(100, text)[1] == 1_795_275_285_654_321
    assert read_times(100, text) == Times(1_795_275_285_654_321, 1_795_275_299_000)
    assert read_times(101, text) == Times(0, 0)


def test_a_time_that_is_not_told_is_zero() -> None:
    for text in (encode(100, []), encode(100, [], settled_ms=5), "", "of somebody else"):
        assert read_times(100, text) == Times(0, 0)
    assert read_times(100, encode(100, [(105, 105)], origin=7)) == Times(7, 0)


def test_metadata_without_an_origin_has_none() -> None:
    assert read(100, encode(100, [(105, 105)]))[1] == 0
    assert read(100, encode(100, [], origin=0))[1] == 0
    assert read(100, "")[1] == 0


@pytest.mark.parametrize(("kind", "size"), [(b"B", 7), (b"R", 7), (b"T", 15), (b"U", 15)])
def test_an_origin_that_is_cut_off_is_not_believed(kind: bytes, size: int) -> None:
    body = bytes(size)
    checksum = crc32((100).to_bytes(8, "big") + kind + body).to_bytes(4, "big")
    text = "kw1:" + urlsafe_b64encode(checksum + kind + body).decode().rstrip("=")
    assert (decode(100, text), read(100, text)[1]) == (None, 0)


def test_the_origin_is_part_of_what_has_to_fit() -> None:
    settled = [(o, o) for o in range(101, 500, 2)]
    for chars_max in range(4, 120):
        text = encode(100, settled, origin=7, chars_max=chars_max)
        assert len(text) <= chars_max
        assert read(100, text)[1] == (7 if text else 0)
    assert encode(100, [], origin=7, chars_max=22)
    assert not encode(100, [], origin=7, chars_max=21)


def test_alternating_offsets_of_the_whole_span_fit() -> None:
    settled = [(o, o) for o in range(1, 16_384, 2)]
    text = encode(0, settled)
    assert len(text) == 2_742
    assert decode(0, text) == settled


# Scenario 21: corrupt or foreign metadata is replayed from the committed offset, inclusive.
@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "NO_METADATA",
        "kw1:",
        "kw1:AAAA",
        "kw1:AAAAAGI",
        "kw1:!!!!",
        "kw1:é",
        "kw2:" + encode(100, [(105, 105)])[4:],
        "KW1:" + encode(100, [(105, 105)])[4:],
        encode(100, [(105, 105)]) + "=",
        encode(100, [(105, 105)]) + "\n",
        encode(100, [(105, 105)])[:-1],
        encode(100, [(105, 105)]) + "AA",
        '{"offset": 100}',
    ],
)
def test_what_cannot_be_read_is_not_believed(text: str) -> None:
    assert decode(100, text) is None


def test_metadata_of_another_offset_is_not_believed() -> None:
    text = encode(100, [(105, 105)])
    assert all(decode(cursor, text) is None for cursor in (0, 99, 101, 2**40))


def test_every_single_damaged_character_is_noticed() -> None:
    text = encode(100, [(105, 105), (110, 140)])
    for at in range(len(text)):
        for other in "A_z":
            if other != text[at]:
                assert decode(100, text[:at] + other + text[at + 1 :]) is None


def test_too_long_a_span_loses_its_far_end_only() -> None:
    settled = [(o, o) for o in range(1, 100_000, 2)]
    text = encode(0, settled)
    assert len(text) <= 4_095
    found = decode(0, text)
    assert found is not None
    assert len(found) > 12_000
    assert found == settled[: len(found)]


def test_a_hundred_parked_records_far_behind_a_busy_span_fit() -> None:
    """A window at work: 100 records aside, ten million offsets, and every second offset of its span
    settled.
    """
    settled = [(parked * 100_000 + 1, parked * 100_000 + 99_999) for parked in range(100)]
    settled += [(o, o) for o in range(10_000_001, 10_016_384, 2)]
    text = encode(0, settled, origin=1_795_275_285_654_321, settled_ms=1_795_275_299_000)
    assert decode(0, text) == settled
    assert len(text) < 3_300


def test_both_forms_say_more_than_one_if_not_all_fits() -> None:
    far = [(at * 50_000 + 1, at * 50_000 + 49_999) for at in range(300)]
    settled = far + [(o, o) for o in range(15_000_001, 15_040_000, 2)]
    found = decode(0, encode(0, settled))
    assert found is not None
    assert found == settled[: len(found)]
    assert 300 + 5_000 < len(found) < len(settled)


@pytest.mark.parametrize(
    "body",
    [b"", b"\x80", b"\x05", b"\x02\x01", b"\x02\x01\x81", b"\xff" * 40 + b"\x01\x00"],
)
def test_both_forms_that_are_cut_off_are_not_believed(body: bytes) -> None:
    assert decode(100, _framed(100, b"m", body)) is None


def test_a_bitmap_begins_where_the_run_lengths_end() -> None:
    assert decode(100, _framed(100, b"m", b"\x02\x01\x02\x06")) == [(101, 102), (104, 105)]
    assert decode(100, _framed(100, b"m", b"\x02\x01\x02\x01")) == [(101, 103)]
    assert decode(100, _framed(100, b"m", b"\x00\x02")) == [(101, 101)]


@pytest.mark.parametrize("chars_max", [0, 4, 10, 11, 12, 13, 14, 40])
def test_the_smallest_limits_are_kept(chars_max: int) -> None:
    text = encode(100, [(105, 105), (110, 140)], chars_max=chars_max)
    assert len(text) <= chars_max
    assert text == "" or decode(100, text) is not None


def test_as_much_is_said_as_fits() -> None:
    runs = [(5_000, 9_999), (10_001, 16_383)]  # four numbers of two bytes, less one
    assert len(encode(0, runs)) == len("kw1:") + 16
    assert decode(0, encode(0, runs, chars_max=20)) == runs
    assert decode(0, encode(0, runs, chars_max=19)) == [runs[0], (10_001, 10_007)]
    assert decode(0, encode(0, runs, chars_max=16)) == runs[:1]
    assert encode(0, runs, chars_max=11) == encode(0, [])
    assert encode(0, runs, chars_max=10) == ""
    alternating = [(o, o) for o in range(1, 50_000, 2)]
    assert len(encode(0, alternating)) == 4_095


def test_what_is_left_out_is_the_far_end_also_if_a_later_range_would_fit() -> None:
    settled = [(1, 1), (1_000, 5_000), (5_002, 5_002)]
    assert decode(0, encode(0, settled, chars_max=18)) == [(1, 1)]


@pytest.mark.parametrize(
    ("body", "settled"),
    [
        (b"\x05\x01", [(105, 105)]),
        (b"\x05", None),  # clear, and then?
        (b"\x05\x81", None),  # cut off
        (b"\x05\x01\x80", None),
        (b"\x00\x80\x80\x40", [(100, 100 + 1_048_576 - 1)]),
        (b"\x80" * 8 + b"\x20\x01", [(100 + (1 << 61), 100 + (1 << 61))]),
        (b"\x80" * 8 + b"\x40\x01", None),  # no log has so many offsets
        (b"\x80" * 5_000 + b"\x01\x01", None),
    ],
)
def test_runs_that_no_window_has_are_not_believed(
    body: bytes, settled: list[tuple[int, int]] | None
) -> None:
    """Any client with the right to commit may write metadata with the right checksum."""
    assert decode(100, _framed(100, b"r", body)) == settled
    assert decode(100, _framed(100, b"x", body)) is None, "another kind"
