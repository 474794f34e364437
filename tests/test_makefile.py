"""What the targets of the Makefile fetch, on a machine where nothing has been fetched yet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def commands(target: str, stamps: Path, *words: str) -> str:
    """What would be run. (To look for Python and for the modules to compile takes a second.)"""
    words = (f"PYTHON={sys.executable}", "HOT=", *words)
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    made = subprocess.run(
        ["make", "-n", target, f"STAMPS={stamps}", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=env,
    )
    assert made.returncode == 0, made.stderr
    return made.stdout


@pytest.mark.parametrize("target", ["demo", "demo-clusters", "demo-failover"])
def test_a_demo_fetches_nothing_of_the_tests(target: str, tmp_path: Path) -> None:
    shown = commands(target, tmp_path, "COMPILED=")
    for needed in ("--no-deps -e .", "gateway.embedded.jars"):
        assert needed in shown
    assert ("spark.session" in shown) == (target != "demo"), "the first demo's Spark fetches itself"
    for needless in ("'.[dev]'", "chromium", "tests.", "class_archive", "build_ext"):
        assert needless not in shown


def test_a_demo_runs_no_module_that_was_compiled_before_an_edit(tmp_path: Path) -> None:
    assert "build_ext" in commands("demo", tmp_path, "COMPILED=one.so")


def test_the_tests_have_all_of_it(tmp_path: Path) -> None:
    shown = commands("test", tmp_path)
    for needed in ("'.[dev]'", "chromium", "tests.rig.prometheus", "class_archive", "build_ext"):
        assert needed in shown
