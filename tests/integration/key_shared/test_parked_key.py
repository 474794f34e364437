"""A parked key on a real Kafka with the default policies: it holds up itself only."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable
from typing import Any

import pytest

from tests.rig.clients.share_members import ShareHost
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import produce
from tests.rig.operating import health, rest, windows_of
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

Topic = Callable[..., str]
Names = Callable[[str], str]
SPAN = 16_384
OTHERS = 3 * SPAN + 1_000
EVERY = 2_500  # records of others between two of the parked key
POISON = b"poison"


def parked(gateway: GatewayProcess, group: str) -> list[dict[str, Any]]:
    status, answer = rest(gateway, f"/v1/parked?{urllib.parse.urlencode({'group': group})}")
    assert status == 200, answer
    rows: list[dict[str, Any]] = answer["parked"]
    return rows


def test_others_pass_it_however_far_and_its_records_come_in_order(
    gateway: GatewayProcess, topic: Topic, fresh_name: Names, librdkafka_host: ShareHost
) -> None:
    name, group = topic(partitions=1), fresh_name("parked-key")
    keys = [POISON if at % EVERY == 0 else b"key-%d" % (at % 997) for at in range(OTHERS)]
    mine = [at for at, key in enumerate(keys) if key == POISON]
    member = librdkafka_host.member(gateway.bootstrap, group, [name], explicit=True)
    produce(gateway.bootstrap, name, [(key, b"v") for key in keys])
    passed = 0
    while passed < OTHERS - len(mine) or not parked(gateway, group):
        batch = member.poll()
        bad = [record for record in batch if record.key == POISON]
        assert {record.offset for record in bad} <= {0}, "the others of its key wait"
        good = [record for record in batch if record.key != POISON]
        member.acknowledge("RELEASE", bad)
        member.acknowledge("ACCEPT", good)
        assert set(member.commit()) <= {"OK"}
        passed += len(good)
    assert passed == OTHERS - len(mine), "each came once"

    (row,) = parked(gateway, group)
    assert (row["offset"], row["reason"], row["deliveries"]) == (0, "released", 5)
    (window,) = windows_of(gateway, group)
    assert (window["cursor"], window["read_position"]) == (0, OTHERS)
    assert window["full_span"] is None
    assert (window["lag"], row["behind"]) == (len(mine), len(mine) - 1)
    assert window["aside"] > 0
    assert group not in str(health(gateway)), "one parked record is no trouble of the node"

    body = {"group": group, "topic": name, "partition": 0, "offsets": [0], "action": "retry"}
    assert rest(gateway, "/v1/parked/release", body)[0] == 200
    found: list[int] = []
    while len(found) < len(mine):
        batch = member.poll_some()
        assert {record.key for record in batch} == {POISON}
        found += [record.offset for record in batch]
        member.settle("ACCEPT", batch)
    assert found == mine
    wait_until(
        lambda: windows_of(gateway, group)[0]["cursor"] == OTHERS,
        what="the cursor at the end",
        deadline_s=30,
    )
