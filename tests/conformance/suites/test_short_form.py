"""The short form of the campaign: a program of Kafka's and a suite of pytest's, each both ways."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path

import pytest

from gateway.embedded.jars import KAFKA_VERSION
from gateway.embedded.kafka import KafkaCluster
from tests.conformance.suites.checkouts import of_pytest
from tests.conformance.suites.compared import Compared, compared
from tests.conformance.suites.front import Front, Setting
from tests.conformance.suites.kafka_tools import kafka_tools
from tests.rig.gateway_process import GatewayProcess

pytestmark = [pytest.mark.deep, pytest.mark.integration]


@pytest.fixture
def addresses(kafka: KafkaCluster, tmp_path: Path) -> Iterator[dict[str, str]]:
    with GatewayProcess(tmp_path / "gateway", kafka.bootstrap_servers) as gateway:
        yield {"direct": kafka.bootstrap_servers, "through": gateway.bootstrap}


def test_a_program_of_kafkas_ends_alike_and_a_test_that_sees_where_it_is_differs(
    addresses: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "test_suite.py").write_text(
        "import os\nfrom confluent_kafka.admin import AdminClient\n"
        "where = os.environ['BROKERS']\n"
        "def test_alike():\n"
        "    assert AdminClient({'bootstrap.servers': where}).list_topics(timeout=60).brokers\n"
        f"def test_differs():\n    assert where == '{addresses['direct']}'\n"
    )
    programs, tests = {}, {}
    for way, address in addresses.items():
        front = Front(Setting(KAFKA_VERSION), address, tmp_path)
        programs[way] = kafka_tools(KAFKA_VERSION, front, ["VerifiableProducer"])
        brokers = {"BROKERS": address}
        suite = ["test_suite.py"]
        tests[way] = of_pytest(Path(sys.executable), tmp_path, front, suite, environment=brokers)
    alike = compared("programs", programs["direct"], programs["through"], [])
    assert alike == Compared(1, 1, 1, 0, ())
    found = compared("tests", tests["direct"], tests["through"], [])
    assert (found.passed, found.run) == (1, 2)
    ((test, direct, through, reason),) = map(astuple, found.unexplained)
    assert (test, direct, reason) == ("test_suite.py::test_differs", "passed", None)
    assert "AssertionError" in through
