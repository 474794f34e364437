"""Keyway's wheel in an environment that has nothing beside it but what its metadata asks for.

The distributions are links into this environment: nothing is fetched, and a second has them all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from keyway.terminal.extras import DISTRIBUTION_NAME
from tests.rig.gateway_process import REPOSITORY

LEFT_OUT = ("__pycache__", "keyway_gateway")  # top-level entries that are not linked


def build_wheel(directory: Path) -> Path:
    """From what .dockerignore lets into the image's build, and interpreted: a compiler takes a
    minute.
    """
    source = directory / "source"
    source.mkdir(parents=True)
    listed = (REPOSITORY / ".dockerignore").read_text().split()
    for name in [line.removeprefix("!") for line in listed if line.startswith("!")]:
        of = REPOSITORY / name
        if of.is_dir():
            shutil.copytree(of, source / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        else:
            shutil.copy(of, source)
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(directory), str(source))
    (wheel,) = directory.glob("*.whl")
    return wheel


def make_environment(directory: Path, wheel: Path, *extras: str) -> Path:
    """The folder of its commands; it has the wheel, what it needs, and what `extras` add."""
    venv.create(directory, with_pip=False)
    commands = directory / "bin"
    packages = next(directory.glob("lib/python*/site-packages"))
    for name in needed(wheel, *extras):
        for entry in _entries(metadata.distribution(name)):
            link = packages / entry.name
            if not link.exists():
                link.symlink_to(entry)
    _pip("--python", str(commands / "python"), "install", "--no-deps", "--no-index", str(wheel))
    return commands


def needed(wheel: Path, *extras: str) -> list[str]:
    """The distributions that a pip would install with the wheel, sorted."""
    own = metadata.PathDistribution(_metadata_of(wheel))
    found: set[tuple[str, tuple[str, ...]]] = set()
    rest = [(line, extras) for line in own.requires or ()]
    while rest:
        line, asked = rest.pop()
        requirement = Requirement(line)
        marker = requirement.marker
        if marker and not any(marker.evaluate({"extra": extra}) for extra in asked or ("",)):
            continue
        name = canonicalize_name(requirement.name)
        inner = tuple(sorted(requirement.extras))
        if name == DISTRIBUTION_NAME:
            rest += [(required, inner) for required in own.requires or ()]
            continue
        if (name, inner) not in found:
            found.add((name, inner))
            rest += [(required, inner) for required in metadata.distribution(name).requires or ()]
    return sorted({name for name, _ in found})


def _metadata_of(wheel: Path) -> Path:
    unpacked = wheel.parent / "unpacked"
    if not unpacked.exists():
        shutil.unpack_archive(wheel, unpacked, "zip")
    (found,) = unpacked.glob("*.dist-info")
    return found


def _entries(distribution: metadata.Distribution) -> list[Path]:
    """Its files and folders at the top of site-packages."""
    files = distribution.files or ()
    tops = {file.parts[0] for file in files if file.parts[0] not in ("..", *LEFT_OUT)}
    return [Path(str(distribution.locate_file(top))) for top in sorted(tops)]


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    env = {**os.environ, "KEYWAY_COMPILE": "0"}
    ended = subprocess.run(command, capture_output=True, text=True, env=env)
    assert ended.returncode == 0, ended.stdout + ended.stderr
