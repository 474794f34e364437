"""`python -m tests.mutation [MODULE ...]`: plants bugs in the dispatcher's cores (trial.py lists
them), one at a time, and lists those that no test notices.

The tests are those of the core: unit, and for their survivors scenarios, properties, and some
seeds of the simulation. All runs in a copy of the sources without compiled modules. A survivor that
is not explained in `survivors.txt` fails the run, and so does a line there that is no survivor (any
more): one that is explained meets the unit tests only.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.trial import Result, Trials, every_module

ROOT = Path(__file__).resolve().parents[2]
COPY = ROOT / "build" / "mutation"
EXPLAINED = Path(__file__).with_name("survivors.txt")
QUICK = ("tests/unit/dispatcher/core", "tests/unit/keyway/commit_metadata/core")
DEEP = (
    "tests/sim/scenarios",
    "--ignore=tests/sim/scenarios/test_steps.py",
    *(f"tests/property/test_{name}.py" for name in ("window", "ring", "commit", "snapshot")),
    *(f"tests/sim/test_seeds.py::test_seeds[{first}]" for first in range(0, 150, 25)),
)


def explained() -> set[str]:
    """The names in survivors.txt: `name  # why` on each line, comments and empty lines between."""
    lines = EXPLAINED.read_text(encoding="utf-8").splitlines()
    return {line.split("  # ")[0].strip() for line in lines if line and not line.startswith("#")}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("modules", nargs="*", help="of the cores: state, retry …")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--quick", action="store_true", help="the unit tests only")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.inside:
        _copy()
        return subprocess.run(
            [sys.executable, "-m", "tests.mutation", "--inside", *sys.argv[1:]],
            cwd=COPY,
            env={**os.environ, "PYTHONHASHSEED": "0", "HYPOTHESIS_PROFILE": "unshrunk"},
            check=False,
        ).returncode
    modules = list(every_module(ROOT))
    known = sorted({it.rpartition(".")[2] for it in modules})
    for name in arguments.modules:
        if name not in known:
            parser.error(f"no module {name}: there are {', '.join(known)}")
    wanted = [it for it in modules if it.rpartition(".")[2] in arguments.modules]
    tests = QUICK if arguments.quick else (*QUICK, *DEEP)
    return _run(modules, wanted or modules, tests, arguments.jobs)


def _copy() -> None:
    shutil.rmtree(COPY, ignore_errors=True)
    COPY.mkdir(parents=True)
    without = shutil.ignore_patterns("*.so", "__pycache__")
    for package in ("dispatcher", "gateway", "keyway", "tests"):
        shutil.copytree(ROOT / package, COPY / package, ignore=without)
    shutil.copy(ROOT / "pyproject.toml", COPY)


def _run(modules: list[str], wanted: list[str], tests: tuple[str, ...], jobs: int) -> int:
    mutants: list[Mutant] = []
    for module in wanted:
        source = (ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
        mutants += mutants_of(module, source)
    known = explained()
    survivors: set[str] = set()
    tried = 0
    began = time.monotonic()

    def report(result: Result) -> None:
        nonlocal tried
        tried += 1
        if not result.killer:
            name = result.mutant.name
            survivors.add(name)
            where = f"{result.tests} tests, line {result.mutant.lines.start}"
            print(f"{'known' if name in known else 'SURVIVED'} {name}  # {where}", flush=True)  # noqa: T201
        if tried % 100 == 0:
            print(f"{tried} of {len(mutants)}, {time.monotonic() - began:.0f} s", flush=True)  # noqa: T201

    trials = Trials(modules, mutants, QUICK, known, jobs, report)
    quietly = ("-q", "-s", "--tb=native", "-p", "no:cacheprovider", "-o", "timeout=0")
    pytest.main([*quietly, *tests], plugins=[trials])
    if trials.failed or not tried:
        print(f"without any mutant these fail: {trials.failed}")  # noqa: T201
        return 2
    wanted_places = tuple(f"{module}." for module in wanted)
    stale = {name for name in known if name.startswith(wanted_places)} - survivors
    for name in sorted(stale):
        print(f"NO SURVIVOR (any more): {name}")  # noqa: T201
    unexplained = len(survivors - known)
    took = f"{tried} mutants in {time.monotonic() - began:.0f} s"
    print(f"{took}: {len(survivors)} survived, {unexplained} of them unexplained")  # noqa: T201
    return int(bool(unexplained or stale))


if __name__ == "__main__":
    sys.exit(main())
