"""The tests' own Go program, a host of franz-go's share consumers: built where Go is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from gateway.embedded.jars import build_dir

SOURCES = Path(__file__).parent / "go"
BUILD_SECONDS_MAX = 300


def build_share_host() -> Path | None:
    """Where it is; None: there is no Go, or its modules cannot be had."""
    if shutil.which("go") is None:
        return None
    built = build_dir().absolute() / "go" / "share_host"
    command = ["go", "build", "-o", str(built), "."]
    finished = subprocess.run(
        command, cwd=SOURCES, capture_output=True, timeout=BUILD_SECONDS_MAX, check=False
    )
    return built if finished.returncode == 0 else None
