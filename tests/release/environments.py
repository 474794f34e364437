"""Clean environments, of each Python that this machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
COMMAND_S_MAX = 1_200.0  # installing from an index, on a machine that others use, too
NOTHING: Mapping[str, str] = MappingProxyType({})
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"


def found_pythons(versions: Iterable[str]) -> dict[str, Path]:
    """For each of these versions that is here: its interpreter, on PATH or of pyenv."""
    found = {}
    for version in versions:
        of_pyenv = sorted(PYENV.glob(f"{version}.*/bin/python{version}"))
        on_path = shutil.which(f"python{version}")
        for candidate in [*map(str, of_pyenv), *([on_path] if on_path else [])]:
            # A shim of pyenv stands for a version that may not be there.
            said = subprocess.run(
                [candidate, "-c", "import sys, venv, ensurepip; print(sys.executable)"],
                capture_output=True,
                text=True,
                timeout=60,
            )
            if said.returncode == 0:
                found[version] = Path(said.stdout.strip())
                break
    return found


def ran(
    command: Sequence[str],
    *,
    seconds_max: float = COMMAND_S_MAX,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Raises AssertionError with the last words of a command that fails, and
    subprocess.TimeoutExpired.
    """
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=seconds_max, cwd=cwd, env=env
    )
    words = (ended.stdout + ended.stderr).strip()[-2_000:]
    assert ended.returncode == 0, f"{' '.join(command)}: {words}"
    return ended


class Environment:
    """A virtual environment with pip alone; it sees nothing of this one."""

    def __init__(self, python: Path, directory: Path) -> None:
        self.commands = directory / "bin"
        ran((str(python), "-m", "venv", str(directory)))

    def run(
        self,
        command: str,
        *arguments: str,
        seconds_max: float = COMMAND_S_MAX,
        more: Mapping[str, str] = NOTHING,
    ) -> subprocess.CompletedProcess[str]:
        """Raises as `ran`. `more`: environment variables. Its own folder is the working one: the
        checkout is on no path.
        """
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        words = (str(self.commands / command), *arguments)
        return ran(words, seconds_max=seconds_max, cwd=self.commands, env={**env, **more})

    def install(self, *packages: str, more: Mapping[str, str] = NOTHING) -> None:
        self.run("python", "-m", "pip", "install", "--quiet", *packages, more=more)
