"""The guard against compiled modules that are older than their sources; what workers share."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

from tests.conftest import LONGEST_FIRST, TESTS, place_in_line, ports_of_worker, stale_modules


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


def test_long_files_come_first() -> None:
    assert [name for name in LONGEST_FIRST if not (TESTS / name).is_file()] == []
    line = [
        *LONGEST_FIRST,
        "integration/upstream/test_upstream_share_off.py",
        "unit/test_conftest.py",
    ]
    mixed = line[1::2] + line[::2]
    assert sorted(mixed, key=place_in_line) == line
