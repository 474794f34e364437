"""Prometheus' expressions, evaluated over scrapes: the part of PromQL that Keyway's alerts use.

The parser is that of promql-parser. Anything that is not understood is an error. The functions over
a range take its first and last samples, without Prometheus' extrapolation to the borders.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from typing import Any

import promql_parser as promql
from prometheus_client.parser import text_string_to_metric_families

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]

STALE_S = 300.0  # Prometheus' lookback
_NAME = "__name__"
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
}
_COMPUTE: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b if b else math.nan,
}
_AGGREGATE: dict[str, Callable[[list[float]], float]] = {
    "sum": sum,
    "max": max,
    "min": min,
    "count": len,
}


@dataclass(slots=True)
class History:
    """Scrapes of one target, with the labels that Prometheus adds."""

    target: dict[str, str]
    _series: dict[Labels, list[tuple[float, float]]] = field(default_factory=dict)

    def scrape(self, at_s: float, exposition: str) -> None:
        for family in text_string_to_metric_families(exposition):
            for sample in family.samples:
                self.note(at_s, sample.name, sample.labels, sample.value)

    def note(self, at_s: float, name: str, labels: dict[str, str], value: float) -> None:
        series = frozenset({**self.target, **labels, _NAME: name}.items())
        self._series.setdefault(series, []).append((at_s, value))

    def at(self, expression: str, at_s: float) -> Vector:
        result = self._evaluate(promql.parse(expression), at_s)
        assert isinstance(result, dict), f"{expression}: not a vector"
        return result

    def _evaluate(self, expr: Any, at_s: float) -> Vector | float:
        match expr:
            case promql.NumberLiteral():
                return float(expr.val)
            case promql.ParenExpr():
                return self._evaluate(expr.expr, at_s)
            case promql.VectorSelector():
                return {
                    labels: samples[-1][1] for labels, samples in self._select(expr, at_s, STALE_S)
                }
            case promql.AggregateExpr():
                return self._aggregate(expr, at_s)
            case promql.Call():
                return self._call(expr, at_s)
            case promql.BinaryExpr():
                return self._binary(expr, at_s)
            case _:
                raise NotImplementedError(str(expr))

    def _select(
        self, selector: Any, at_s: float, range_s: float
    ) -> Iterator[tuple[Labels, list[tuple[float, float]]]]:
        assert selector.offset is None
        assert selector.at is None
        for series, samples in self._series.items():
            labels = dict(series)
            near = [(at, value) for at, value in samples if at_s - range_s < at <= at_s]
            if near and labels.pop(_NAME) == selector.name and _matches(selector, labels):
                yield frozenset(labels.items()), near

    def _aggregate(self, expr: Any, at_s: float) -> Vector:
        assert expr.param is None
        assert expr.modifier.type == promql.AggModifierType.By
        inner = self._evaluate(expr.expr, at_s)
        assert isinstance(inner, dict)
        found: dict[Labels, list[float]] = {}
        for labels, value in inner.items():
            kept = frozenset(label for label in labels if label[0] in expr.modifier.labels)
            found.setdefault(kept, []).append(value)
        return {labels: _AGGREGATE[str(expr.op)](values) for labels, values in found.items()}

    def _call(self, expr: Any, at_s: float) -> Vector | float:
        name = expr.func.name
        if name == "time":
            return at_s
        if name == "histogram_quantile":
            buckets = self._evaluate(expr.args[1], at_s)
            assert isinstance(buckets, dict)
            return _quantiles(float(expr.args[0].val), buckets)
        (matrix,) = expr.args
        range_: timedelta = matrix.range
        return {
            labels: _over_range(name, samples)
            for labels, samples in self._select(
                matrix.vector_selector, at_s, range_.total_seconds()
            )
            if len(samples) > 1
        }

    def _binary(self, expr: Any, at_s: float) -> Vector | float:
        assert expr.modifier is None or expr.modifier.matching is None
        left, right = self._evaluate(expr.lhs, at_s), self._evaluate(expr.rhs, at_s)
        op = str(expr.op)
        if op == "or":
            assert isinstance(left, dict)
            assert isinstance(right, dict)
            return right | left
        if op in ("and", "unless"):
            assert isinstance(left, dict)
            assert isinstance(right, dict)
            return {
                labels: value
                for labels, value in left.items()
                if (labels in right) == (op == "and")
            }
        if isinstance(left, float):
            assert isinstance(right, dict)
            return {labels: _COMPUTE[op](left, value) for labels, value in right.items()}
        pairs = {
            labels: (value, right if isinstance(right, float) else right[labels])
            for labels, value in left.items()
            if isinstance(right, float) or labels in right
        }
        if op in _COMPARE:
            return {labels: a for labels, (a, b) in pairs.items() if _COMPARE[op](a, b)}
        return {labels: _COMPUTE[op](a, b) for labels, (a, b) in pairs.items()}


def _matches(selector: Any, labels: dict[str, str]) -> bool:
    for matcher in selector.matchers.matchers:
        value = labels.get(matcher.name, "")
        match matcher.op:
            case promql.MatchOp.Equal:
                fits = value == matcher.value
            case promql.MatchOp.NotEqual:
                fits = value != matcher.value
            case promql.MatchOp.Re:
                fits = re.fullmatch(matcher.value, value) is not None
            case _:
                fits = re.fullmatch(matcher.value, value) is None
        if not fits:
            return False
    return True


def _over_range(name: str, samples: list[tuple[float, float]]) -> float:
    seconds = samples[-1][0] - samples[0][0]
    change = samples[-1][1] - samples[0][1]
    if name == "delta":
        return change
    values = [value for _, value in samples]
    resets = sum(a for a, b in pairwise(values) if b < a)
    return {"increase": change + resets, "rate": (change + resets) / seconds}[name]


def _quantiles(quantile: float, buckets: Vector) -> Vector:
    """As histogram_quantile: linear within the bucket."""
    found: dict[Labels, list[tuple[float, float]]] = {}
    for labels, count in buckets.items():
        rest = frozenset(label for label in labels if label[0] != "le")
        found.setdefault(rest, []).append((float(dict(labels)["le"]), count))
    return {labels: _quantile(quantile, sorted(rows)) for labels, rows in found.items()}


def _quantile(quantile: float, rows: list[tuple[float, float]]) -> float:
    total = rows[-1][1]
    if not total:
        return math.nan
    bound_below, count_below = 0.0, 0.0
    for bound, count in rows:
        if count >= quantile * total:
            if math.isinf(bound):
                return bound_below
            part = (quantile * total - count_below) / (count - count_below)
            return bound_below + (bound - bound_below) * part
        bound_below, count_below = bound, count
    return bound_below
