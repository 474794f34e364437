"""Whether a field fits a condition of a filter or a route."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache

from spark.transforms.core.steps import Condition, Plain
from spark.transforms.core.values import Location, Number, Shape, UnreadableRecord, Value, described


def fits(condition: Condition, places: Sequence[Location]) -> bool:
    """Raises UnreadableRecord where numbers are asked for and something else is there."""
    values = [place.value for place in places]
    if condition.present is not None:
        return condition.present == any(value is not None for value in values)
    return any(_fits(condition, value) for value in values)


def _fits(condition: Condition, value: Value) -> bool:
    if condition.one_of is not None:
        return any(_equal(value, wanted) for wanted in condition.one_of)
    if condition.matches is not None:
        if value is None:
            return False
        if not isinstance(value, str):
            raise UnreadableRecord(f"{described(value)} cannot match an expression")
        return _expression(condition.matches).fullmatch(value) is not None
    if condition.at_least is not None:
        return value is not None and _exact(value) >= Decimal(str(condition.at_least))
    if condition.at_most is not None:
        return value is not None and _exact(value) <= Decimal(str(condition.at_most))
    return _equal(value, condition.equals)


def _equal(value: Value, wanted: Plain) -> bool:
    if isinstance(value, Number):
        is_number = isinstance(wanted, int | float) and not isinstance(wanted, bool)
        return is_number and value.exact() == Decimal(str(wanted))
    return not isinstance(value, Shape) and type(value) is type(wanted) and value == wanted


def _exact(value: Value) -> Decimal:
    if not isinstance(value, Number):
        raise UnreadableRecord(f"{described(value)} cannot be compared with a number")
    return value.exact()


@lru_cache(maxsize=1_000)
def _expression(text: str) -> re.Pattern[str]:
    return re.compile(text)
