"""The order of test files: the longest begin first, by recorded durations.

Workers take a file each at a time, or all files that need the same costly servers (SHARED): each
worker would start its own, and an idle Kafka costs a few per cent of a core. For the same reason
these servers end with the last file that needs them, not with the session. Much work that begins
late would keep one worker busy while the others have nothing left. `make test
ARGS=--record-durations` writes the seconds of each file that ran into RECORDED, and leaves the
others there as they are.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

TESTS = Path(__file__).resolve().parents[1]
RECORDED = TESTS / "durations.json"
OPTION = "--record-durations"

# Session fixtures whose files one worker takes together, and the text that shows their use.
SHARED = {
    "spark": "spark: SparkSession",
    "two_kafkas": "pair: Addresses",
    "kafka_pair": "kafka_pair: KafkaCluster",
    "plain_kafka": "plain_kafka: KafkaCluster",
    "secure": "secure: SecureKafka",
    "guarded_broker": "guarded_broker: Guarded",
}

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


def group_of(path: str, text: str) -> str:
    """The first fixture of SHARED that a file uses, or the file itself."""
    return next((name for name, shown in SHARED.items() if shown in text), path)


def groups_of(paths: Iterable[str], tests: Path = TESTS) -> dict[str, str]:
    """By path below tests/."""
    return {path: group_of(path, (tests / path).read_text("utf-8")) for path in sorted(set(paths))}


class GroupScheduling(LoadFileScheduling):  # type: ignore[misc] # xdist's schedulers have no types
    """xdist's `--dist loadfile` with a group for a file. (Its own `loadgroup` writes the groups
    into the tests' ids, and pytest >= 9.2 does not take them.)
    """

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        self._groups = groups_of(_below_tests(item) for item in collection)
        super().add_node_collection(node, collection)

    def _split_scope(self, nodeid: str) -> str:
        return self._groups[_below_tests(nodeid)]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling | None:
    return GroupScheduling(config, log) if config.getoption("dist") == "loadfile" else None


def _below_tests(nodeid: str) -> str:
    return nodeid.partition("::")[0].removeprefix("tests/")


class Recorder:
    """Adds up the seconds of each file's tests, set-up and tear-down included."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        path = _below_tests(report.nodeid)
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
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Groups(TESTS))
        config.pluginmanager.register(Imports(config))
    elif config.getoption(OPTION):
        config.pluginmanager.register(Recorder(RECORDED))


class Imports:
    """In a worker: imports the test modules before they are collected, each worker from another one
    on.

    In a new checkout the assertions of each module are rewritten, for all workers together a minute
    of CPU. Side by side on the same module they would all do so. This way most find the byte code
    that another has written.
    """

    def __init__(self, config: pytest.Config) -> None:
        worker = config.workerinput  # type: ignore[attr-defined] # xdist's, in a worker only
        self._number = int(worker["workerid"].removeprefix("gw"))
        self._workers = int(worker["workercount"])

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> None:
        files = modules_of(session.config.args, session.config.rootpath)
        first = len(files) * self._number // self._workers
        for file in files[first:] + files[:first]:
            name = ".".join(file.relative_to(TESTS.parent).with_suffix("").parts)
            # What cannot be imported is imported again, and reported, when it is collected.
            with suppress(Exception, pytest.skip.Exception):
                importlib.import_module(name)


def modules_of(arguments: Iterable[str], root: Path, tests: Path = TESTS) -> list[Path]:
    """The test modules of packages below `tests` that pytest's arguments name, in their order."""
    found: dict[Path, None] = {}
    for argument in arguments:
        path = root / argument.partition("::")[0]
        for file in sorted(path.rglob("test_*.py")) if path.is_dir() else [path]:
            if tests in file.parents and (file.parent / "__init__.py").exists():
                found[file] = None
    return list(found)


class Groups:
    """In a worker: the order of its tests, and the end of a group's server with the group."""

    def __init__(self, tests: Path) -> None:
        self._tests = tests
        self._groups: Mapping[str, str] = {}  # by path below tests/

    def _group_of(self, item: pytest.Item) -> str:
        return self._groups[_below_tests(item.nodeid)]

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        path_of = {item: _below_tests(item.nodeid) for item in items}
        self._groups = groups_of(path_of.values(), self._tests)
        order = longest_first(self._groups, read(self._tests / RECORDED.name))
        ranks = {path: rank for rank, path in enumerate(order)}
        items.sort(key=lambda item: ranks[path_of[item]])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        """A later test that asks for it nevertheless gets a new one."""
        try:
            return (yield)
        finally:
            group = self._group_of(item)
            if group in SHARED and nextitem is not None and self._group_of(nextitem) != group:
                end_fixture(item, group)


def end_fixture(item: Any, name: str) -> None:
    """And all that was made with it."""
    for made in item.session._fixturemanager.getfixturedefs(name, item) or ():
        made.finish(item._request)
