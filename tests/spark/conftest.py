"""One Spark session and one gateway for the Spark tests."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from gateway.embedded.kafka import KafkaCluster
from spark.session import SETTINGS, kafka_session
from tests.rig.gateway_process import GatewayProcess
from tests.rig.schema_registry.site import served_registry


@pytest.fixture(scope="package")  # not longer: idle ones take their share of the cores
def front(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a gateway before `kafka` (KEYWAY_TESTS_DIRECT=1: of the broker, as oracle)."""
    if os.environ.get("KEYWAY_TESTS_DIRECT") == "1":
        yield kafka.bootstrap_servers
        return
    with GatewayProcess(tmp_path_factory.mktemp("gateway"), kafka.bootstrap_servers) as process:
        yield process.bootstrap


@pytest.fixture(scope="package")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a schema registry with Confluent's REST interface."""
    with served_registry(tmp_path_factory.mktemp("registry") / "registry.log") as url:
        yield url


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    with warnings.catch_warnings():
        # pyspark leaves sockets to the collector and calls functions that newer Pythons deprecate.
        warnings.simplefilter("ignore")
        session = kafka_session("keyway-tests", master="local[2,3]", settings=SETTINGS)
    yield session
    session.stop()
