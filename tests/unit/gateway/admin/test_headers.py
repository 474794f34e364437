"""Headers of records as REST shows them: text, base64 or null, and how much of each."""

from __future__ import annotations

import pytest

from gateway.admin.headers import shown_headers
from gateway.core.wire.records import HeaderStart, RecordStart


def start(header: HeaderStart, timestamp: int = 7) -> RecordStart:
    return RecordStart(timestamp, b"", -1, [header], 1)


@pytest.mark.parametrize(
    ("value", "value_bytes", "text", "in_base64"),
    [
        (b"abc", 3, "abc", None),
        (b"", 0, "", None),
        ("ü".encode(), 2, "ü", None),
        (b"\xff\x00", 2, None, "/wA="),
        ("aü".encode()[:2], 3, "a", None),  # cut within a character
        ("aü".encode()[:2], 2, None, "YcM="),  # the very same bytes, and no more of them
        (b"a\xff", 9, None, "Yf8="),
    ],
)
def test_a_value(value: bytes, value_bytes: int, text: str | None, in_base64: str | None) -> None:
    shown = shown_headers(start(HeaderStart("h", value, value_bytes)))
    (row,) = shown["headers"]
    assert (row.name, row.value, row.value_base64) == ("h", text, in_base64)
    assert (row.value_bytes, shown["headers_count"]) == (value_bytes, 1)


def test_null_is_no_empty_value() -> None:
    (row,) = shown_headers(start(HeaderStart("h", None, 0)))["headers"]
    assert (row.value, row.value_base64, row.value_bytes) == (None, None, None)


def test_a_record_that_is_gone_has_no_fields() -> None:
    assert shown_headers(None) == {}


@pytest.mark.parametrize(
    ("timestamp", "shown"), [(1_700_000_000_000, 1_700_000_000_000), (-1, None)]
)
def test_the_records_own_time(timestamp: int, shown: int | None) -> None:
    assert shown_headers(start(HeaderStart("h", None, 0), timestamp))["timestamp_ms"] == shown
