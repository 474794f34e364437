"""A topic of eight partitions moves into a new one of three, under load and with stock clients:
consumers read both, producers are closed and opened again on the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from redis import Redis

from gateway.core.repartition.partitioners import Partitioner
from gateway.core.repartition.record import Pace, Phase, Repartition, to_text
from gateway.core.wire.apis import ApiKey
from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.redis import EmbeddedRedis
from gateway.repartition.table import KEY
from tests.chaos.repartition import IDEMPOTENT, NEXT_TOPIC, working
from tests.integration.repartition.test_growing import (
    QUICK,
    node,
    repartition,
    status,
    wait_for_line,
    wait_for_phase,
)
from tests.integration.repartition.test_operating_it import shown
from tests.rig.clients.java_programs import JavaPrograms
from tests.rig.clients.keyed_producers import KeyedProducer
from tests.rig.clients.plain_consumers import (
    Consumed,
    PlainConsumer,
    assert_each_after_the_one_before,
    consumed_by,
)
from tests.rig.clients.share_lines import Delivery
from tests.rig.clients.share_members import ShareHost, ShareMember
from tests.rig.clients.wire_client import WireClient
from tests.rig.gateway_process import DIRECT, GatewayProcess
from tests.rig.kafka import log_end, produce
from tests.rig.operating import keyway
from tests.rig.patience import wait_until

__all__ = ["node"]

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(DIRECT, reason="Kafka itself has no repartition"),
]


@dataclass
class Crowd:
    """A Key-Shared group, plain ones and their producers."""

    old: str
    new: str
    producers: list[KeyedProducer]
    open_producer: Callable[[int, str, int], KeyedProducer]
    open_member: Callable[[list[str]], ShareMember]  # of these topics
    open_consumer: Callable[[str, str], PlainConsumer]  # of these topics and a group
    plain: tuple[str, ...]
    members: list[ShareMember] = field(default_factory=list)
    consumers: dict[str, list[PlainConsumer]] = field(default_factory=dict)
    worked: list[list[Consumed]] = field(default_factory=list)

    def move_producers(self) -> None:
        """One after the other, as a rolling restart does; each has keys of its own."""
        for at, producer in enumerate(self.producers):
            sent = sum(producer.end().values())
            self.producers[at] = self.open_producer(at, self.new, sent)

    def all_are_served(self) -> bool:
        return all(each.consumed for opened in self.consumers.values() for each in opened)

    def of_shared_group(self) -> list[Consumed]:
        return [each for worked in self.worked for each in list(worked)]


@contextmanager
def at_work(crowd: Crowd, topics: list[str]) -> Iterator[None]:
    """Two members of each group that read these topics; they leave at the end."""
    members = [crowd.open_member(topics) for _ in range(2)]
    consumers = {
        group: [crowd.open_consumer(",".join(topics), group) for _ in range(2)]
        for group in crowd.plain
    }
    for group, opened in consumers.items():
        crowd.consumers.setdefault(group, []).extend(opened)
    try:
        with working(members, topics) as worked:
            crowd.worked.append(worked)
            yield
    finally:
        for member in members:
            member.close()
        for opened in consumers.values():
            for consumer in opened:
                consumer.end()


def move(crowd: Crowd, node: GatewayProcess, during: Callable[[str], None]) -> Mapping[str, int]:
    """From the first record to the last one; `during` is called in each phase. What was sent."""
    old, new = crowd.old, crowd.new
    try:
        with at_work(crowd, [old]):
            wait_until(lambda: _all_over(crowd, range(8)), what="traffic", deadline_s=90)
            plan = repartition(node, old, partitions=3, into=new)
            assert (plan["refusals"], plan["before"], plan["after"]) == ([], 8, 3)
            repartition(node, old, partitions=3, into=new, execute=True)
            during("marked")
            wait_for_phase(node, old, "open")
        with at_work(crowd, [old, new]):
            during("open")
            crowd.move_producers()
            during("open, and the producers have moved")
            wait_until(
                lambda: _all_over(crowd, range(NEXT_TOPIC, NEXT_TOPIC + 3)),
                what="records of the new topic before the end",
                deadline_s=90,
            )
            wait_for_phase(node, old, "draining", "finished", within_s=120)
            during("draining")
            sent = {key: count for each in crowd.producers for key, count in each.end().items()}
            total = sum(sent.values())
            wait_until(
                lambda: all(
                    len({(each.key, each.number) for each in group}) == total
                    for group in _groups(crowd)
                ),
                what="all records",
                deadline_s=120,
            )
            wait_for_phase(node, old, "finished", within_s=120)
            during("finished")
    finally:
        for producer in crowd.producers:
            producer.kill()
    for group in _groups(crowd):
        assert_each_after_the_one_before(group, sent)
    assert status(node, old)["given_up"] == []
    assert status(node, old)["late_records"] == 0
    return sent


def _groups(crowd: Crowd) -> list[list[Consumed]]:
    return [crowd.of_shared_group(), *map(consumed_by, crowd.consumers.values())]


def _all_over(crowd: Crowd, partitions: range) -> bool:
    return all({each.partition for each in group} >= set(partitions) for group in _groups(crowd))


def crowd_of(
    hosts: ShareHost,
    front: str,
    old: str,
    fresh_name: Callable[[str], str],
    java_programs: JavaPrograms | None,
) -> Crowd:
    """All of one client library: 200 keys, 120 records/s. `java_programs` None: librdkafka."""
    shared = fresh_name("shared")

    def producer(at: int, name: str, sent: int) -> KeyedProducer:
        before = f"sent.before={sent}"
        if java_programs is not None:
            return KeyedProducer.java(java_programs, front, name, 100 * at, 100, 60, before)
        return KeyedProducer.librdkafka(front, name, 100 * at, 100, 60, before, *IDEMPOTENT)

    def member(topics: list[str]) -> ShareMember:
        return hosts.member(front, shared, topics)

    def consumer(topics: str, group: str) -> PlainConsumer:
        protocol = "group.protocol=" + group.split("-")[0]
        if java_programs is not None:
            return PlainConsumer.java(java_programs, front, topics, group, 50, protocol)
        return PlainConsumer.librdkafka(front, topics, group, 50, protocol)

    producers = [producer(at, old, 0) for at in range(2)]
    plain = (fresh_name("classic"), fresh_name("consumer"))
    return Crowd(old, old + ".3", producers, producer, member, consumer, plain)


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
    with WireClient(kafka.bootstrap_servers) as client:
        (row,) = client.call(ApiKey.METADATA, 12, {"Topics": [{"Name": name}]})["Topics"]
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
