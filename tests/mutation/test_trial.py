"""The tool on a module of its own: the killer of each mutant, its round, and the survivors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig.patience import patient_s

pytestmark = pytest.mark.deep

ROOT = Path(__file__).resolve().parents[2]

TOY = """
def below(limit: int) -> int:
    count = 0
    while count < limit:
        count += 1
    return count

def sign(number: int) -> int:
    if number > 0:
        return 1
    return -1 if number < 0 else 0
"""

LONG_NAMES = 100

RUN = """
import pathlib, pytest
from tests.mutation.mutants import mutants_of
from tests.mutation.trial import Trials

def report(result):
    print("RESULT", result.mutant.name, "|", result.killer)

mutants = mutants_of("toy", pathlib.Path("toy.py").read_text())
known = {"toy.sign: `number > 0` -> `number >= 0`"}
trials = Trials(["toy"], mutants, "quick", known, 2, report)
pytest.main(["-q", "-s", "-p", "no:cacheprovider", "quick", "deep"], plugins=[trials])
print("FAILED", trials.failed)
"""


def results(folder: Path, quick: str, deep: str, fixtures: str = "") -> tuple[dict[str, str], str]:
    """The killers by mutant, and everything that was said."""
    (folder / "toy.py").write_text(TOY)
    (folder / "conftest.py").write_text(fixtures)
    for name, body in (("quick", quick), ("deep", deep)):
        (folder / name).mkdir()
        test = f"import toy\n\ndef test_{name}():\n    {body}\n"
        (folder / name / f"test_{name}.py").write_text(test)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = [{str(ROOT)!r}, '.']\n{RUN}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=patient_s(60),
    )
    lines = [line[7:].split(" | ") for line in done.stdout.splitlines() if line[:6] == "RESULT"]
    return {name: killer.rpartition("::")[2] for name, killer in lines}, done.stdout


def test_who_kills_what(tmp_path: Path) -> None:
    killers, said = results(
        tmp_path,
        quick="assert toy.below(3) == 3 and toy.sign(5) == 1",
        deep="assert toy.sign(-5) == -1",
    )
    assert killers["toy.below: `count < limit` -> `count <= limit`"] == "test_quick"
    assert killers["toy.below: `count += 1` -> `pass`"] == "test_quick", "it runs for ever"
    assert killers["toy.sign: `number > 0` -> `not number > 0`"] == "test_quick"
    assert killers["toy.sign: `number < 0` -> `not number < 0`"] == "test_deep"
    assert killers["toy.sign: `number < 0` -> `number <= 0`"] == "", "0 is never asked for"
    assert killers["toy.sign: `number > 0` -> `number >= 0`"] == "", "explained"
    assert "FAILED []" in said


def test_the_deep_tests_do_not_run_if_nothing_has_survived(tmp_path: Path) -> None:
    every = (
        "assert [toy.below(limit) for limit in (0, 3)] == [0, 3]",
        "assert [toy.sign(number) for number in (-5, -1, 0, 1, 5)] == [-1, -1, 0, 1, 1]",
    )
    killers, said = results(tmp_path, quick="; ".join(every), deep="print('DEEP')")
    assert {name for name, killer in killers.items() if killer != "test_quick"} == set()
    assert "DEEP" not in said


def test_nothing_is_said_of_mutants_when_a_test_fails_without_any(tmp_path: Path) -> None:
    killers, said = results(tmp_path, "assert toy.below(3) == 4", "pass")
    assert killers == {}
    assert "FAILED ['quick/test_quick.py::test_quick']" in said


def test_the_names_of_many_tests_do_not_hold_up_a_mutant(tmp_path: Path) -> None:
    """Together they are longer than the 64 KiB that a pipe holds."""
    killers, _ = results(
        tmp_path,
        quick="assert toy.below(3) == 3",
        deep="assert toy.sign(5) == 1",
        fixtures=f"""
import pytest
@pytest.fixture(params=range({LONG_NAMES}), ids=lambda at: f"{{at}}-" + 1_000 * "x", autouse=True)
def many(request):
    pass
""",
    )
    assert killers["toy.sign: `number < 0` -> `number <= 0`"] == ""
    assert killers["toy.sign: `number > 0` -> `not number > 0`"].startswith("test_deep[")
