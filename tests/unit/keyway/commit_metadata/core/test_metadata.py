from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import crc32
from itertools import pairwise
from random import Random

import pytest

from keyway.commit_metadata.core.metadata import Times, Told, decode, encode, read, read_times
from keyway.commit_metadata.core.run_lengths import ranges_in


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
        ([], "kw1:dvzWmk4"),
        ([(105, 105), (107, 300)], "kw1:4jx4YU4CAAKAABQQ"),
        ([(227, 227), (355, 482)], "kw1:b6Cto04CAD-AD8_g"),
        ([(o, o) for o in range(101, 125, 2)], "kw1:bqIga04MAACAAAAAAAAAAAAAAAAAAAAAAAAAAAA"),
    ],
)
def test_what_an_earlier_version_wrote_is_read(settled: list[tuple[int, int]], text: str) -> None:
    """Kafka keeps it for as long as the group lives: the form never changes under its name."""
    assert encode(100, settled) == text
    assert decode(100, text) == settled


def test_few_ranges_are_short_however_far_they_reach() -> None:
    assert len(encode(0, [(5_000, 9_999), (10_001, 16_383)])) < 36


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


EPOCHS = tuple([(7 + at, 1_000_000_000 * at - 1) for at in range(8)])  # the first: not known where


@pytest.mark.parametrize("settled", [[], [(105, 105)], [(o, o) for o in range(101, 500, 2)]])
@pytest.mark.parametrize("origin", [0, 1_795_275_285_654_321])
def test_epochs_come_back_behind_what_is_settled(
    settled: list[tuple[int, int]], origin: int
) -> None:
    for epochs in ((), ((0, 0),), EPOCHS):
        text = encode(100, settled, origin=origin, settled_ms=5, epochs=epochs)
        assert read(100, text) == Told(settled, origin, epochs)
        assert read_times(100, text).origin == origin
        assert (len(text) == len(encode(100, settled, origin=origin, settled_ms=5))) == (not epochs)


def test_an_earlier_version_reads_what_stands_before_the_epochs() -> None:
    text = encode(100, [(105, 105)], epochs=EPOCHS)
    assert ranges_in(urlsafe_b64decode(text[4:] + "==")[5:], 100) == [(105, 105)]
    text = encode(100, [], epochs=EPOCHS)
    assert ranges_in(urlsafe_b64decode(text[4:] + "==")[5:], 100) == []


def test_epochs_are_left_out_if_they_do_not_fit() -> None:
    for chars_max in range(11, 200):
        text = encode(100, [(105, 105)], epochs=EPOCHS, chars_max=chars_max)
        assert len(text) <= chars_max
        assert read(100, text).epochs in ((), EPOCHS)


def test_a_tail_that_is_not_of_epochs_is_not_believed() -> None:
    body = b"\0\0" + bytes(13)
    checksum = crc32((100).to_bytes(8, "big") + b"N" + body).to_bytes(4, "big")
    text = "kw1:" + urlsafe_b64encode(checksum + b"N" + body).decode().rstrip("=")
    assert read(100, text) == Told([], 0, ())


def test_metadata_without_an_origin_has_none() -> None:
    assert read(100, encode(100, [(105, 105)]))[1] == 0
    assert read(100, encode(100, [], origin=0))[1] == 0
    assert read(100, "")[1] == 0


@pytest.mark.parametrize(("kind", "size"), [(b"O", 7), (b"P", 15)])
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
    assert len(text) < 2_900
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
        "kw1:F_26g3IFAQHCAQ",  # of before version 1
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


def test_of_too_many_ranges_the_short_ones_are_left_out() -> None:
    """Not the far end: 2,097 records scattered over ten million offsets, as 100 parked keys with
    their backlogs.
    """
    random = Random(7)
    unsettled = sorted(random.sample(range(10_000_000), 2_097))
    settled = [
        (low + 1, high - 1) for low, high in pairwise([*unsettled, 10_000_000]) if high > low + 1
    ]
    cursor = unsettled[0]
    text = encode(cursor, settled, origin=1_795_275_285_654_321, settled_ms=1_795_275_299_000)
    assert len(text) <= 4_095
    found = decode(cursor, text)
    assert found is not None
    told = {offset for low, high in found for offset in (low, high)}
    assert told.isdisjoint(unsettled)
    assert _count(settled) - _count(found) <= 15 * len(unsettled), "cells of 16 fit"


def _count(ranges: list[tuple[int, int]]) -> int:
    return sum(high + 1 - low for low, high in ranges)


def test_a_thousand_and_five_hundred_scattered_records_lose_nothing() -> None:
    settled = [(at * 5_000 + 1, at * 5_000 + 4_999) for at in range(1_500)]
    text = encode(0, settled, origin=1 << 50, settled_ms=1 << 40, epochs=EPOCHS)
    assert decode(0, text) == settled


def test_a_hundred_parked_records_far_behind_a_busy_span_fit() -> None:
    """A window at work: 100 records aside, ten million offsets, and every second offset of its span
    settled.
    """
    settled = [(parked * 100_000 + 1, parked * 100_000 + 99_999) for parked in range(100)]
    settled += [(o, o) for o in range(10_000_001, 10_016_384, 2)]
    text = encode(0, settled, origin=1_795_275_285_654_321, settled_ms=1_795_275_299_000)
    assert decode(0, text) == settled
    assert len(text) < 3_600


def test_neighbouring_ranges_are_one() -> None:
    assert decode(0, encode(0, [(3, 5), (6, 9), (8, 12)])) == [(3, 12)]


@pytest.mark.parametrize("chars_max", [0, 4, 10, 11, 12, 13, 14, 40])
def test_the_smallest_limits_are_kept(chars_max: int) -> None:
    text = encode(100, [(105, 105), (110, 140)], chars_max=chars_max)
    assert len(text) <= chars_max
    assert text == "" or decode(100, text) is not None
