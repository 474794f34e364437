"""The disk of the embedded Redis is full: groups wait, `/health` names the cause, nothing is lost.

The folder of the state is a small file system of its own, filled to the last byte.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.wire_client import ShareSession
from tests.rig.committed import wait_for_committed
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import produce
from tests.rig.operating import health
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

ACCEPT = 1
KEYS = [b"k%d" % at for at in range(50)]
DISK_BYTES = 4 * 1024 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    where = tmp_path / "disk"
    where.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}"]
    mounted = subprocess.run(
        ["mount", *options, "keyway-test", str(where)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a file system of its own needs root: {mounted.stderr.strip()}")
    yield where
    subprocess.run(["umount", "--lazy", str(where)], check=True)


@pytest.fixture
def gateway(kafka: KafkaCluster, tmp_path: Path, disk: Path) -> Iterator[GatewayProcess]:
    groups = [{"match": "*", "auto_offset_reset": "earliest"}]
    state = {"commit_interval_ms": 500, "directory": str(disk / "state")}
    with GatewayProcess(tmp_path, kafka.bootstrap_servers, groups=groups, state=state) as process:
        yield process


def filled(disk: Path) -> Path:
    """A file that takes all that is left; deleting it makes room again."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(64 * 1024))
    with ballast.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"0")
    found = os.statvfs(disk)
    assert found.f_bavail == 0
    return ballast


def test_a_full_disk_loses_nothing_and_ends_by_itself(
    kafka: KafkaCluster,
    gateway: GatewayProcess,
    disk: Path,
    topic: Callable[..., str],
    fresh_name: Callable[[str], str],
) -> None:
    name, group = topic(), fresh_name("group")
    produce(kafka.bootstrap_servers, name, [(key, b"1") for key in KEYS])
    with ShareSession(gateway.bootstrap, group, name) as session:
        session.join()
        taken = session.fetch_count(len(KEYS))
        ballast = filled(disk)
        produce(kafka.bootstrap_servers, name, [(key, b"2") for key in KEYS])
        assert session.acknowledge({0: [(0, len(KEYS) - 1, [ACCEPT])]}) == {0: 0}
        wait_until(
            lambda: any("No space left" in reason for reason in health(gateway)[1]["reasons"]),
            what="/health says that the disk is full",
            deadline_s=30,
        )
        assert health(gateway)[0] == 503
        ballast.unlink()
        wait_until(lambda: health(gateway)[0] == 200, what="all is well again", deadline_s=30)
        more = session.fetch_count(len(KEYS), within_s=30)
        assert {count for _, count in taken.acquired + more.acquired} == {1}, "nothing comes twice"
        assert more.offsets == [len(KEYS) + at for at in range(len(KEYS))]
        last = (more.offsets[0], more.offsets[-1], [ACCEPT])
        assert session.acknowledge({0: [last]}) == {0: 0}
    wait_for_committed(kafka, group, name, 0, 2 * len(KEYS))
    assert "Traceback" not in gateway.log_text()
    assert gateway.stop() == 0
