"""One JVM with Kafka's record code for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.records.oracle import RecordsOracle


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordsOracle]:
    running = RecordsOracle(tmp_path_factory.mktemp("records-oracle") / "log")
    yield running
    running.close()
