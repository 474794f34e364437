"""Any copy of any record: the written header is believed on its record, and on no other."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from keyway.clusters.core.copies import COPY_HEADER, Copy, Origin, Stood, encode, judge, parse
from keyway.clusters.core.tree import ClusterName, Flags
from keyway.clusters.core.trust import Seals

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
        st.just("") | st.text("abzABZ019_-", min_size=22, max_size=22),
    ),
)
RECORDS = st.builds(Stood, NAMES, st.integers(-1, 2**62), FIELDS, FIELDS)


SEALS = st.builds(Seals, st.lists(st.text(max_size=100), max_size=3).map(tuple))


@given(COPIES, RECORDS, SEALS)
def test_what_is_sealed_is_believed(copy: Copy, record: Stood, seals: Seals) -> None:
    value = encode(copy, record, seals=seals)
    assert judge([(COPY_HEADER, value)], record, seals=seals).copy == copy


@given(COPIES, RECORDS, RECORDS, SEALS)
def test_not_on_another_record(copy: Copy, record: Stood, other: Stood, seals: Seals) -> None:
    assume(record != other)
    value = encode(copy, record, seals=seals)
    assert judge([(COPY_HEADER, value)], other, seals=seals).copy is None


@given(COPIES, RECORDS, SEALS, st.data())
def test_not_with_any_byte_changed(
    copy: Copy, record: Stood, seals: Seals, data: st.DataObject
) -> None:
    value = bytearray(encode(copy, record, seals=seals))
    at = data.draw(st.integers(0, len(value) - 1))
    value[at] = data.draw(st.integers(0, 255).filter(lambda byte: byte != value[at]))
    assert judge([(COPY_HEADER, bytes(value))], record, seals=seals).copy is None


@given(st.binary(max_size=500))
def test_any_bytes_are_parsed_or_doubted(value: bytes) -> None:
    parse(value)
