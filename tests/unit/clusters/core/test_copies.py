"""The copy header: its form, which of several is believed, and everything that is not."""

from __future__ import annotations

import pytest

from clusters.core.copies import (
    COPY_HEADER,
    Copy,
    Doubt,
    Judged,
    Origin,
    Seal,
    Stood,
    encode,
    judge,
    parse,
    seal_of,
)
from clusters.core.limits import COPY_HEADER_BYTES_MAX, COPY_HEADERS_MAX
from clusters.core.tree import ClusterName, Flags

ORIGIN = Origin(ClusterName("ams-1"), "orders", 3, 4711)
COPY = Copy(Flags(5), ORIGIN)
RECORD = Stood("orders", 1_700_000_000_000, b"key", b"value")
HEADER = encode(COPY, RECORD)


def test_the_form_of_the_header() -> None:
    assert HEADER == b"1-00000005-1add591412421f2e-3-4711-ams-1/orders"
    assert parse(HEADER) == (COPY, Seal(0x1ADD591412421F2E))


@pytest.mark.parametrize(
    "other",
    [
        Stood("order", 1_700_000_000_000, b"key", b"value"),
        Stood("orders", 1_700_000_000_001, b"key", b"value"),
        Stood("orders", 1_700_000_000_000, b"kez", b"value"),
        Stood("orders", 1_700_000_000_000, b"key", b"valuf"),
        Stood("orders", 1_700_000_000_000, b"keyv", b"alue"),
        Stood("orders", 1_700_000_000_000, None, b"value"),
        Stood("orders", 1_700_000_000_000, b"key", None),
    ],
)
def test_a_header_that_was_handed_on_is_not_believed(other: Stood) -> None:
    assert judge([(COPY_HEADER, HEADER)], RECORD) == Judged(COPY, ())
    assert judge([(COPY_HEADER, HEADER)], other) == Judged(None, (Doubt.SEAL,))


def test_null_and_empty_and_swapped_differ() -> None:
    fields = (None, b"", b"a")
    seals = {seal_of(COPY, Stood("t", 0, key, value)) for key in fields for value in fields}
    assert len(seals) == 9


@pytest.mark.parametrize(
    "changed",
    [
        HEADER.replace(b"1-00000005", b"1-00000000"),  # to be distributed once more
        HEADER.replace(b"1-00000005", b"1-ffffffff"),  # never to be distributed
        HEADER.replace(b"-4711-", b"-4712-"),
        HEADER.replace(b"ams-1", b"ams-2"),
        HEADER.replace(b"-1a", b"-1b"),
    ],
)
def test_a_forged_header_is_not_believed(changed: bytes) -> None:
    assert changed != HEADER
    assert judge([(COPY_HEADER, changed)], RECORD) == Judged(None, (Doubt.SEAL,))


def test_a_seal_depends_on_the_secret() -> None:
    sealed = encode(COPY, RECORD, secret="one")
    assert judge([(COPY_HEADER, sealed)], RECORD, secret="one").copy == COPY
    assert judge([(COPY_HEADER, sealed)], RECORD, secret="two").copy is None
    assert judge([(COPY_HEADER, sealed)], RECORD).copy is None


@pytest.mark.parametrize(
    ("value", "doubt"),
    [
        (None, Doubt.MALFORMED),
        (b"", Doubt.MALFORMED),
        (b"\xff\xfe", Doubt.MALFORMED),
        (HEADER.replace(b"1-", b"2-", 1), Doubt.MALFORMED),  # another version
        (HEADER + b"\n", Doubt.MALFORMED),
        (HEADER.replace(b"-4711-", b"-04711-"), Doubt.MALFORMED),
        (HEADER.replace(b"00000005", b"0000000A"), Doubt.MALFORMED),
        (HEADER.replace(b"/orders", b"/"), Doubt.MALFORMED),
        (HEADER.replace(b"/orders", b"/ord/ers"), Doubt.MALFORMED),
        (HEADER.replace(b"-3-", "-\u0663-".encode()), Doubt.MALFORMED),
        (HEADER + b"x" * 300, Doubt.MALFORMED),
        (HEADER + b"x" * COPY_HEADER_BYTES_MAX, Doubt.OVERSIZED),
    ],
)
def test_what_is_no_header_of_ours(value: bytes | None, doubt: Doubt) -> None:
    assert parse(value) == doubt
    assert judge([(COPY_HEADER, value)], RECORD) == Judged(None, (doubt,))


def test_the_longest_header_fits() -> None:
    longest = Copy(
        Flags(0xFFFF_FFFF), Origin(ClusterName("c" * 64), "t" * 249, 2**31 - 1, 2**63 - 1)
    )
    value = encode(longest, RECORD)
    assert len(value) == COPY_HEADER_BYTES_MAX
    assert judge([(COPY_HEADER, value)], RECORD).copy == longest


def test_of_several_the_one_whose_seal_fits_wins() -> None:
    inherited = encode(Copy(Flags(1), ORIGIN), Stood("input", 1, b"k", b"v"))
    headers = [(COPY_HEADER, inherited), ("other", HEADER), (COPY_HEADER, HEADER)]
    assert judge(headers, RECORD) == Judged(COPY, (Doubt.SEAL,))
    assert judge([*headers, (COPY_HEADER, HEADER)], RECORD) == Judged(
        COPY, (Doubt.SEAL, Doubt.REPEATED)
    )
    assert judge([("other", HEADER), ("Keyway-Copy", HEADER)], RECORD) == Judged(None, ())


def test_only_so_many_headers_are_looked_at() -> None:
    bad = [(COPY_HEADER, b"x")] * COPY_HEADERS_MAX
    judged = judge([*bad, (COPY_HEADER, HEADER)], RECORD)
    assert judged.copy is None
    assert judged.doubts == (Doubt.MALFORMED,) * COPY_HEADERS_MAX + (Doubt.TOO_MANY,)
