"""One Spark session and one gateway for the Spark tests."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from gateway.embedded.kafka import KafkaCluster
from spark.session import kafka_session
from tests.rig.gateway_process import GatewayProcess


@pytest.fixture(scope="session")
def front(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a gateway before `kafka` (KEYWAY_TESTS_DIRECT=1: of the broker, as oracle)."""
    if os.environ.get("KEYWAY_TESTS_DIRECT") == "1":
        yield kafka.bootstrap_servers
        return
    with GatewayProcess(tmp_path_factory.mktemp("gateway"), kafka.bootstrap_servers) as process:
        yield process.bootstrap


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with warnings.catch_warnings():
        # pyspark leaves sockets to the collector and calls what newer Pythons deprecate.
        warnings.simplefilter("ignore")
        session = kafka_session("keyway-tests", settings={"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()
