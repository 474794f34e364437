"""The three services refuse to start with a cluster that is not the one of the file, and start
while one is away.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import start_child, stop_child
from keyway.clusters.config import load
from spark.streaming.kafka import KafkaSide
from tests.rig.gateway_process import REPOSITORY
from tests.rig.patience import patient_s, wait_until

pytestmark = pytest.mark.integration

NOBODY = "127.0.0.1:1"


def written(folder: Path, *clusters: dict[str, Any]) -> Path:
    """Of the clusters `a` and `b`."""
    path = folder / "clusters.yaml"
    body = {
        "clusters": [
            {"name": name, **section} for name, section in zip("ab", clusters, strict=True)
        ],
        "tree": {"level": 1, "children": ["a", "b"]},
        "groups": {"include": ["*"]},
        "messages": {"state_directory": str(folder / "state")},
        "offsets": {"state_directory": str(folder / "state")},
        "schemas": {"primary": "a"},
    }
    path.write_text(yaml.safe_dump(body))
    return path


def refused(path: Path, *words: str) -> str:
    """The line on stderr of a service that ends at once."""
    service, *rest = words
    done = subprocess.run(
        [sys.executable, "-m", "gateway.cli", service, "run", str(path), *rest],
        capture_output=True,
        text=True,
        timeout=patient_s(120),
        cwd=REPOSITORY,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    return line


def test_a_cluster_that_is_not_the_one_of_the_file(kafka: KafkaCluster, tmp_path: Path) -> None:
    front = kafka.bootstrap_servers
    twice = written(tmp_path, {"bootstrap_servers": front}, {"bootstrap_servers": front})
    found = KafkaSide(load(twice).cluster("a")).cluster_id()
    fault = f"keyway: a and b are one Kafka cluster (cluster id {found})"
    assert refused(twice, "distribute", "--cluster", "a").startswith(fault)
    assert refused(twice, "offsets", "--cluster", "a").startswith(fault)
    assert refused(twice, "schemas") == (
        f"{fault} with one registry's log, _schemas: the primary would follow itself"
        " (another log's topic is named by registry.topic)"
    )
    other = {"bootstrap_servers": front, "cluster_id": "another"}
    wrong = written(tmp_path, {"bootstrap_servers": front}, other)
    assert refused(wrong, "offsets", "--cluster", "b") == (
        f"keyway: b is not the cluster that the file names: its id is {found}, not another"
    )


@pytest.mark.deep
def test_a_cluster_that_is_away_stops_no_start(kafka: KafkaCluster, tmp_path: Path) -> None:
    path = written(
        tmp_path, {"bootstrap_servers": kafka.bootstrap_servers}, {"bootstrap_servers": NOBODY}
    )
    log = tmp_path / "run.log"
    command = [sys.executable, "-m", "offsets", "run", str(path), "--cluster", "a"]
    child = start_child(command, log=log, cwd=REPOSITORY)
    try:
        wait_until(lambda: "offsets_follow" in log.read_text(), what="start", deadline_s=60)
        assert "cluster_is_away" in log.read_text()
    finally:
        # A question to the cluster that is away may be under way.
        assert stop_child(child, grace_s=patient_s(10)) == 0
