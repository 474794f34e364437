"""The guard against compiled modules that are older than their sources; the ports of
workers, and the file they begin with.
"""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.conftest import ports_of_worker, stale_modules
from tests.rig.schedule import (
    SHARED,
    TESTS,
    Recorder,
    expected_s,
    group_of,
    groups_of,
    longest_first,
)


def test_compiled_module_older_than_its_source(tmp_path: Path) -> None:
    core = tmp_path / "dispatcher" / "core"
    core.mkdir(parents=True)
    source, compiled = core / "ring.py", core / "ring.cpython-311-x86_64-linux-gnu.so"
    source.touch()
    compiled.touch()
    os.utime(source, (100, 100))
    os.utime(compiled, (200, 200))
    assert stale_modules(tmp_path) == []
    os.utime(source, (300, 300))
    assert stale_modules(tmp_path) == ["dispatcher/core/ring.py"]


def test_workers_have_ports_of_their_own() -> None:
    ranges = [ports_of_worker(number, 3) for number in range(3)]
    assert all(end == first for (_, end), (first, _) in pairwise(ranges))
    assert (ranges[0][0], ranges[-1][1]) == (21_000, 31_998)


RECORDED = {
    "integration/demo.py": 60.0,
    "integration/short.py": 2.0,
    "unit/quick.py": 0.1,
    "unit/slow.py": 5.0,
}


def test_the_longest_file_comes_first_and_a_new_one_is_like_its_neighbours() -> None:
    assert expected_s("integration/new.py", RECORDED) == 31.0
    assert expected_s("strange/new.py", RECORDED) == 0.0
    new = ["integration/new.py", "strange/new.py"]
    alone = {path: path for path in [*reversed(RECORDED), *new]}
    assert longest_first(alone, RECORDED) == [
        "integration/demo.py",
        "integration/new.py",
        "unit/slow.py",
        "integration/short.py",
        "strange/new.py",
        "unit/quick.py",
    ]


def test_files_that_need_the_same_servers_stay_together() -> None:
    servers = dict.fromkeys(("integration/new.py", "integration/short.py"), "servers")
    groups = {**servers, "integration/demo.py": "integration/demo.py"}
    assert longest_first(groups, {**RECORDED, "integration/new.py": 59.0}) == [
        "integration/new.py",
        "integration/short.py",
        "integration/demo.py",
    ]


def test_the_use_of_a_costly_server_is_seen() -> None:
    assert group_of("spark/test_new.py", f"def test_new({SHARED['spark']}) -> None:") == "spark"
    assert group_of("unit/test_new.py", "def test_new() -> None:") == "unit/test_new.py"
    groups = groups_of(path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py"))
    assert set(SHARED) <= set(groups.values()), "each is used somewhere"


def test_recorded_is_what_ran_and_what_is_left_of_before(tmp_path: Path) -> None:
    file = tmp_path / "durations.json"
    file.write_text(json.dumps({"a.py": 1.0, "b.py": 2.0, "gone.py": 3.0}))
    for name in ("a.py", "b.py", "c.py"):
        (tmp_path / name).touch()
    recorder = Recorder(file)
    for nodeid in ("tests/a.py::test_one", "tests/a.py::test_two", "tests/c.py::test_one"):
        recorder.pytest_runtest_logreport(
            cast(pytest.TestReport, SimpleNamespace(nodeid=nodeid, duration=1.26))
        )
    recorder.pytest_sessionfinish()
    assert json.loads(file.read_text()) == {"a.py": 2.5, "b.py": 2.0, "c.py": 1.3}
