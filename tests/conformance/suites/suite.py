"""A suite: a public program or set of tests, as its authors publish it, and what it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.conformance.suites.compared import Verdicts
from tests.conformance.suites.front import Front

# `only`: the tests to run; empty means all.
Runs = Callable[[Front, Sequence[str]], Verdicts]


@dataclass(frozen=True, slots=True)
class Suite:
    name: str
    runs: Runs
    speaks_tls: bool = True  # else it has no setting for it
    brokers: tuple[int, ...] = (1, 3)
    kafka: Mapping[str, str] = field(default_factory=dict)  # properties of the brokers
    groups: Sequence[Mapping[str, object]] = ()  # of keyway.yaml, as the brokers' properties say
