"""A worker imports the test modules first, and ends the servers of a group of test files with the
group (tests/rig/schedule.py).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.rig.schedule import TESTS, modules_of

IN_ORDER = """
import pytest
from tests.rig.schedule import Groups

def pytest_configure(config):
    config.pluginmanager.register(Groups(config.rootpath / "tests"))

@pytest.fixture(scope="session")
def plain_kafka():
    print("began")
    yield "plain"
    print("ended")

@pytest.fixture(scope="session")
def front(plain_kafka):
    yield plain_kafka
    print("front ended")
"""
OF_THE_GROUP = """
class KafkaCluster: pass
def test_{0}(plain_kafka: KafkaCluster, front) -> None: print("test {0}")
"""


def test_a_server_ends_with_the_last_file_of_its_group(tmp_path: Path) -> None:
    files = {
        "conftest.py": IN_ORDER,
        "test_a.py": OF_THE_GROUP.format("a"),
        "test_b.py": "def test_b() -> None: print('test b')",
        "test_c.py": OF_THE_GROUP.format("c"),
        "test_d.py": "def test_d(plain_kafka) -> None: print('test d')",
    }
    (tmp_path / "tests").mkdir()
    for name, text in files.items():
        (tmp_path / "tests" / name).write_text(text)
    (tmp_path / "tests" / "durations.json").write_text('{"test_a.py": 3, "test_b.py": 1}')
    options = ["-s", "-q", "-p", "no:schemathesis", "-p", "no:cacheprovider"]
    said = subprocess.run(
        [sys.executable, "-m", "pytest", *options, f"--rootdir={tmp_path}", "tests"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    words = [line.strip(". ") for line in said.splitlines() if re.search("began|test |ended", line)]
    assert words == [
        *("began", "test a", "test c", "front ended", "ended"),
        *("test b", "began", "test d", "ended"),
    ]


def test_the_test_modules_of_the_arguments_are_those_of_packages(tmp_path: Path) -> None:
    for path in ("tests/__init__.py", "tests/unit/__init__.py"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "tests/plugins").mkdir()
    names = ("test_b.py", "test_a.py", "unit/test_c.py", "unit/rig.py", "plugins/test_d.py")
    for name in names:
        (tmp_path / "tests" / name).touch()

    def named(*arguments: str) -> list[str]:
        tests = tmp_path / "tests"
        found = modules_of(arguments, tmp_path, tests)
        return [str(file.relative_to(tests)) for file in found]

    assert named("tests") == ["test_a.py", "test_b.py", "unit/test_c.py"]
    assert named("tests/unit", "tests/test_b.py::test_x") == ["unit/test_c.py", "test_b.py"]
    assert named("elsewhere") == []
