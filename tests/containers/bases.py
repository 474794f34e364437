"""The images that Dockerfile and docker-compose.yml begin from: a registry's, or else made here of
Debian's packages and Kafka's jars, under the same names.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from gateway.embedded.jars import KAFKA_VERSION, kafka_libs
from tests.containers.podman import Podman

PYTHON = "docker.io/library/python:3.11.13-slim-bookworm"
KAFKA = f"docker.io/apache/kafka:{KAFKA_VERSION}"
REDIS = "docker.io/library/redis:7.4.2-bookworm"
DEBIAN = "localhost/keyway-debian:bookworm"
SUITE, MIRROR = "bookworm", "http://deb.debian.org/debian"
# Of the machine, where it has them: its network may have an authority of its own.
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
NOT_NEEDED = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "var/cache/apt",
    "var/lib/apt/lists",
)

_PYTHON = f"""FROM {DEBIAN}
RUN ln -s /usr/bin/python3 /usr/local/bin/python && rm -f /usr/lib/python3*/EXTERNALLY-MANAGED
"""
_REDIS = f"""FROM {DEBIAN}
RUN apt-get update && apt-get install -y --no-install-recommends redis-server \\
    && rm -rf /var/lib/apt/lists/* && mkdir /data && chown redis:redis /data
USER redis
WORKDIR /data
VOLUME /data
CMD ["redis-server"]
"""
_KAFKA = f"""FROM {DEBIAN}
RUN mkdir -p /usr/share/man/man1 && apt-get update \\
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \\
    && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 1000 appuser && mkdir -p /var/lib/kafka/data \\
    && chown appuser /var/lib/kafka/data
COPY libs /opt/kafka/libs
COPY bin /opt/kafka/bin
USER appuser
CMD ["python3", "/opt/kafka/bin/start.py"]
"""


def bases(podman: Podman, work: Path) -> str:
    """Makes sure that all are there; says where they come from. Raises AssertionError."""
    wanted = (PYTHON, KAFKA, REDIS)
    if all(podman.has(image) for image in wanted):
        return "as before"
    if all(podman.pulled(image) for image in wanted):
        return "of a registry"
    if not podman.has(DEBIAN):
        _import(podman, _root_file_system(podman, work / "rootfs"))
    _built(podman, work / "python", _PYTHON, PYTHON)
    _built(podman, work / "redis", _REDIS, REDIS)
    kafka = work / "kafka"
    shutil.rmtree(kafka, ignore_errors=True)
    shutil.copytree(Path(__file__).parent / "kafka", kafka / "bin")
    shutil.copytree(kafka_libs(), kafka / "libs")
    _built(podman, kafka, _KAFKA, KAFKA)
    return "made of Debian's packages: no registry answered"


def _root_file_system(podman: Podman, root: Path) -> Path:
    done = root.parent / f"{root.name}.complete"
    if done.exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    include = "--include=python3,python3-pip,ca-certificates"
    podman.ran(("/usr/sbin/debootstrap", "--variant=minbase", include, SUITE, str(root), MIRROR))
    done.touch()
    return root


def _import(podman: Podman, root: Path) -> None:
    for name in NOT_NEEDED:
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name).mkdir(parents=True)
    (root / "var/cache/apt/archives/partial").mkdir(parents=True)
    if AUTHORITIES.exists():
        shutil.copy(AUTHORITIES, root / AUTHORITIES.relative_to("/"))
        (root / "etc/pip.conf").write_text(f"[global]\ncert = {AUTHORITIES}\n")
    with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as packed:
        subprocess.run(
            ["podman", "import", "-", DEBIAN],
            stdin=packed.stdout,
            check=True,
            capture_output=True,
            env=podman.environment,
            timeout=900,
        )


def _built(podman: Podman, context: Path, dockerfile: str, image: str) -> None:
    context.mkdir(parents=True, exist_ok=True)
    (context / "Dockerfile").write_text(dockerfile)
    podman.run("build", "--pull=never", "--network=host", "--tag", image, str(context))
