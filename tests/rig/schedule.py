"""The order of test files: the longest begin first, by recorded durations.

Workers take a file each at a time, or all files that need the same costly servers (SHARED): each
worker would start its own, and an idle Kafka costs a few per cent of a core. Much work that begins
late would keep one worker busy while the others have nothing left. `--record-durations` (make
durations) writes the seconds of each file that ran into RECORDED, and leaves the others there as
they are.
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

# Session fixtures whose files one worker takes together.
SHARED = ("spark", "two_kafkas", "kafka_pair", "plain_kafka")

Durations = Mapping[str, float]  # seconds of a test file, by its path below tests/


def expected_s(path: str, durations: Durations) -> float:
    """Of a new file, the average of its folder (tests/unit, tests/integration...)."""
    if path in durations:
        return durations[path]
    folder = path.partition("/")[0]
    alike = [seconds for other, seconds in durations.items() if other.startswith(f"{folder}/")]
    return mean(alike) if alike else 0.0


def longest_first(groups: Mapping[str, str], durations: Durations) -> list[str]:
    """Paths in order, from the group of each. The groups that take longest come first, and the
    longest files within them. Equally long ones, and those of less than a second, by name: alike in
    every worker.
    """
    seconds = dict.fromkeys(groups.values(), 0.0)
    for path, group in groups.items():
        seconds[group] += expected_s(path, durations)

    def rank(path: str) -> tuple[int, str, int, str]:
        group = groups[path]
        return -round(seconds[group]), group, -round(expected_s(path, durations)), path

    return sorted(groups, key=rank)


def groups_of(items: Iterable[pytest.Item]) -> dict[str, str]:
    """The group of each file, by its path below tests/: a fixture of SHARED, or itself."""
    needed: dict[str, set[str]] = {}
    for item in items:
        fixtures = set(SHARED).intersection(getattr(item, "fixturenames", ()))
        needed.setdefault(_path(item), set()).update(fixtures)
    return {
        path: next((name for name in SHARED if name in fixtures), path)
        for path, fixtures in needed.items()
    }


def _path(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).as_posix()


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


@pytest.hookimpl(tryfirst=True)  # xdist then writes the groups into the ids
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        groups = groups_of(items)
        ranks = {path: rank for rank, path in enumerate(longest_first(groups, read(RECORDED)))}
        items.sort(key=lambda item: ranks[_path(item)])
        for item in items:
            item.add_marker(pytest.mark.xdist_group(groups[_path(item)]))
