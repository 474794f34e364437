"""A suite: a public program or set of tests, as its authors publish it, and what it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.conformance.suites.compared import Verdicts
from tests.conformance.suites.front import Front, Setting

# `only`: the tests to run; empty means all.
Runs = Callable[[Front, Sequence[str]], Verdicts]


@dataclass(frozen=True, slots=True)
class Suite:
    name: str
    runs: Runs | None  # None: of others, and no path to it was given
    speaks_tls: bool = True  # else it has no setting for it
    brokers: tuple[int, ...] = (1, 3)
    kafka: Mapping[str, str] = field(default_factory=dict)  # properties of the brokers
    groups: Sequence[Mapping[str, object]] = ()  # of keyway.yaml, as the brokers' properties say

    def lacks(self, setting: Setting) -> str | None:
        """Why it cannot run there, as its cell on the page says."""
        if setting.tls and not self.speaks_tls:
            return "no TLS"
        if setting.brokers not in self.brokers:
            return f"needs {min(self.brokers)}"
        return None
