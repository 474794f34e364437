"""One JVM with Kafka's record code for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.embedded.jars import kafka_libs
from tests.conformance.records.oracle import RecordsOracle


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordsOracle]:
    running = RecordsOracle(kafka_libs(), tmp_path_factory.mktemp("records-oracle"))
    yield running
    running.close()
