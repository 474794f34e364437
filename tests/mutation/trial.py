"""Tries mutants against the tests that run through the function they change, the quickest first.

Inside one pytest session all tests are collected once and run once, to learn how long they take and
which functions of the core the short ones run through. A mutant is then a fork of this process in
which the code of one function is exchanged: nothing is imported or collected again. The first test
that fails, runs for ten times as long as it should or needs too much memory has killed it.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests.mutation.mutants import Mutant

MEMORY_BYTES_MAX = 2 << 30  # address space of one trial
SLOWER_MAX = 10  # times the time that a test takes
GRACE_SECONDS = 1.0
TRACED_SECONDS_MAX = 0.2  # tests that take longer run through nearly everything anyway

Function = tuple[str, str]  # module, qualified name


@dataclass(frozen=True, slots=True)
class Result:
    mutant: Mutant
    killer: str  # the test; "" = survived
    tests: int  # that run through it


@dataclass(slots=True)
class Covered:
    seconds: dict[str, float] = field(default_factory=dict)
    functions: dict[Function, list[str]] = field(default_factory=dict)  # the tests of each
    everywhere: list[str] = field(default_factory=list)  # long ones: properties, simulation


class Trials:
    """A pytest plugin: `run` the mutants instead of the tests."""

    def __init__(
        self, modules: list[str], mutants: list[Mutant], jobs: int, report: Callable[[Result], None]
    ) -> None:
        self.modules = modules
        self.mutants = mutants
        self.jobs = jobs
        self.report = report
        self.failed: list[str] = []  # tests that fail without any mutant

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Of fifty rounds of one test, five."""
        items[:] = [
            item for item in items if not re.search(r"_restart\[(\d\d+|[5-9])\]", item.nodeid)
        ]

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        covered = self._cover(items)
        print(f"{len(items)} tests, {sum(covered.seconds.values()):.0f} s", flush=True)  # noqa: T201
        if not self.failed:
            self._try_all(items, covered)
        return True

    # ------------------------------------------------------------------------------------- coverage

    def _cover(self, items: dict[str, pytest.Item]) -> Covered:
        files = {_file_of(name): name for name in self.modules}
        covered = Covered()
        for nodeid, item in items.items():
            seen: set[tuple[str, str]] = set()
            began = time.process_time()
            if not _passes(item):
                self.failed.append(nodeid)
            covered.seconds[nodeid] = seconds = time.process_time() - began
            if seconds > TRACED_SECONDS_MAX:
                covered.everywhere.append(nodeid)
                continue
            with _traced(files, seen):
                _passes(item)
            for file, place in seen:
                covered.functions.setdefault((files[file], place), []).append(nodeid)
        for tests in [covered.everywhere, *covered.functions.values()]:
            tests.sort(key=lambda nodeid: covered.seconds[nodeid])
        return covered

    # --------------------------------------------------------------------------------------- trials

    def _try_all(self, items: dict[str, pytest.Item], covered: Covered) -> None:
        waiting = iter(self.mutants)
        running: dict[int, tuple[Mutant, int, int]] = {}  # pid -> mutant, pipe, tests
        exhausted = False
        while running or not exhausted:
            while len(running) < self.jobs and not exhausted:
                mutant = next(waiting, None)
                if mutant is None:
                    exhausted = True
                    break
                nodeids = self._tests_of(mutant, covered)
                tests = [(items[nodeid], covered.seconds[nodeid]) for nodeid in nodeids]
                reading, writing = os.pipe()
                pid = os.fork()
                if pid == 0:
                    os.close(reading)
                    _try(mutant, tests, writing)
                os.close(writing)
                running[pid] = (mutant, reading, len(tests))
            if running:
                pid, status = os.wait()
                mutant, reading, count = running.pop(pid)
                self.report(Result(mutant, _killer(reading, status), count))

    def _tests_of(self, mutant: Mutant, covered: Covered) -> list[str]:
        if mutant.place.isupper():  # A constant: whatever runs through its module, or is near it.
            return sorted(covered.seconds, key=lambda nodeid: covered.seconds[nodeid])
        return covered.functions.get((mutant.module, mutant.place), []) + covered.everywhere


def _killer(reading: int, status: int) -> str:
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    started, _, verdict = said.rpartition("\n")
    if verdict == "survived":
        return ""
    # It names each test before it begins: the last one was running when it ended.
    last = (started or verdict).rpartition("\n")[2] or said
    return f"{last} (ended by signal {os.WTERMSIG(status)})" if os.WIFSIGNALED(status) else last


def _try(mutant: Mutant, tests: list[tuple[pytest.Item, float]], pipe: int) -> None:
    """In the fork; does not return."""
    try:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        exchange(mutant)
        for item, seconds in tests:
            os.write(pipe, f"{item.nodeid}\n".encode())
            signal.setitimer(signal.ITIMER_VIRTUAL, SLOWER_MAX * seconds + GRACE_SECONDS)
            if not _passes(item):
                os._exit(1)
        os.write(pipe, b"survived")
    finally:
        os._exit(0)


def _passes(item: pytest.Item) -> bool:
    reports = runtestprotocol(item, log=False, nextitem=None)
    return all(report.passed for report in reports)


# ----------------------------------------------------------------------------------- exchanging


def exchange(mutant: Mutant) -> None:
    module = sys.modules[mutant.module]
    code = compile(mutant.tree, module.__file__ or "", "exec")
    if mutant.place.isupper():
        _exchange_constant(module, mutant)
        return
    holder: Any = module
    inside = code
    *owners, name = mutant.place.split(".")
    for owner in owners:
        holder = getattr(holder, owner)
        inside = _inner(inside, owner)
    value = holder.__dict__[name]
    if isinstance(value, property):
        value = value.fget
    function = getattr(value, "__wrapped__", value)
    assert isinstance(function, FunctionType), mutant.name
    function.__code__ = _inner(inside, name)


def _inner(code: CodeType, name: str) -> CodeType:
    return next(
        const for const in code.co_consts if isinstance(const, CodeType) and const.co_name == name
    )


def _exchange_constant(module: ModuleType, mutant: Mutant) -> None:
    """In every module of the core that has it by this name."""
    fresh = dict(vars(module))
    exec(compile(mutant.tree, module.__file__ or "", "exec"), fresh)
    old, new = vars(module)[mutant.place], fresh[mutant.place]
    for name, other in sys.modules.items():
        if name.startswith("dispatcher.") and vars(other).get(mutant.place) == old:
            setattr(other, mutant.place, new)


# ----------------------------------------------------------------------------------- tracing


class _traced:
    def __init__(self, files: dict[str, str], seen: set[tuple[str, str]]) -> None:
        self.files = files
        self.seen = seen

    def __enter__(self) -> None:
        files, seen = self.files, self.seen

        def call(frame: FrameType, _: str, __: object) -> None:
            code = frame.f_code
            if code.co_filename in files:
                seen.add((code.co_filename, code.co_qualname))

        sys.settrace(call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)


def _file_of(module: str) -> str:
    __import__(module)
    file = sys.modules[module].__file__
    assert file is not None
    assert file.endswith(".py"), f"{module} is compiled: mutants need the interpreted core"
    return str(Path(file))


def every_module(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.py")):
        if path.stem not in ("__init__", "model", "invariants"):
            yield f"dispatcher.core.{path.stem}"
