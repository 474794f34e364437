"""A running group seen over REST (window, keys, connections, topics), and moved with a token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest

from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.share_members import ShareHost
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import produce
from tests.rig.operating import rest
from tests.rig.patience import wait_until
from tests.rig.rest_parts import role_tokens

pytestmark = pytest.mark.integration

ROLES = ("viewer", "operator")


@pytest.fixture(scope="module")
def gateway(
    kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway of this file alone: its REST has tokens, named as their roles."""
    with GatewayProcess(
        tmp_path_factory.mktemp("seek-gateway"),
        kafka.bootstrap_servers,
        groups=[{"match": "*", "auto_offset_reset": "earliest"}],
        admin={"tokens": role_tokens(*ROLES)},
    ) as process:
        yield process


def asked(gateway: GatewayProcess, path: str, body: object = None, who: str = "operator") -> Any:
    status, answer = rest(gateway, path, body, headers={"Authorization": f"Bearer {who}"})
    assert status == 200, (path, answer)
    return answer


def test_a_group_is_seen_and_moved_back(
    gateway: GatewayProcess,
    topic: Callable[..., str],
    fresh_name: Callable[[str], str],
    librdkafka_host: ShareHost,
) -> None:
    name, group = topic(), fresh_name("seek")
    of = f"?group={quote(group)}"
    produce(gateway.bootstrap, name, [(key, b"v") for key in (b"hot", b"hot", b"cold")])
    member = librdkafka_host.member(gateway.bootstrap, group, [name], explicit=True)
    first = member.poll_some()
    (window,) = asked(gateway, f"/v1/windows{of}")["windows"]
    held = [(record.offset, record.offset) for record in first]
    runs = [(run["first"], run["last"]) for run in window["runs"] if run["state"] == "in_flight"]
    assert runs[0][0] == held[0][0] == 0
    assert sum(last - first + 1 for first, last in runs) == window["in_flight"] == len(held)
    (hot,) = asked(gateway, f"/v1/keys{of}&key=hot")["keys"]
    assert (hot["topic"], hot["state"], hot["records"]) == (name, "in_flight", 2)
    (mine,) = asked(gateway, f"/v1/members{of}")["members"]
    assert (mine["member_id"], mine["share"]) == (hot["holder"], 1.0)
    hottest = asked(gateway, f"/v1/keys{of}", who="viewer")["keys"][0]
    assert (hottest["key_hash"], hottest["records"]) == (hot["key_hash"], 2)
    assert "key" not in hottest
    carried = [
        connection
        for connection in asked(gateway, "/v1/connections")["connections"]
        if f"{group}/{mine['member_id']}" in connection["members"]
    ]
    assert {connection["client_id"] for connection in carried} == {mine["client_id"]}
    assert all(
        connection["bytes_in"] > 0 and connection["broker"] is not None for connection in carried
    )
    (row,) = asked(gateway, f"/v1/topics?name={name}")["topics"]
    assert (row["partitions"], row["groups"][0]["group"]) == (1, group)
    (broker,) = asked(gateway, "/v1/brokers")["brokers"]
    assert (broker["state"], broker["address"]) == ("up", gateway.address_of(broker["broker"]))

    member.settle("ACCEPT", first)
    done = len(first)
    while done < 3:
        more = member.poll_some()
        member.settle("ACCEPT", more)
        done += len(more)
    seek = f"/v1/positions/seek{of}"
    shown = asked(gateway, seek, {"to": "earliest"})
    assert "is not empty" in shown["refused"]
    assert (shown["positions"][0]["new"], shown["executed"]) == (0, False)
    body = {"to": "earliest", "execute": True}
    headers = {"Authorization": "Bearer operator"}
    assert rest(gateway, seek, body, headers=headers)[0] == 409
    assert rest(gateway, seek, body, headers={"Authorization": "Bearer viewer"})[0] == 403
    member.close()
    wait_until(
        lambda: asked(gateway, f"/v1/members{of}")["members"] == [],
        what="the member has left",
        deadline_s=30,
    )
    (move,) = asked(gateway, seek, body)["positions"]
    assert (move["old"], move["new"], move["delta"], move["error"]) == (3, 0, -3, None)
    again = librdkafka_host.member(gateway.bootstrap, group, [name], explicit=True)
    batch = again.poll_some()
    assert batch[0].offset == 0
    again.settle("ACCEPT", batch)
    again.close()
    log = gateway.log_text()
    assert "positions.seek" in log
    assert "Bearer" not in log
