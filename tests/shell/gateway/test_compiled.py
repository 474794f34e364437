"""The compiled modules, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gateway import compiled


def test_installed_modules_load_outside_the_checkout(tmp_path: Path) -> None:
    # The compiled modules share a library, which must be found from wherever `keyway` is run.
    imports = "; ".join(f"import {name}" for name in compiled.compiled_modules())
    run = subprocess.run(
        [sys.executable, "-P", "-c", imports], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
