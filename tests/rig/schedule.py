"""The order of test files: the longest begin first, by recorded durations.

Workers take a file each at a time. A long file that begins late would keep one worker busy while
the other has nothing left. `--record-durations` (make durations) writes the seconds of each file
that ran into RECORDED, and leaves the others there as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import mean

import pytest

TESTS = Path(__file__).resolve().parents[1]
RECORDED = TESTS / "durations.json"
OPTION = "--record-durations"

Durations = Mapping[str, float]  # seconds of a test file, by its path below tests/


def expected_s(path: str, durations: Durations) -> float:
    """Of a new file, the average of its folder (tests/unit, tests/integration...)."""
    if path in durations:
        return durations[path]
    folder = path.partition("/")[0]
    alike = [seconds for other, seconds in durations.items() if other.startswith(f"{folder}/")]
    return mean(alike) if alike else 0.0


def longest_first(paths: Iterable[str], durations: Durations) -> list[str]:
    """Equally long ones, and those of less than a second, by name: alike in every worker."""
    return sorted(set(paths), key=lambda path: (-round(expected_s(path, durations)), path))


class Recorder:
    """Adds up the seconds of each file's tests, set-up and tear-down included."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        path = report.nodeid.partition("::")[0].removeprefix("tests/")
        self.seconds[path] = self.seconds.get(path, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        known = {
            path: seconds
            for path, seconds in read(self.file).items()
            if (self.file.parent / path).exists()
        }
        known |= {path: round(seconds, 1) for path, seconds in self.seconds.items()}
        self.file.write_text(json.dumps(known, indent=0, sort_keys=True) + "\n", encoding="utf-8")


def read(file: Path) -> dict[str, float]:
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, action="store_true", help=f"writes tests/{RECORDED.name}")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption(OPTION) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(RECORDED))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        path_of = {item: item.path.relative_to(TESTS).as_posix() for item in items}
        ranks = {
            path: rank for rank, path in enumerate(longest_first(path_of.values(), read(RECORDED)))
        }
        items.sort(key=lambda item: ranks[path_of[item]])
