"""`make campaign NAME=release`: what would be published, built and tried as a stranger would.

A wheel with compiled modules for each CPython of PYTHONS that this machine has, and the sdist,
which installs without a compiler. Each goes into a clean environment of its own, says what it is,
and serves a real Kafka: a record goes in and comes out through it. Then a CycloneDX SBOM and the
licences of what a plain gateway and the distribution services bring. All of it is left in
build/release.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from rich import print as show

from gateway.embedded.kafka import KafkaCluster
from tests.release.environments import PYTHONS, Environment, found_pythons, ran
from tests.release.licences import licences, table
from tests.release.smoke import serves
from tests.rig.gateway_process import REPOSITORY

BUILD = REPOSITORY / "build" / "release"
COMPILE_S_MAX = 3_000.0  # 90 s of CPU on a machine that others use, too
NO_COMPILER = {"CC": "/nonexistent/cc"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="release", description=__doc__)
    parser.add_argument("--pythons", default=",".join(PYTHONS), help="for which wheels are built")
    asked = parser.parse_args().pythons.split(",")
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    found = found_pythons(asked)
    missing = [version for version in asked if version not in found]
    show("wheels for", ", ".join(found) or "none", f"(not here: {', '.join(missing) or 'none'})")
    source = _source()
    tools = Environment(Path(sys.executable), BUILD / "tools")
    tools.install(*project["optional-dependencies"]["release"])
    with KafkaCluster(1, directory=BUILD / "kafka") as kafka:
        tools.run("python", "-m", "build", "--sdist", "--outdir", str(BUILD / "dist"), str(source))
        (sdist,) = (BUILD / "dist").glob("*.tar.gz")
        plain = _tried(sdist, Path(sys.executable), kafka, project["version"], "interpreted")
        for name, python in found.items():
            wheel = _wheel(source, name, python)
            _tried(wheel, python, kafka, project["version"], "compiled")
    _bill(tools, plain, "gateway")
    distribution = Environment(Path(sys.executable), BUILD / "environment-distribution")
    distribution.install(f"keyway-gateway[distribution] @ {sdist.as_uri()}", more=NO_COMPILER)
    _bill(tools, distribution, "distribution")
    return 0


def _source() -> Path:
    """What git knows, without what was compiled in place."""
    source = BUILD / "source"
    listed = ran(("git", "ls-files", "-z"), cwd=REPOSITORY).stdout.split("\0")
    for name in filter(None, listed):
        if (REPOSITORY / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, source / name)
    return source


def _wheel(source: Path, name: str, python: Path) -> Path:
    builder = Environment(python, BUILD / f"builder-{name}")
    into = BUILD / "dist" / name
    builder.run(
        *("python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(into)),
        str(source),
        seconds_max=COMPILE_S_MAX,
    )
    (wheel,) = into.glob("*.whl")
    return wheel


def _tried(
    package: Path, python: Path, kafka: KafkaCluster, version: str, form: str
) -> Environment:
    """Installed in an environment that has nothing else. Raises AssertionError."""
    where = BUILD / f"environment-{form}-{python.name}"
    environment = Environment(python, where)
    environment.install(str(package), more=NO_COMPILER if form == "interpreted" else {})
    said = environment.run("keyway", "--version").stdout.strip()
    assert said.startswith(f"keyway {version}, {form}"), f"{package.name}: {said}"
    serves(environment.commands / "keyway", kafka.bootstrap_servers, where / "node")
    size = package.stat().st_size / 2**20
    show(f"✓ {package.name}, {size:.1f} MiB: {said}; serves")
    return environment


def _bill(tools: Environment, environment: Environment, name: str) -> None:
    """Writes the SBOM and the licences of an environment. Raises AssertionError for a package
    whose licence is unknown.
    """
    bill = BUILD / f"{name}.cdx.json"
    tools.run(
        *("cyclonedx-py", "environment", str(environment.commands / "python")),
        *("--pyproject", str(REPOSITORY / "pyproject.toml"), "--output-file", str(bill)),
    )
    found = licences(json.loads(bill.read_text(encoding="utf-8")))
    (BUILD / f"{name}-licences.md").write_text(table(found), encoding="utf-8")
    show(f"✓ {bill.name}: {len(found)} packages; {name}-licences.md")
    unknown = [row.package for row in found if not row.licence]
    assert not unknown, f"no licence is known of: {', '.join(unknown)}"


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    try:
        status = main()
    except (AssertionError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"keyway: {error}\n")
        status = 1
    sys.exit(status)
