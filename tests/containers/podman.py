"""Podman without a daemon, with a storage of its own: nothing of this machine's is touched."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import print as show

PACKAGES = ("podman", "runc", "debootstrap")
INSTALL = f"apt-get install {' '.join(PACKAGES)}"
COMMAND_S_MAX = 3_600.0  # a build that compiles, on a machine that others use, too
PULL_S_MAX = 30.0

# Containers may open files as the machine's own processes may; the defaults of podman are above
# the limits of a machine that is a container itself. So is a network of one's own.
_ENGINE = """[containers]
default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]
netns = "host"
log_driver = "k8s-file"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
_STORAGE = """[storage]
driver = "{driver}"
graphroot = "{root}/storage"
runroot = "{root}/run"
"""


class NotHere(Exception):
    """Something has to be installed; the text says what."""


def require_packages() -> None:
    """Installs what is missing, as root. Raises NotHere."""
    commands = [
        command
        for command in PACKAGES
        if shutil.which(command, path=f"{os.defpath}:/usr/sbin:/sbin") is None
    ]
    if not commands:
        return
    if os.geteuid() != 0:
        raise NotHere(f"no {', '.join(commands)} here (Debian: {INSTALL})")
    show(f"installing {', '.join(PACKAGES)}")
    for words in (("update",), ("install", "-y", "--no-install-recommends", *PACKAGES)):
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(
            ["apt-get", *words], capture_output=True, text=True, timeout=COMMAND_S_MAX, env=env
        )
        if done.returncode:
            raise NotHere(f"apt-get {words[0]} failed: {done.stderr.strip()[-500:]} ({INSTALL})")


def _at_most(kind: int, wanted: int) -> int:
    hard = resource.getrlimit(kind)[1]
    return wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)


@dataclass(frozen=True, slots=True)
class Podman:
    """`root` holds storage and settings."""

    root: Path
    driver: str = "overlay"

    def prepare(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        limits = {
            "files": _at_most(resource.RLIMIT_NOFILE, 65_536),
            "processes": _at_most(resource.RLIMIT_NPROC, 8_192),
        }
        (self.root / "containers.conf").write_text(_ENGINE.format(**limits))
        (self.root / "storage.conf").write_text(_STORAGE.format(driver=self.driver, root=self.root))

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "CONTAINERS_CONF": str(self.root / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(self.root / "storage.conf"),
            "DISABLE_HC_SYSTEMD": "true",  # health is asked for, not watched by timers
        }

    def run(
        self, *words: str, seconds_max: float = COMMAND_S_MAX, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Raises AssertionError with the last words of a command that fails, unless not `check`."""
        return self.ran(("podman", *words), seconds_max=seconds_max, check=check)

    def ran(
        self,
        command: Sequence[str],
        *,
        seconds_max: float = COMMAND_S_MAX,
        check: bool = True,
        cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=seconds_max,
            env=self.environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
        )
        words = (ended.stdout + ended.stderr).strip()[-3_000:]
        assert not check or ended.returncode == 0, f"{' '.join(command)}: {words}"
        return ended

    def has(self, image: str) -> bool:
        return self.run("image", "exists", image, check=False).returncode == 0

    def pulled(self, image: str) -> bool:
        """Whether a registry has it."""
        try:
            return self.run("pull", image, seconds_max=PULL_S_MAX, check=False).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def size(self, image: str) -> int:
        """Bytes of all its layers."""
        return int(self.run("image", "inspect", "--format", "{{.Size}}", image).stdout)
