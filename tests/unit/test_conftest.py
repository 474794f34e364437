"""The guard against compiled modules that are older than their sources."""

from __future__ import annotations

import os
from pathlib import Path

from tests.conftest import stale_modules


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
