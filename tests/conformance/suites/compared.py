"""What a suite says direct and through the gateway, test by test, and what of it differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

Verdicts = Mapping[str, str]  # of a test: "passed", "skipped", or "failed: ..." in its own words
PASSED, SKIPPED, ABSENT = "passed", "skipped", "not run"


@dataclass(frozen=True, slots=True)
class Explained:
    """Tests that may differ, and why."""

    suite: str
    test: str  # a glob
    reason: str

    def covers(self, suite: str, test: str) -> bool:
        return fnmatchcase(suite, self.suite) and fnmatchcase(test, self.test)


@dataclass(frozen=True, slots=True)
class Difference:
    test: str
    direct: str
    through: str
    reason: str | None  # None: nobody has explained it


@dataclass(frozen=True, slots=True)
class Compared:
    passed: int  # through the gateway
    passed_direct: int
    run: int  # there, without the skipped
    failing_direct_too: int
    differences: tuple[Difference, ...]

    @property
    def proves_nothing(self) -> bool:
        """The suite itself does not run here: most of it fails without the gateway, too."""
        return self.failing_direct_too >= self.passed

    @property
    def unexplained(self) -> tuple[Difference, ...]:
        return tuple(difference for difference in self.differences if difference.reason is None)

    @property
    def explained(self) -> tuple[Difference, ...]:
        return tuple(difference for difference in self.differences if difference.reason is not None)


def kind(verdict: str) -> str:
    """`failed: ...` is `failed`: the words of a failure have ports and times in them."""
    return verdict.partition(":")[0]


def compared(
    suite: str, direct: Verdicts, through: Verdicts, explained: Sequence[Explained]
) -> Compared:
    """A test that one of the two has not run differs, too: absence proves nothing."""
    tests = sorted({*direct, *through})
    differences = []
    for test in tests:
        one, other = direct.get(test, ABSENT), through.get(test, ABSENT)
        if kind(one) != kind(other):
            reasons = [known.reason for known in explained if known.covers(suite, test)]
            differences.append(Difference(test, one, other, reasons[0] if reasons else None))
    kinds = [kind(verdict) for verdict in through.values()]
    return Compared(
        passed=kinds.count(PASSED),
        passed_direct=[kind(verdict) for verdict in direct.values()].count(PASSED),
        run=len(kinds) - kinds.count(SKIPPED),
        failing_direct_too=sum(
            kind(verdict) not in (PASSED, SKIPPED)
            and kind(direct.get(test, ABSENT)) == kind(verdict)
            for test, verdict in through.items()
        ),
        differences=tuple(differences),
    )


def joined(first: Verdicts, again: Sequence[Verdicts]) -> dict[str, str]:
    """Tests that differed run again, alone: one that passes once can pass."""
    verdicts = dict(first)
    for more in again:
        for test, verdict in more.items():
            if kind(verdicts.get(test, ABSENT)) != PASSED:
                verdicts[test] = verdict
    return verdicts
