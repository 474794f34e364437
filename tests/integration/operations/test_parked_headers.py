"""Headers of parked records, read from Kafka again: over REST and the CLI, for those who may see
keys, also after the gateway has forgotten the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Producer

from gateway.embedded.kafka import KafkaCluster
from gateway.reading.limits import HEADER_BYTES_SHOWN, HEADERS_SHOWN
from tests.rig.clients.share_members import ShareHost
from tests.rig.gateway_process import GatewayProcess
from tests.rig.operating import keyway, rest
from tests.rig.rest_parts import role_tokens

pytestmark = pytest.mark.integration

ROLES = ("viewer", "operator")
LONG = "long " * HEADER_BYTES_SHOWN
HEADERS: list[list[tuple[str, str | bytes | None]]] = [
    [("trace", "abc"), ("raw", b"\xff\x00"), ("trace", "once more"), ("none", None)],
    [],
    [("text", LONG), *((f"n{at}", b"%d" % at) for at in range(HEADERS_SHOWN))],
]


@pytest.fixture(scope="module")
def gateway(
    kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway of this file alone: its REST has tokens, named as their roles."""
    with GatewayProcess(
        tmp_path_factory.mktemp("headers-gateway"),
        kafka.bootstrap_servers,
        groups=[{"match": "*", "auto_offset_reset": "earliest", "rejected": "block"}],
        state={"commit_interval_ms": 500},
        admin={"tokens": role_tokens(*ROLES)},
    ) as process:
        yield process


def parked(gateway: GatewayProcess, group: str, who: str, more: str = "") -> tuple[int, Any]:
    path = f"/v1/parked?group={quote(group, safe='')}{more}"
    return rest(gateway, path, headers={"Authorization": f"Bearer {who}"})


def with_headers(gateway: GatewayProcess, group: str) -> list[dict[str, Any]]:
    status, answer = parked(gateway, group, "operator", "&headers=true")
    assert status == 200, answer
    rows: list[dict[str, Any]] = answer["parked"]
    return rows


def test_listed_with_their_headers(
    gateway: GatewayProcess,
    topic: Callable[..., str],
    fresh_name: Callable[[str], str],
    librdkafka_host: ShareHost,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, group = topic(), fresh_name("headers")
    producer = Producer({"bootstrap.servers": gateway.bootstrap})
    for at, headers in enumerate(HEADERS):
        producer.produce(name, key=b"key-%d" % at, value=b"secret", partition=0, headers=headers)
        assert producer.flush(60) == 0
    member = librdkafka_host.member(gateway.bootstrap, group, [name], explicit=True)
    left = len(HEADERS)
    while left:
        batch = member.poll_some()
        assert batch, f"{left} records did not come"
        member.settle("REJECT", batch)
        left -= len(batch)
    first, second, third = with_headers(gateway, group)
    assert first["key"] == "key-0"
    assert first["headers"] == [
        {"name": "trace", "value": "abc", "value_bytes": 3},
        {"name": "raw", "value_base64": "/wA=", "value_bytes": 2},
        {"name": "trace", "value": "once more", "value_bytes": 9},
        {"name": "none", "value": None, "value_bytes": None},
    ]
    assert (first["headers_count"], second["headers"], second["headers_count"]) == (4, [], 0)
    assert (third["headers_count"], len(third["headers"])) == (HEADERS_SHOWN + 1, HEADERS_SHOWN)
    text = third["headers"][0]
    assert (text["value"], text["value_bytes"]) == (LONG[:HEADER_BYTES_SHOWN], len(LONG))

    status, answer = parked(gateway, group, "viewer", "&headers=true")
    assert (status, "token viewer may not see them" in answer["title"]) == (403, True)
    for who in ROLES:
        assert all("headers" not in row for row in parked(gateway, group, who)[1]["parked"])

    member.close()
    gateway.restart()  # nothing of the records is in memory any more
    assert with_headers(gateway, group) == [first, second, third]
    monkeypatch.setenv("KEYWAY_TOKEN", "operator")
    code, out, _ = keyway(gateway, "group", "parked", group, "--headers")
    assert (code, "trace=abc, raw=base64:/wA=, trace=once more, none=null" in out) == (0, True)
    monkeypatch.setenv("KEYWAY_TOKEN", "viewer")
    code, out, err = keyway(gateway, "group", "parked", group, "--headers")
    assert (code, out, "may not see them" in err) == (1, "", True)
