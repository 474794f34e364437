"""Names of virtual brokers, and back."""

from __future__ import annotations

import pytest

from gateway.core.tls.server_names import ServerNames, UnknownName

NAMES = ServerNames("Kafka.example", "broker-{id}.kafka.example")


@pytest.mark.parametrize("broker_id", [0, 1, 10, 1_000_001, 2**31 - 1])
def test_there_and_back(broker_id: int) -> None:
    assert NAMES.broker_of(NAMES.of(broker_id)) == broker_id


@pytest.mark.parametrize("name", ["kafka.example", "KAFKA.EXAMPLE", "kafka.example."])
def test_first_contact(name: str) -> None:
    assert NAMES.broker_of(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "broker-.kafka.example",
        "broker-x.kafka.example",
        "broker-01.kafka.example",
        "broker--1.kafka.example",
        "broker-1xkafka.example",
        "a.broker-1.kafka.example",
        "broker-1.kafka.example.org",
        "broker-12345678901.kafka.example",
        "broker-\u0661.kafka.example",
        "",
    ],
)
def test_others(name: str) -> None:
    with pytest.raises(UnknownName, match="is neither"):
        NAMES.broker_of(name)


def test_no_name() -> None:
    with pytest.raises(UnknownName, match="no server name"):
        NAMES.broker_of(None)
