"""A Key-Shared group fails over and comes back to a gateway that outlived its Kafka: its work on
the other cluster counts there, whichever of the two commits first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.embedded.kafka import KafkaCluster
from keyway.clusters.config import load
from tests.integration.offsets.conftest import Addresses
from tests.rig.clients.share_lines import Delivery
from tests.rig.clients.share_members import ShareHost, ShareMember
from tests.rig.committed import wait_for_committed
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import QUICK_TURNS, create_topic
from tests.rig.offset_clusters import PlainLink, Services, produce_at, write_config

pytestmark = [pytest.mark.deep, pytest.mark.integration]
BASE = 1_700_000_000_000
RECORDS = 40
GROUPS = [
    {
        "match": "*",
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 1_000,
        "lock_duration_ms": 600_000,  # records are held until offsets have followed
    }
]
# Kafka dies within one interval: there is something the gateway could not commit.
COMMIT_INTERVAL_MS = 6_000


@pytest.fixture(scope="module")
def mortal() -> Iterator[KafkaCluster]:
    with KafkaCluster(1, properties=QUICK_TURNS) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def gateways(
    mortal: KafkaCluster, pair: Addresses, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, GatewayProcess]]:
    """A's Kafka may die, B is the session's."""
    made = {
        name: GatewayProcess(
            tmp_path_factory.mktemp(name),
            address,
            groups=GROUPS,
            state={"commit_interval_ms": interval_ms},
        ).start()
        for name, address, interval_ms in (
            ("A", mortal.bootstrap_servers, COMMIT_INTERVAL_MS),
            ("B", pair["B"], 300),
        )
    }
    yield made
    for gateway in made.values():
        gateway.stop()


def values(name: str, first: int, count: int) -> list[tuple[int, bytes]]:
    return [(BASE + at, b"%s%d" % (name.encode(), at)) for at in range(first, first + count)]


def take(member: ShareMember, count: int) -> list[bytes | None]:
    """Polls until so many records have come, and settles them."""
    taken: list[bytes | None] = []
    while len(taken) < count:
        got = member.poll_some()
        assert got, f"{len(taken)} of {count} records, and no more: {taken}"
        member.settle("ACCEPT", got)
        taken += [record.value for record in got]
    return taken


@pytest.mark.parametrize("first", ["the gateway", "the offsets that follow"])
def test_back_to_a_gateway_that_outlived_its_kafka(
    first: str,
    mortal: KafkaCluster,
    pair: Addresses,
    gateways: dict[str, GatewayProcess],
    fresh_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """At the kill A's gateway knows of 20 settled records, and Kafka of 10. Then B has them all."""
    topic, group = fresh_name("topic"), fresh_name("shared")
    for address in (mortal.bootstrap_servers, pair["B"]):
        create_topic(address, topic, partitions=1)
    fronts = {name: gateway.bootstrap for name, gateway in gateways.items()}
    config = write_config(tmp_path, fronts)
    there = PlainLink(("A", mortal.bootstrap_servers), pair["B"])
    produce_at(mortal.bootstrap_servers, topic, values("a", 0, RECORDS))
    there.copy(topic)
    there.close()

    with ShareHost.librdkafka() as host:
        member = host.member(fronts["A"], group, [topic], explicit=True)
        held: list[Delivery] = []
        while len(held) < RECORDS:
            held += member.poll_some()
        member.settle("ACCEPT", held[:10])
        with Services.of(config) as services:
            services.until(
                lambda: (row := services.row("B", group, topic)) is not None and row.new == 10,
                what="B knows of 10 records",
            )
        member.settle("ACCEPT", held[10:20])
        mortal.brokers[0].kill()
        host.kill()

    with ShareHost.librdkafka() as host:
        produce_at(pair["B"], topic, values("b", 0, 5))
        member = host.member(fronts["B"], group, [topic], explicit=True)
        wanted = {value for _, value in [*values("a", 10, RECORDS - 10), *values("b", 0, 5)]}
        assert set(take(member, len(wanted))) == wanted
        member.close()

    mortal.restart()
    back = PlainLink(("B", pair["B"]), mortal.bootstrap_servers)
    assert back.copy(topic) == 5
    back.close()
    if first == "the gateway":
        wait_for_committed(mortal, group, topic, 0, 20)  # the commit that failed before
    with Services(load(config)) as services:
        services.until(
            lambda: (row := services.row("A", group, topic)) is not None and row.changes,
            what="the position from B on A",
        )
        assert services.row("A", group, topic).new == RECORDS + 5
        with ShareHost.librdkafka() as host:
            member = host.member(fronts["A"], group, [topic], explicit=True)
            assert not member.poll_empty(2.0), "nothing comes again"
            produce_at(mortal.bootstrap_servers, topic, values("a", RECORDS, 3))
            assert sorted(map(str, take(member, 3))) == ["b'a40'", "b'a41'", "b'a42'"]
            member.close()
        services.until(
            lambda: services.row("B", group, topic).source_offset == RECORDS + 8,
            what="A's gateway goes on from there",
        )
