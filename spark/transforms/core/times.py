"""Timestamps between texts, zones and epoch units, exact to the nanosecond.

An instant is a number of nanoseconds since 1970-01-01T00:00:00Z. Formats: `unix_s`, `unix_ms`,
`unix_us`, `unix_ns` (numbers; read with a fraction, written whole and rounded down), `iso8601`, or
a pattern of Python's `strptime` and `strftime` (`%Y-%m-%d %H:%M:%S`). A text without an offset is
local time of the zone that the step names; the hour that a zone skips in spring is no time.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Literal
from zoneinfo import ZoneInfo

from spark.transforms.core.limits import FRACTION_DIGITS_MAX
from spark.transforms.core.values import Number, Scalar, UnreadableRecord, Value, described

EPOCH_UNITS = {"unix_s": 10**9, "unix_ms": 10**6, "unix_us": 10**3, "unix_ns": 1}  # in ns
ISO = "iso8601"
Ambiguous = Literal["earlier", "later", "quarantine"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = 10**9
# Python reads six digits of a second and drops the rest without a word.
_FRACTION = re.compile(r"(?<=:\d\d)[.,](\d+)")


def instant(value: Value, pattern: str, zone: ZoneInfo, ambiguous: Ambiguous) -> int:
    """Raises UnreadableRecord."""
    if unit := EPOCH_UNITS.get(pattern):
        number = _number(value)
        nanos = number * unit
        if nanos != nanos.to_integral_value():
            raise UnreadableRecord("a time is finer than a nanosecond")
        return int(nanos)
    if not isinstance(value, str):
        raise UnreadableRecord(f"a time is {described(value)}, not a text")
    text, fraction = _split_fraction(value) if pattern == ISO else (value, 0)
    try:
        read = datetime.fromisoformat(text) if pattern == ISO else datetime.strptime(text, pattern)  # noqa: DTZ007 - the zone comes next
    except ValueError:
        raise UnreadableRecord(f"a time is not of the format {pattern}") from None
    if read.tzinfo is None:
        read = _in_zone(read, zone, ambiguous)
    since = read - _EPOCH
    seconds = since.days * 86_400 + since.seconds
    return seconds * _SECOND + since.microseconds * 1_000 + fraction


def written(nanos: int, pattern: str, zone: ZoneInfo) -> Scalar:
    """A number of whole units, or a text in `zone`. Raises UnreadableRecord beyond the years 1 to
    9999.
    """
    if unit := EPOCH_UNITS.get(pattern):
        return Number(str(nanos // unit))
    seconds, fraction = divmod(nanos, _SECOND)
    try:
        there = (_EPOCH + timedelta(seconds=seconds)).astimezone(zone)
    except OverflowError:
        raise UnreadableRecord("a time is beyond the years 1 to 9999") from None
    if pattern != ISO:
        return there.replace(microsecond=fraction // 1_000).strftime(pattern)
    digits = f"{fraction:09}".rstrip("0")
    offset = there.isoformat()[19:]
    return (
        there.isoformat()[:19]
        + (f".{digits}" if digits else "")
        + ("Z" if offset == "+00:00" else offset)
    )


def _number(value: Value) -> Decimal:
    if not isinstance(value, Number):
        raise UnreadableRecord(f"a time is {described(value)}, not a number")
    number = value.exact()
    # Beyond that no unit gives a year of four digits, and an exponent may be of any size.
    if not number.is_finite() or number.adjusted() > 30 or number.as_tuple().exponent < -30:  # type: ignore[operator]
        raise UnreadableRecord("a time is out of range")
    return number


def _split_fraction(text: str) -> tuple[str, int]:
    """The text without the fraction of its seconds, and that in nanoseconds."""
    found = _FRACTION.search(text)
    if found is None:
        return text, 0
    digits = found[1].rstrip("0")
    if len(digits) > FRACTION_DIGITS_MAX:
        raise UnreadableRecord("a time is finer than a nanosecond")
    return text[: found.start()] + text[found.end() :], int(digits.ljust(9, "0"))


def _in_zone(local: datetime, zone: ZoneInfo, ambiguous: Ambiguous) -> datetime:
    earlier, later = local.replace(tzinfo=zone), local.replace(tzinfo=zone, fold=1)
    if earlier.utcoffset() == later.utcoffset():
        return earlier
    if earlier.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != local:
        raise UnreadableRecord(f"a time does not exist in {zone.key}: clocks are set forward then")
    if ambiguous == "quarantine":
        raise UnreadableRecord(f"a time occurs twice in {zone.key}: clocks are set back then")
    return earlier if ambiguous == "earlier" else later
