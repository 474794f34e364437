"""`python -m tests.mutation [MODULE ...]`: plants bugs in the cores that trial.py lists,
one at a time, and lists those that no test notices.

The tests are those of the core: unit, and for their survivors scenarios, properties, and some
seeds of the simulation. All runs in a copy of the sources without compiled modules. A survivor that
is not explained in `survivors.txt` fails the run, and so does a line there that is no survivor (any
more): one that is explained meets the unit tests only.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.mutation.mutants import Mutant, mutants_of
from tests.mutation.trial import Result, Trials, every_module

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
EXPLAINED = Path(__file__).with_name("survivors.txt")


@dataclass(frozen=True, slots=True)
class Tests:
    """`quick`: the unit tests. `deep`: those that only their survivors meet."""

    quick: tuple[str, ...]
    deep: tuple[str, ...]


SCHEMAS = "schema_dist"
OF_SCHEMAS = Tests(
    ("tests/unit/schema_dist/core",),
    (
        *(f"tests/property/test_schema_{name}.py" for name in ("absences", "plans")),
        *("tests/property/test_schemas_shown.py", "tests/sim/test_schema_sync.py"),
    ),
)
OF_DISPATCH = Tests(
    (
        "tests/unit/dispatcher/core",
        "tests/unit/keyway/commit_metadata/core",
        "tests/unit/gateway/core/routing",
    ),
    (
        "tests/sim/scenarios",
        "--ignore=tests/sim/scenarios/test_steps.py",
        *(f"tests/property/test_{name}.py" for name in ("window", "ring", "commit", "snapshot")),
        *(f"tests/property/test_{name}.py" for name in ("ownership", "live_routing")),
        "tests/sim/nodes/test_seeds.py::test_seeds",
        *(f"tests/sim/test_seeds.py::test_seeds[{first}]" for first in range(0, 150, 25)),
    ),
)


def explained() -> set[str]:
    """The names in survivors.txt: `name  # why` on each line, comments and empty lines between."""
    lines = EXPLAINED.read_text(encoding="utf-8").splitlines()
    return {line.split("  # ")[0].strip() for line in lines if line and not line.startswith("#")}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("modules", nargs="*", help="of the cores: state, retry, schema_dist …")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--sample", type=int, metavar="N", help="so many mutants only")
    parser.add_argument("--seed", type=int, help="of the sample (default: another each day)")
    parser.add_argument("--own", action="store_true", help="each module's own unit tests only")
    parser.add_argument("--quick", action="store_true", help="the unit tests only")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.inside:
        BUILD.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILD, prefix="mutation-") as folder:
            _copy(Path(folder))
            return subprocess.run(
                [sys.executable, "-m", "tests.mutation", "--inside", *sys.argv[1:]],
                cwd=folder,
                env={**os.environ, "PYTHONHASHSEED": "0", "HYPOTHESIS_PROFILE": "unshrunk"},
                check=False,
            ).returncode
    modules = list(every_module(ROOT))
    known = sorted({name for module in modules for name in _names_of(module)})
    for name in arguments.modules:
        if name not in known:
            parser.error(f"no module {name}: there are {', '.join(known)}")
    wanted = [module for module in modules if not _names_of(module).isdisjoint(arguments.modules)]
    suites = _suites(wanted or modules)
    quick = tuple(test for suite in suites for test in suite.quick)
    deep = tuple(test for suite in suites for test in suite.deep)
    tests = quick if arguments.quick else quick + deep
    if arguments.own:
        tests = tuple(map(_unit_test_of, wanted or modules))
    seed = datetime.now(UTC).toordinal() if arguments.seed is None else arguments.seed
    every = _all_mutants(wanted or modules)
    places = tuple(f"{module}." for module in wanted or modules)
    gone = {name for name in explained() if name.startswith(places)} - {
        mutant.name for mutant in every
    }
    mutants = _sampled(every, arguments.sample, seed)
    return _run(modules, mutants, gone, quick, tests, arguments.jobs)


def _names_of(module: str) -> set[str]:
    """The names by which a module can be asked for: its own, and its package's."""
    return {module.partition(".")[0], module.rpartition(".")[2]}


def _suites(modules: Iterable[str]) -> list[Tests]:
    """The tests of these modules: those of schemas run through no core of dispatch."""
    of_schemas = {module.startswith(f"{SCHEMAS}.") for module in modules}
    return [OF_SCHEMAS if schemas else OF_DISPATCH for schemas in sorted(of_schemas)]


def _unit_test_of(module: str) -> str:
    folder, _, name = module.replace(".", "/").rpartition("/")
    return f"tests/unit/{folder}/test_{name}.py"


def _copy(folder: Path) -> None:
    without = shutil.ignore_patterns("*.so", "__pycache__")
    for package in ("dispatcher", "gateway", "keyway", SCHEMAS, "tests"):
        shutil.copytree(ROOT / package, folder / package, ignore=without)
    shutil.copy(ROOT / "pyproject.toml", folder)


def _all_mutants(modules: list[str]) -> list[Mutant]:
    mutants: list[Mutant] = []
    for module in modules:
        source = (ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
        mutants += mutants_of(module, source)
    return mutants


def _sampled(mutants: list[Mutant], count: int | None, seed: int) -> list[Mutant]:
    """In their order: those of one function are tried by tests that killed another of it."""
    if count is None or count >= len(mutants):
        return mutants
    print(f"{count} of {len(mutants)} mutants: --sample {count} --seed {seed}", flush=True)  # noqa: T201
    chosen = sorted(random.Random(seed).sample(range(len(mutants)), count))
    return [mutants[at] for at in chosen]


def _run(
    modules: list[str],
    mutants: list[Mutant],
    gone: set[str],
    quick: tuple[str, ...],
    tests: tuple[str, ...],
    jobs: int,
) -> int:
    """`gone`: explained, and no mutant any more."""
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

    trials = Trials(modules, mutants, quick, known, jobs, report)
    quietly = ("-q", "-s", "--tb=native", "-p", "no:cacheprovider", "-o", "timeout=0")
    pytest.main([*quietly, *tests], plugins=[trials])
    if trials.failed or not tried:
        print(f"without any mutant these fail: {trials.failed}")  # noqa: T201
        return 2
    stale = gone | (known & {mutant.name for mutant in mutants}) - survivors
    for name in sorted(stale):
        print(f"NO SURVIVOR (any more): {name}")  # noqa: T201
    unexplained = len(survivors - known)
    took = f"{tried} mutants in {time.monotonic() - began:.0f} s"
    print(f"{took}: {len(survivors)} survived, {unexplained} of them unexplained")  # noqa: T201
    return int(bool(unexplained or stale))


if __name__ == "__main__":
    sys.exit(main())
