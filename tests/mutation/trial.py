"""Tries mutants against the tests that run through the changed lines: those that killed another
one of the same function first, then the quickest.

Inside one pytest session the tests are collected once and run once, to learn how long they take and
the functions of the core they run through; the short ones twice, for the lines. A mutant is then
a fork of this process in which the code of one function is exchanged: nothing is imported or
collected again. The first test that fails, runs for much longer than it should or needs too much
memory has killed it.

There are two rounds. The deep tests (scenarios, properties, the simulation) are run only if a
mutant has survived the quick ones and is not explained.
"""

from __future__ import annotations

import gc
import mmap
import os
import re
import resource
import signal
import struct
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

CORES = (
    *("dispatcher/core", "keyway/commit_metadata/core", "gateway/core/routing"),
    "schema_dist/core",
)
# That import constants of the cores.
PACKAGES = ("dispatcher.", "keyway.", "gateway.core.", "schema_dist.")
MEMORY_BYTES_MAX = 2 << 30  # address space of one trial
SLOWER_MAX = 5  # times the time that a test takes
GRACE_SECONDS = 0.5
LONG_SECONDS = 0.2  # tests that take longer run through most lines of a function anyway
KILLERS_MAX = 5  # of a function that are tried first
SURVIVED = -1

Function = tuple[str, str]  # module, qualified name
Line = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Result:
    mutant: Mutant
    killer: str  # the test; "" = survived
    tests: int  # that run through it, in this round


@dataclass(slots=True)
class Covered:
    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[Line, list[str]] = field(default_factory=dict)  # the tests that run through each
    functions: dict[Function, list[str]] = field(default_factory=dict)  # the same, of long tests


class Trials:
    """A pytest plugin: `run` the mutants instead of the tests."""

    def __init__(
        self,
        modules: list[str],
        mutants: list[Mutant],
        quick: tuple[str, ...],
        known: set[str],
        jobs: int,
        report: Callable[[Result], None],
    ) -> None:
        self.modules = modules
        self.mutants = mutants
        self.quick = quick  # the folders of the tests of the first round
        self.known = known  # survivors, by name: they meet that round only
        self.jobs = jobs
        self.report = report
        self.failed: list[str] = []  # tests that fail without any mutant
        self.killers: dict[Function, list[str]] = {}  # the last one last

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Of fifty rounds of one test, five."""
        items[:] = [
            item for item in items if not re.search(r"_restart\[(\d\d+|[5-9])\]", item.nodeid)
        ]

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        quick, deep = [
            {item.nodeid: item for item in session.items if is_quick == self._is_quick(item)}
            for is_quick in (True, False)
        ]
        waiting: list[Mutant] = []
        for result in self._round(quick, self.mutants):
            if deep and not result.killer and result.mutant.name not in self.known:
                waiting.append(result.mutant)
            else:
                self.report(result)
        if waiting:
            for result in self._round(deep, waiting):
                self.report(result)
        return True

    def _is_quick(self, item: pytest.Item) -> bool:
        return item.nodeid.startswith(self.quick)

    def _round(self, items: dict[str, pytest.Item], mutants: list[Mutant]) -> Iterator[Result]:
        covered = self._cover(items)
        seconds = sum(covered.seconds.values())
        print(f"{len(mutants)} mutants, {len(items)} tests, {seconds:.0f} s", flush=True)  # noqa: T201
        if not self.failed:
            yield from self._try_all(items, covered, mutants)

    # ------------------------------------------------------------------------------------- coverage

    def _cover(self, items: dict[str, pytest.Item]) -> Covered:
        files = {_file_of(name): name for name in self.modules}
        covered = Covered()
        for nodeid, item in items.items():
            functions: set[Function] = set()
            lines: set[Line] = set()
            began = time.process_time()
            with _traced(files, functions, None):
                if not _passes(item):
                    self.failed.append(nodeid)
            covered.seconds[nodeid] = seconds = time.process_time() - began
            if functions and seconds <= LONG_SECONDS:
                with _traced(files, functions, lines):
                    _passes(item)
                for line in lines:
                    covered.lines.setdefault(line, []).append(nodeid)
            else:
                for function in functions:
                    covered.functions.setdefault(function, []).append(nodeid)
        return covered

    # --------------------------------------------------------------------------------------- trials

    def _try_all(
        self, items: dict[str, pytest.Item], covered: Covered, mutants: list[Mutant]
    ) -> Iterator[Result]:
        waiting = iter(mutants)
        running: dict[int, tuple[Mutant, list[str], Progress]] = {}  # by the fork's process id
        exhausted = False
        gc.collect()
        gc.freeze()  # A trial must not touch, and so copy, all that was there before it.
        while running or not exhausted:
            while len(running) < self.jobs and not exhausted:
                mutant = next(waiting, None)
                if mutant is None:
                    exhausted = True
                    break
                nodeids = self._tests_of(mutant, covered)
                tests = [(items[nodeid], covered.seconds[nodeid]) for nodeid in nodeids]
                progress = Progress()
                pid = os.fork()
                if pid == 0:
                    _try(mutant, tests, progress)
                running[pid] = (mutant, nodeids, progress)
            if running:
                pid, status = os.wait()
                mutant, nodeids, progress = running.pop(pid)
                killer = _killer(nodeids, progress.reached(), status)
                self._remember(mutant, killer)
                yield Result(mutant, killer, len(nodeids))

    def _tests_of(self, mutant: Mutant, covered: Covered) -> list[str]:
        function = (mutant.module, mutant.place)
        if mutant.place.isupper():  # A constant: all tests that run through its module or near it.
            tests = set(covered.seconds)
        else:
            tests = set(covered.functions.get(function, []))
            for line in mutant.lines:
                tests.update(covered.lines.get((mutant.module, line), []))
        killers = self.killers.get(function, [])
        return sorted(tests, key=lambda test: (test not in killers, covered.seconds[test], test))

    def _remember(self, mutant: Mutant, killer: str) -> None:
        if killer:
            killers = self.killers.setdefault((mutant.module, mutant.place), [])
            killers[:] = [*(other for other in killers if other != killer), killer][-KILLERS_MAX:]


class Progress:
    """How far a fork has come, in memory that it shares with its parent. A pipe would not do: the
    parent reads only after the fork has ended, and a fork waits when its pipe is full.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)

    def reach(self, test: int) -> None:
        struct.pack_into("q", self._memory, 0, test)

    def reached(self) -> int:
        """The number of the test that began last, from 1; 0 if none did; SURVIVED after all."""
        (test,) = struct.unpack_from("q", self._memory)
        self._memory.close()
        return int(test)


