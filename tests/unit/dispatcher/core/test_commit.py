import pytest

from dispatcher.core.commit import CHARS_MAX, decode, encode


def test_metadata_comes_back() -> None:
    settled = [(105, 105), (107, 300), (16_000, 16_483)]
    assert decode(100, encode(100, settled)) == settled


def test_nothing_settled_beyond_the_cursor_is_said_and_not_merely_left_out() -> None:
    text = encode(100, [])
    assert text.startswith("kw1:")
    assert decode(100, text) == []


def test_what_lies_below_the_cursor_is_left_out() -> None:
    assert decode(100, encode(100, [(3, 50), (90, 110), (120, 120)])) == [(100, 110), (120, 120)]


def test_few_ranges_are_short_however_far_they_reach() -> None:
    assert len(encode(0, [(5_000, 9_999), (10_001, 16_383)])) < 24


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
    assert len(text) <= CHARS_MAX
    found = decode(0, text)
    assert found is not None
    assert len(found) > 12_000
    assert found == settled[: len(found)]


@pytest.mark.parametrize("chars_max", [0, 4, 10, 11, 12, 13, 14, 40])
def test_the_smallest_limits_are_kept(chars_max: int) -> None:
    text = encode(100, [(105, 105), (110, 140)], chars_max=chars_max)
    assert len(text) <= chars_max
    assert text == "" or decode(100, text) is not None
