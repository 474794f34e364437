"""The job on a real Spark cluster: a standalone master with one worker, spark-submit, the zip."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from gateway.embedded.process import free_ports, start_child, stop_child
from spark.session import CONNECTOR, EXCLUDES, IVY
from tests.rig.gateway_process import REPOSITORY
from tests.rig.kafka import create_topic
from tests.rig.patience import wait_until
from tests.rig.several_clusters import clusters, send, wait_for

pytestmark = [
    pytest.mark.deep,
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.timeout(1_800),
]

SPARK_HOME = Path(pyspark.__file__).parent
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    "SPARK_HOME": str(SPARK_HOME),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYSPARK_PYTHON": sys.executable,
}


@contextmanager
def standalone(directory: Path) -> Iterator[str]:
    """A master and a worker of two cores; the master's address."""
    port = free_ports(3)
    address = f"spark://127.0.0.1:{port}"
    spark = str(SPARK_HOME / "bin" / "spark-class")
    master = [spark, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"]
    master += ["--port", str(port), "--webui-port", str(port + 1)]
    worker = [spark, "org.apache.spark.deploy.worker.Worker", "--cores", "2", "--memory", "1g"]
    worker += ["--webui-port", str(port + 2), "--work-dir", str(directory / "work"), address]
    with ExitStack() as started:
        for name, command in (("master", master), ("worker", worker)):
            log = directory / f"{name}.log"
            child = start_child(command, log=log, env=ENVIRONMENT, cwd=directory)
            started.callback(stop_child, child)
        registered = directory / "worker.log"
        wait_until(
            lambda: "Successfully registered with master" in registered.read_text(),
            what="the worker at its master",
            deadline_s=300,
        )
        yield address


def package() -> Path:
    command = ["make", "--silent", "spark-package", f"PYTHON={sys.executable}"]
    made = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True)
    return REPOSITORY / made.stdout.strip()


def test_the_job_runs_on_a_cluster(tmp_path: Path) -> None:
    with clusters(("c1", "c2"), tmp_path) as pair, standalone(tmp_path) as master:
        pair.write({"level": 1, "children": ["c1", "c2"]}, topics={"include": ["submitted"]})
        create_topic(pair.front("c1"), "submitted", partitions=2)
        records = [{"value": b"%d" % at, "partition": at % 2} for at in range(500)]
        send(pair.front("c1"), "submitted", records)
        command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", master]
        command += ["--packages", CONNECTOR, "--exclude-packages", ",".join(EXCLUDES)]
        command += ["--driver-java-options", "-Xss8m", "--executor-memory", "600m"]
        command += ["--conf", "spark.driver.host=127.0.0.1"]
        command += ["--conf", f"spark.jars.ivy={IVY}"]
        command += ["--py-files", str(package()), str(REPOSITORY / "spark" / "links" / "job.py")]
        command += [str(pair.path), "--cluster", "c1"]
        log = tmp_path / "submit.log"
        job = start_child(command, log=log, env=ENVIRONMENT, cwd=tmp_path)
        try:
            found = wait_for(pair.front("c2"), "submitted", 500, partitions=2)
        except AssertionError as error:
            raise AssertionError(log.read_text()[-3_000:]) from error
        finally:
            stop_child(job, grace_s=60)
    assert sorted(int(record.value or b"-1") for record in found) == list(range(500))
    assert "app-" in (tmp_path / "worker.log").read_text(), "an executor ran on the worker"