def _killer(nodeids: list[str], reached: int, status: int) -> str:
    if reached == SURVIVED:
        return ""
    return nodeids[reached - 1] if reached else f"nothing ran: {status}"


def _try(mutant: Mutant, tests: list[tuple[pytest.Item, float]], progress: Progress) -> None:
    """In the fork; does not return."""
    try:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        exchange(mutant)
        for number, (item, seconds) in enumerate(tests, start=1):
            progress.reach(number)
            signal.setitimer(signal.ITIMER_VIRTUAL, SLOWER_MAX * seconds + GRACE_SECONDS)
            if not _passes(item):
                os._exit(1)
        progress.reach(SURVIVED)
    finally:
        os._exit(0)


def _passes(item: pytest.Item) -> bool:
    reports = runtestprotocol(item, log=False, nextitem=None)
    return not any(report.failed for report in reports)


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
        if name.startswith(PACKAGES) and vars(other).get(mutant.place) == old:
            setattr(other, mutant.place, new)


# ----------------------------------------------------------------------------------- tracing


class _traced:
    def __init__(
        self, files: dict[str, str], functions: set[Function], lines: set[Line] | None
    ) -> None:
        self.files = files
        self.functions = functions
        self.lines = lines

    def __enter__(self) -> None:
        files, functions, lines = self.files, self.functions, self.lines

        def call(frame: FrameType, _: str, __: object) -> Any:
            code = frame.f_code
            module = files.get(code.co_filename)
            if module is None:
                return None
            functions.add((module, code.co_qualname))
            if lines is None:
                return None

            def line(frame: FrameType, _: str, __: object) -> Any:
                lines.add((module, frame.f_lineno))
                return line

            return line

        sys.settrace(call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)


def _file_of(module: str) -> str:
    __import__(module)
    file = sys.modules[module].__file__
    assert file is not None
    assert file.endswith(".py"), f"{module} is compiled: mutants need the interpreted core"
    return str(Path(file))


def every_module(root: Path) -> Iterator[str]:
    """Of the cores that bugs are planted in."""
    for core in CORES:
        for path in sorted((root / core).rglob("*.py")):
            if path.stem not in ("__init__", "model", "invariants"):
                yield ".".join(path.relative_to(root).with_suffix("").parts)
