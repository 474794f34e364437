"""The copy header: its form, which of several is believed, and everything that is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from keyway.clusters.core.copies import (
    COPY_HEADER,
    NO_TOPIC_ID,
    Claim,
    Copy,
    Doubt,
    Judged,
    Origin,
    Stood,
    as_in_headers,
    encode,
    judge,
    parse,
)
from keyway.clusters.core.limits import COPY_HEADER_BYTES_MAX, COPY_HEADERS_MAX
from keyway.clusters.core.seals import Seal
from keyway.clusters.core.tree import ClusterName, Flags
from keyway.clusters.core.trust import CHECKSUM, Seals

TOPIC_ID = "q7GdPzq4RbC5nTZ0m9Zx-_"
ORIGIN = Origin(ClusterName("ams-1"), "orders", 3, 4711, TOPIC_ID)
COPY = Copy(Flags(5), ORIGIN)
RECORD = Stood("orders", 1_700_000_000_000, b"key", b"value")
HEADER = encode(COPY, RECORD)


def test_the_form_of_the_header() -> None:
    seal = HEADER.split(b"-")[2].decode()
    claimed = f"00000005-{TOPIC_ID}-3-4711-ams-1/orders"
    assert f"2-00000005-{seal}-{TOPIC_ID}-3-4711-ams-1/orders".encode() == HEADER
    claim = parse(HEADER)
    assert isinstance(claim, Claim)
    assert (claim.version, claim.copy, claim.claimed) == (2, COPY, claimed)
    assert (claim.seal, claim.flags) == (Seal(int(seal, 16)), COPY.flags)
    assert claim.origin == f"{TOPIC_ID}-3-4711-ams-1/orders"


def test_a_cluster_without_topic_ids() -> None:
    copy = Copy(Flags(5), replace(ORIGIN, topic_id=""))
    written = encode(copy, RECORD)
    assert NO_TOPIC_ID.encode() in written
    assert judge([(COPY_HEADER, written)], RECORD).copy == copy


def test_the_origin_of_a_header_of_version_1_has_the_topic_id_of_zeros() -> None:
    claim = parse(VERSION_1)
    assert isinstance(claim, Claim)
    assert claim.origin == f"{NO_TOPIC_ID}-3-4711-ams-1/orders"
    assert encode(claim.copy, RECORD).decode().endswith(f"-{claim.origin}")


VERSION_1 = b"1-00000005-1add591412421f2e-3-4711-ams-1/orders"
VERSION_1_KEYED = b"1-00000005-4f52ae866b4bdfd4-3-4711-ams-1/orders"  # its secret: one


@pytest.mark.parametrize(
    ("header", "seals", "believed"),
    [
        (VERSION_1, CHECKSUM, True),
        (VERSION_1, Seals(("one",)), False),
        (VERSION_1, Seals(("one",), checksums=True), True),
        (VERSION_1_KEYED, CHECKSUM, False),
        (VERSION_1_KEYED, Seals(("one",)), True),
        (VERSION_1_KEYED, Seals(("two", "one")), True),
        (VERSION_1_KEYED, Seals(("two",)), False),
        (VERSION_1.replace(b"-4711-", b"-4712-"), CHECKSUM, False),
    ],
)
def test_headers_of_version_1_are_read(header: bytes, seals: Seals, believed: bool) -> None:
    """They have no topic id. One with a secret counts for as long as that secret is listed."""
    copy = judge([(COPY_HEADER, header)], RECORD, seals=seals).copy
    assert copy == (Copy(Flags(5), replace(ORIGIN, topic_id="")) if believed else None)


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


@pytest.mark.parametrize(
    "changed",
    [
        HEADER.replace(b"2-00000005", b"2-00000000"),  # to be distributed once more
        HEADER.replace(b"2-00000005", b"2-ffffffff"),  # never to be distributed
        HEADER.replace(b"-4711-", b"-4712-"),
        HEADER.replace(b"ams-1", b"ams-2"),
        HEADER.replace(b"q7Gd", b"q7Ge"),  # of a topic that was there before
        HEADER[:11] + bytes([HEADER[11] ^ 1]) + HEADER[12:],  # the seal itself
    ],
)
def test_a_forged_header_is_not_believed(changed: bytes) -> None:
    assert changed != HEADER
    assert judge([(COPY_HEADER, changed)], RECORD) == Judged(None, (Doubt.SEAL,))


def test_a_seal_depends_on_the_secret() -> None:
    sealed = encode(COPY, RECORD, seals=Seals(("one",)))
    assert judge([(COPY_HEADER, sealed)], RECORD, seals=Seals(("one",))).copy == COPY
    assert judge([(COPY_HEADER, sealed)], RECORD, seals=Seals(("two",))).copy is None
    assert judge([(COPY_HEADER, sealed)], RECORD).copy is None


def test_a_secret_can_be_replaced() -> None:
    """While both are listed, copies of before and after are believed; new ones have the first."""
    old, new, both = Seals(("old",)), Seals(("new",)), Seals(("new", "old"))
    before, after = encode(COPY, RECORD, seals=old), encode(COPY, RECORD, seals=both)
    assert judge([(COPY_HEADER, before)], RECORD, seals=both).copy == COPY
    assert judge([(COPY_HEADER, before)], RECORD, seals=new).copy is None
    assert judge([(COPY_HEADER, after)], RECORD, seals=new).copy == COPY


def test_a_first_secret_can_be_introduced() -> None:
    header = encode(COPY, RECORD)
    assert judge([(COPY_HEADER, header)], RECORD, seals=Seals(("one",))).copy is None
    seals = Seals(("one",), checksums=True)
    assert judge([(COPY_HEADER, header)], RECORD, seals=seals).copy == COPY


@pytest.mark.parametrize(
    ("value", "doubt"),
    [
        (None, Doubt.MALFORMED),
        (b"", Doubt.MALFORMED),
        (b"\xff\xfe", Doubt.MALFORMED),
        (HEADER.replace(b"2-", b"3-", 1), Doubt.MALFORMED),  # another version
        (HEADER.replace(b"2-", b"1-", 1), Doubt.MALFORMED),
        (VERSION_1.replace(b"1-", b"2-", 1), Doubt.MALFORMED),
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
        Flags(0xFFFF_FFFF),
        Origin(ClusterName("c" * 64), "t" * 249, 2**31 - 1, 2**63 - 1, TOPIC_ID),
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


def test_a_topic_id_of_librdkafka_is_written_as_kafka_writes_it() -> None:
    assert as_in_headers("L/8opMVATcizNU+adeuBFg") == "L_8opMVATcizNU-adeuBFg"
    assert as_in_headers("A" * 22) == ""
