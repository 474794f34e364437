"""A topic of eight partitions moves into a new one of three, under load and with stock clients:
consumers read both, producers are closed and opened again on the new one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from redis import Redis

from gateway.core.repartition.partitioners import Partitioner
from gateway.core.repartition.record import Pace, Phase, Repartition, to_text
from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.redis import EmbeddedRedis
from gateway.repartition.table import KEY
from tests.chaos.crowd import IDEMPOTENT, Crowd, crowd_of, move
from tests.integration.repartition.test_operating_it import shown
from tests.rig.clients.java_programs import JavaPrograms
from tests.rig.clients.keyed_producers import KeyedProducer
from tests.rig.clients.share_lines import Delivery
from tests.rig.clients.share_members import ShareHost
from tests.rig.gateway_process import DIRECT, GatewayProcess
from tests.rig.kafka import log_end, metadata_of, produce
from tests.rig.operating import keyway
from tests.rig.patience import wait_until
from tests.rig.repartitions import QUICK, repartition, wait_for_line, wait_for_phase

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(DIRECT, reason="Kafka itself has no repartition"),
]


@pytest.fixture(params=["librdkafka", "java"])
def crowd(
    request: pytest.FixtureRequest,
    node: GatewayProcess,
    topic: Callable[..., str],
    fresh_name: Callable[[str], str],
    java_programs: JavaPrograms,
    new_host: Callable[[str], ShareHost],
) -> Crowd:
    programs = java_programs if request.param == "java" else None
    host = new_host(request.param)
    return crowd_of(host, node.bootstrap, topic(partitions=8), fresh_name, programs)


@pytest.mark.deep
def test_eight_to_three(node: GatewayProcess, crowd: Crowd) -> None:
    """A Key-Shared group, a classic and a KIP-848 one; idempotent producers."""
    move(crowd, node, lambda _: None)


@pytest.mark.deep
@pytest.mark.parametrize("crowd", ["librdkafka"], indirect=True)
@pytest.mark.parametrize("node", [{**QUICK, "delivery_timeout_ms": 15_000}], indirect=True)
def test_the_gateway_is_killed_in_each_phase(node: GatewayProcess, crowd: Crowd) -> None:
    """Acceptance 20, for a new topic."""

    def strike(phase: str) -> None:
        for said in ("marked", "created", "shown") if phase == "marked" else ("",):
            wait_for_line(node, f"phase='{said}'" if said else "")
            node.kill()
            node.start()

    move(crowd, node, strike)


@pytest.mark.deep
@pytest.mark.parametrize("library", ["librdkafka", "java"])
def test_no_producer_follows_a_topic_that_shrinks_under_its_name(
    kafka: KafkaCluster,
    tmp_path: Path,
    topic: Callable[..., str],
    java_programs: JavaPrograms,
    library: str,
) -> None:
    """Why it moves into another one: what a client has batched for a partition that Metadata no
    longer shows, it can only fail.
    """
    name, pace = topic(partitions=8), Pace(adoption_ms=0, settle_ms=0, late_ms=0)
    row = metadata_of(kafka.bootstrap_servers, name)
    shrunk = Repartition(
        topic=name,
        topic_id=row["TopicId"].hex(),
        before=3,
        after=8,
        partitioner=Partitioner.MURMUR2,
        pace=pace,
        phase=Phase.ABORTED,
    )
    with (
        EmbeddedRedis(tmp_path / "redis") as redis,
        GatewayProcess(
            tmp_path / "a", kafka.bootstrap_servers, redis_url=redis.url, nodes={"id": "a"}
        ) as front,
    ):
        words: tuple[str, ...] = (
            "linger.ms=200",
            "delivery.timeout.ms=8000",
            "request.timeout.ms=3000",
        )
        if library == "java":
            producer = KeyedProducer.java(java_programs, front.bootstrap, name, 0, 100, 500, *words)
        else:
            words += IDEMPOTENT
            producer = KeyedProducer.librdkafka(front.bootstrap, name, 0, 100, 500, *words)
        try:
            end = partial(log_end, kafka.bootstrap_servers, name, 7)
            wait_until(lambda: end() > 0, what="records of the last one", deadline_s=60)
            Redis.from_url(redis.url).hset(KEY, name, to_text(shrunk))
            wait_until(
                lambda: shown(front.bootstrap, name) == {0, 1, 2}, what="3 shown", deadline_s=30
            )
            with pytest.raises(AssertionError, match=r"timed out|Expiring \d+ record"):
                producer.end()
        finally:
            producer.kill()


def test_a_record_waits_for_the_earlier_one_in_the_old_topic(
    node: GatewayProcess,
    topic: Callable[..., str],
    fresh_name: Callable[[str], str],
    librdkafka_host: ShareHost,
) -> None:
    """Two partitions to one; the new topic is as the old one, and nobody sees it too early."""
    old, group = topic(partitions=2, config={"retention.ms": "7200000"}), fresh_name("waits")
    new, front = old + ".1", node.bootstrap
    assert "takes none away" in repartition(node, old, partitions=1)["refusals"][0]
    first = librdkafka_host.member(front, group, [old], explicit=True)
    try:
        produce(front, old, [(b"k", b"0"), (b"k", b"1")])
        first.poll_count(1)
    finally:
        first.close()
    code, said, _ = keyway(node, "repartition", "start", old, "--partitions", "1", "--into", new)
    assert (code, said.splitlines()[0]) == (0, f"topic {old}: 2 to 1 partitions of {new}")
    wait_for_phase(node, old, "open")
    admin = AdminClient({"bootstrap.servers": front})
    config = admin.describe_configs([ConfigResource(ResourceType.TOPIC, new)])
    (found,) = [future.result(30) for future in config.values()]
    assert found["retention.ms"].value == "7200000"
    produce(front, new, [(b"k", b"2"), (b"other", b"at once")])
    member = librdkafka_host.member(front, group, [old, new], explicit=True)
    try:
        came: list[Delivery] = []
        while len(came) < 4:
            some = member.poll_some(60)
            assert some, [(each.topic, each.value) for each in came]
            came += some
            member.settle("ACCEPT", some)
        of_key = [(each.topic, each.value) for each in came if each.key == b"k"]
        assert of_key == [(old, b"0"), (old, b"1"), (new, b"2")]
        wait_for_phase(node, old, "finished")
    finally:
        member.close()
    code, said, _ = keyway(node, "repartition", "status", old)
    assert f"2 to 1 of {new}" in said
    admin.delete_topics([old])[old].result(30)
    produce(front, new, [(b"k", b"3")])
