"""Timestamps: exact to the nanosecond, local times of zones, and texts that are no time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark.transforms.core.times import EPOCH_UNITS, ISO, Ambiguous, instant, written
from spark.transforms.core.values import Number, Shape, UnreadableRecord, Value

UTC_ZONE, NEW_YORK, KOLKATA = (
    ZoneInfo(name) for name in ("UTC", "America/New_York", "Asia/Kolkata")
)
PATTERN = "%Y-%m-%d %H:%M:%S"
SECOND = 10**9


@pytest.mark.parametrize(
    ("value", "pattern", "zone", "expected"),
    [
        (Number("1357034400"), "unix_s", UTC_ZONE, 1357034400 * SECOND),
        (Number("1357034400.123456789"), "unix_s", UTC_ZONE, 1357034400123456789),
        (Number("1.357e12"), "unix_ms", UTC_ZONE, 1357000000 * SECOND),
        (Number("-1"), "unix_us", UTC_ZONE, -1_000),
        (Number("9223372036854775807"), "unix_ns", UTC_ZONE, 2**63 - 1),
        ("2013-01-01T10:00:00Z", ISO, NEW_YORK, 1357034400 * SECOND),
        ("2013-01-01T10:00:00.000000001Z", ISO, UTC_ZONE, 1357034400 * SECOND + 1),
        ("2013-01-01T15:30:00,5+05:30", ISO, UTC_ZONE, 1357034400 * SECOND + SECOND // 2),
        ("2013-01-01 05:00:00", PATTERN, NEW_YORK, 1357034400 * SECOND),
        ("2013-01-01T15:30", ISO, KOLKATA, 1357034400 * SECOND),
        ("1969-12-31T23:59:59.999999999Z", ISO, UTC_ZONE, -1),
    ],
)
def test_read(value: Value, pattern: str, zone: ZoneInfo, expected: int) -> None:
    assert instant(value, pattern, zone, "earlier") == expected


@pytest.mark.parametrize(
    ("nanos", "pattern", "zone", "expected"),
    [
        (1357034400 * SECOND, ISO, UTC_ZONE, "2013-01-01T10:00:00Z"),
        (1357034400 * SECOND + 1, ISO, KOLKATA, "2013-01-01T15:30:00.000000001+05:30"),
        (-1, ISO, UTC_ZONE, "1969-12-31T23:59:59.999999999Z"),
        (-1, "unix_s", UTC_ZONE, Number("-1")),
        (1_999_999, "unix_ms", UTC_ZONE, Number("1")),
        (1357034400 * SECOND, "%d.%m.%Y %H:%M %z", NEW_YORK, "01.01.2013 05:00 -0500"),
    ],
)
def test_write(nanos: int, pattern: str, zone: ZoneInfo, expected: object) -> None:
    assert written(nanos, pattern, zone) == expected


@pytest.mark.parametrize(("ambiguous", "offset_h"), [("earlier", 4), ("later", 5)])
def test_the_hour_that_comes_twice(ambiguous: Ambiguous, offset_h: int) -> None:
    expected = datetime(2013, 11, 3, 1, 30, tzinfo=UTC) + timedelta(hours=offset_h)
    read = instant("2013-11-03 01:30:00", PATTERN, NEW_YORK, ambiguous)
    assert read == int(expected.timestamp()) * SECOND


@pytest.mark.parametrize(
    ("value", "pattern", "reason"),
    [
        ("2013-03-10 02:30:00", PATTERN, "does not exist in America/New_York"),
        ("2013-11-03 01:30:00", PATTERN, "occurs twice"),
        ("2013-13-01", ISO, "not of the format iso8601"),
        ("yesterday", PATTERN, "not of the format"),
        ("2013-01-01T10:00:00.0000000001Z", ISO, "finer than a nanosecond"),
        (Number("0.0000000001"), "unix_s", "finer than a nanosecond"),
        (Number("1e999999"), "unix_s", "out of range"),
        (Number("1" * 500), "unix_s", "more than 400 characters"),
        ("1357034400", "unix_s", "is a text, not a number"),
        (Number("2013"), ISO, "is a number, not a text"),
        (Shape.OBJECT, ISO, "is an object"),
    ],
)
def test_what_is_no_time_says_why(value: Value, pattern: str, reason: str) -> None:
    with pytest.raises(UnreadableRecord, match=reason):
        instant(value, pattern, NEW_YORK, "quarantine")


def test_a_year_that_no_text_has() -> None:
    with pytest.raises(UnreadableRecord, match="beyond the years"):
        written(10**27, ISO, UTC_ZONE)


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([UTC_ZONE, NEW_YORK, KOLKATA]),
    st.sampled_from([ISO, *EPOCH_UNITS]),
)
def test_written_and_read_back(nanos: int, zone: ZoneInfo, pattern: str) -> None:
    unit = EPOCH_UNITS.get(pattern, 1)
    text = written(nanos, pattern, zone)
    assert instant(text, pattern, UTC_ZONE, "quarantine") == nanos // unit * unit
