"""`make campaign NAME=containers`: Dockerfile and docker-compose.yml, with an engine that needs no
daemon and no registry: podman with runc, as root.

The images are built; docker-compose.yml comes up by podman-compose on the host's network, in a
network namespace of its own; 336,776 flights are loaded and read by a stock share consumer while
the gateway is killed; Spark counts them. Nothing may run as root, and the gateway's image has a
bound. All that runs is ended; images stay in build/containers until `make clean`.

--interpreted compiles nothing; --without-spark leaves out the image with Java and Spark, and loads
the flights from here.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from rich import print as show

from tests.containers.bases import bases
from tests.containers.podman import NotHere, Podman, require_packages
from tests.containers.scene import Scene
from tests.rig.gateway_process import REPOSITORY

WORK = REPOSITORY / "build" / "containers"
GATEWAY, SPARK = "localhost/keyway-gateway:campaign", "localhost/keyway-spark:campaign"
JAVA_AUTHORITIES = Path("/etc/ssl/certs/java/cacerts")  # of the machine, as those of bases.py
GATEWAY_BYTES_MAX = 250_000_000
INSIDE = "--inside"  # the namespace


def main() -> int:
    parser = argparse.ArgumentParser(prog="containers", description=__doc__)
    parser.add_argument("--interpreted", action="store_true", help="compile nothing")
    parser.add_argument("--without-spark", action="store_true", help="the gateway's image alone")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    require_packages()
    podman = Podman(WORK / "podman")
    podman.prepare()
    images = {"gateway": GATEWAY} if asked.without_spark else {"gateway": GATEWAY, "spark": SPARK}
    if asked.inside:
        with Scene(podman, WORK / "scene", images, _compose()) as scene:
            scene.play()
        return 0
    show(f"base images: {bases(podman, WORK / 'bases')}")
    for target, image in images.items():
        _build(podman, target, image, interpreted=asked.interpreted)
    size = podman.size(GATEWAY)
    show(f"the gateway's image: {size / 1e6:.0f} MB, at most {GATEWAY_BYTES_MAX / 1e6:.0f}")
    assert size <= GATEWAY_BYTES_MAX, "the gateway's image is too large"
    _compose()  # before the network is gone
    words = [sys.executable, "-m", "tests.containers", INSIDE, *sys.argv[1:]]
    alone = 'ip link set lo up && exec "$@"'
    return subprocess.run(["unshare", "--net", "sh", "-c", alone, "sh", *words]).returncode


def _build(podman: Podman, target: str, image: str, *, interpreted: bool) -> None:
    words = ["build", "--pull=never", "--network=host", "--target", target, "--tag", image]
    if interpreted:
        words += ["--build-arg", "KEYWAY_COMPILE=0"]
    if JAVA_AUTHORITIES.exists():
        inside = Path("/machine-authorities")
        store = f"-Djavax.net.ssl.trustStore={inside / JAVA_AUTHORITIES.name}"
        words += ["--volume", f"{JAVA_AUTHORITIES.parent}:{inside}:ro"]
        words += ["--build-arg", f"JAVA_TOOL_OPTIONS={store}"]
    podman.run(*words, str(REPOSITORY))
    show(f"✓ {target}: built{', interpreted' if interpreted else ''}")


def _compose() -> Path:
    """podman-compose, in an environment of its own."""
    environment = WORK / "compose"
    command = environment / "bin" / "podman-compose"
    done = environment / "complete"
    if not done.exists():
        project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
        shutil.rmtree(environment, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True, timeout=300)
        install = [str(environment / "bin/python"), "-m", "pip", "install", "--quiet"]
        needed = project["optional-dependencies"]["containers"]
        subprocess.run([*install, *needed], check=True, timeout=900)
        done.touch()
    return command


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    try:
        status = main()
    except NotHere as error:
        sys.stderr.write(f"keyway: {error}\n")
        status = 2
    except (AssertionError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"keyway: {error}\n")
        status = 1
    sys.exit(status)
