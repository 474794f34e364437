"""Any copy of any record: the written header is believed on its record, and on no other."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from clusters.core.copies import COPY_HEADER, Copy, Origin, Stood, encode, judge, parse
from clusters.core.tree import ClusterName, Flags

NAMES = st.text("abzABZ019._-", min_size=1, max_size=64)
FIELDS = st.none() | st.binary(max_size=80)
COPIES = st.builds(
    Copy,
    st.integers(0, 2**32 - 1).map(Flags),
    st.builds(
        Origin,
        NAMES.map(ClusterName),
        NAMES,
        st.integers(0, 2**31 - 1),
        st.integers(0, 2**63 - 1),
    ),
)
RECORDS = st.builds(Stood, NAMES, st.integers(-1, 2**62), FIELDS, FIELDS)


@given(COPIES, RECORDS, st.text(max_size=20))
def test_what_is_sealed_is_believed(copy: Copy, record: Stood, secret: str) -> None:
    value = encode(copy, record, secret=secret)
    assert judge([(COPY_HEADER, value)], record, secret=secret).copy == copy


@given(COPIES, RECORDS, RECORDS)
def test_not_on_another_record(copy: Copy, record: Stood, other: Stood) -> None:
    assume(record != other)
    assert judge([(COPY_HEADER, encode(copy, record))], other).copy is None


@given(COPIES, RECORDS, st.data())
def test_not_with_any_byte_changed(copy: Copy, record: Stood, data: st.DataObject) -> None:
    value = bytearray(encode(copy, record))
    at = data.draw(st.integers(0, len(value) - 1))
    value[at] = data.draw(st.integers(0, 255).filter(lambda it: it != value[at]))
    assert judge([(COPY_HEADER, bytes(value))], record).copy is None


@given(st.binary(max_size=500))
def test_any_bytes_are_parsed_or_doubted(value: bytes) -> None:
    parse(value)
