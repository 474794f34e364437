"""Crashes under load: the gateway, Redis, Redis' memory, the upstream broker. Nothing lost, keys in
order.

Each test has a gateway of its own and members that go on polling through the crash, as services do.
Without loss of state, a record whose acknowledgement was confirmed never comes again.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from redis import Redis

from gateway.core.wire.apis import ApiKey
from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.redis import EmbeddedRedis
from keyway.commit_metadata.core.metadata import decode as decode_commit
from tests.rig.clients.order import assert_first_deliveries_in_order
from tests.rig.clients.share_lines import TopicPartitionOffset
from tests.rig.clients.share_members import ShareHost, ShareMember, accepted_places, deliveries_of
from tests.rig.clients.wire_client import ShareSession
from tests.rig.committed import committed
from tests.rig.gateway_process import GatewayProcess
from tests.rig.groups import GROUPS
from tests.rig.kafka import create_topic, produce
from tests.rig.operating import health, windows_of
from tests.rig.patience import patient_s, wait_until

# Long: a test for each crash, and what they all ask of the members.
pytestmark = pytest.mark.integration

Name = Callable[[str], str]
Topic = Callable[..., str]
Group = Callable[..., str]
KEYS = 40
RECORDS = 6_000
SETTLED_S_MAX = 90.0
ACCEPT, RELEASE = 1, 2


@dataclass
class Site:
    """A gateway of its own in front of the session's Kafka, and the Redis behind it."""

    gateway: GatewayProcess
    redis: EmbeddedRedis

    def flush(self) -> None:
        """FLUSHALL: Redis forgets everything."""
        client = Redis.from_url(self.redis.url)
        client.flushall()
        client.close()


@pytest.fixture
def site(kafka: KafkaCluster, tmp_path: Path) -> Iterator[Site]:
    with EmbeddedRedis(tmp_path / "redis") as redis:
        gateway = GatewayProcess(
            tmp_path / "gateway",
            kafka.bootstrap_servers,
            groups=GROUPS,
            redis_url=redis.url,
            state={"commit_interval_ms": 500},
        )
        with gateway:
            yield Site(gateway, redis)


@dataclass
class Load:
    """Records of KEYS keys on two partitions of the session's Kafka, produced past the gateway."""

    kafka: KafkaCluster
    topic: str
    wanted: int = 0

    def produce(self, count: int) -> None:
        keys = [b"k%d" % (at % KEYS) for at in range(self.wanted, self.wanted + count)]
        produce(self.kafka.bootstrap_servers, self.topic, [(key, b"v") for key in keys])
        self.wanted += count


def delivered(members: list[ShareMember]) -> set[TopicPartitionOffset]:
    return {delivery.place for member in members for delivery in list(member.deliveries)}


def wait_for_deliveries(members: list[ShareMember], count: int) -> None:
    wait_until(
        lambda: len(delivered(members)) >= count,
        what=f"{count} records delivered",
        deadline_s=SETTLED_S_MAX,
    )


def finish(members: list[ShareMember], load: Load) -> None:
    """Every record delivered and accepted; the first deliveries of each key in order."""
    wait_for_deliveries(members, load.wanted)
    assert len(delivered(members)) == load.wanted
    assert_first_deliveries_in_order(deliveries_of(members))
    for member in members:
        member.end_consume()
        member.close()


def assert_confirmed_never_come_again(members: list[ShareMember]) -> None:
    """No delivery of a record after the cluster confirmed its acknowledgement."""
    confirmed: dict[TopicPartitionOffset, int] = {}
    for member in members:
        for acked in member.acked:
            if acked.error is None:
                at = min(acked.at_ns, confirmed.get(acked.place, acked.at_ns))
                confirmed[acked.place] = at
    again = [
        delivery
        for delivery in deliveries_of(members)
        if delivery.place in confirmed and delivery.at_ns > confirmed[delivery.place]
    ]
    assert confirmed, "members report confirmed acknowledgements"
    assert not again, f"{len(again)} confirmed records came again, first {again[:2]}"


@pytest.fixture
def load(kafka: KafkaCluster, topic: Topic) -> Load:
    return Load(kafka, topic(partitions=2))


def at_work(site: Site, load: Load, group: str, host: ShareHost) -> list[ShareMember]:
    """Two members in the middle of RECORDS records."""
    members = [host.member(site.gateway.bootstrap, group, [load.topic]) for _ in range(2)]
    for member in members:
        member.begin_consume(300)
    load.produce(RECORDS)
    wait_for_deliveries(members, RECORDS // 4)
    return members


def test_gateway_killed(site: Site, load: Load, share_group: Group, any_host: ShareHost) -> None:
    members = at_work(site, load, share_group(), any_host)
    site.gateway.kill()
    while len(delivered(members)) == load.wanted:  # this process slept while they worked
        site.gateway.start()
        load.produce(RECORDS)
        wait_for_deliveries(members, load.wanted - RECORDS + 1)
        site.gateway.kill()
    site.gateway.start()
    load.produce(200)
    finish(members, load)
    assert_confirmed_never_come_again(members)


@pytest.mark.deep
def test_gateway_stopped_and_started(
    site: Site, load: Load, share_group: Group, librdkafka_host: ShareHost
) -> None:
    members = at_work(site, load, share_group(), librdkafka_host)
    assert site.gateway.stop() == 0, site.gateway.log_tail()
    site.gateway.start()
    load.produce(200)
    finish(members, load)
    assert_confirmed_never_come_again(members)


def fetched_offsets(session: ShareSession, count: int) -> set[int]:
    """Offsets from as many fetches as it takes; an answer leaves with the first records."""
    found: set[int] = set()
    while len(found) < count:
        found.update(session.fetch_some(within_s=30.0).offsets)
    return found


@pytest.mark.deep
def test_a_planned_stop_counts_nothing_as_done(
    kafka: KafkaCluster, topic: Topic, fresh_name: Name, tmp_path: Path
) -> None:
    """A client that is stuck keeps the node from ending for longer than the grace of members it has
    hung up on. With `on_evict: ack` their records were counted as done.
    """
    name, group = topic(), fresh_name("group")
    policy = {
        "match": "*",
        "auto_offset_reset": "earliest",
        "on_evict": "ack",
        "disconnect_grace_ms": 500,
        "lock_duration_ms": 2_000,
    }
    gateway = GatewayProcess(tmp_path, kafka.bootstrap_servers, groups=[policy])
    with gateway:
        produce(kafka.bootstrap_servers, name, [(b"k%d" % at, b"v") for at in range(10)])
        with (
            ShareSession(gateway.bootstrap, group, name) as healthy,
            ShareSession(gateway.bootstrap, fresh_name("other"), topic()) as stuck,
        ):
            healthy.join()
            held = fetched_offsets(healthy, 10)
            stuck.join()
            stuck.leader.send(ApiKey.SHARE_FETCH, 1, stuck.fetch_body(max_wait_ms=60_000))
            assert gateway.stop() == 0
        assert "member_evicted" not in gateway.log_text()
        assert "stopped_with_unanswered_requests" in gateway.log_text(), "one was stuck"
        gateway.start()
        with ShareSession(gateway.bootstrap, group, name).join() as other:
            assert fetched_offsets(other, 10) == held, "all of them again, once their locks end"


@pytest.mark.deep
def test_redis_flushed_and_gateway_restarted(
    site: Site, load: Load, share_group: Group, librdkafka_host: ShareHost
) -> None:
    """Losing Redis loses no record: windows come back from Kafka, at the price of redeliveries."""
    members = at_work(site, load, share_group(), librdkafka_host)
    site.gateway.kill()
    site.flush()
    site.gateway.start()
    load.produce(200)
    finish(members, load)


@pytest.mark.deep
def test_redis_flushed_while_running(
    site: Site, load: Load, share_group: Group, librdkafka_host: ShareHost
) -> None:
    members = at_work(site, load, share_group(), librdkafka_host)
    site.flush()
    load.produce(200)
    finish(members, load)
    assert site.gateway.running


@pytest.mark.deep
def test_redis_restarted_while_running(
    site: Site, load: Load, share_group: Group, librdkafka_host: ShareHost
) -> None:
    """The gateway waits and says so; clients see retriable errors at most; nothing is lost.

    A stock client does not repeat an acknowledgement that failed: those records come again when
    their locks end.
    """
    members = at_work(site, load, share_group("lock"), librdkafka_host)  # locks of 1.5 s
    before = len(site.gateway.log_text())
    site.redis.kill()
    wait_until(
        lambda: (
            "redis" in site.gateway.log_text()[before:].lower()
            or "store" in site.gateway.log_text()[before:].lower()
        ),
        what="a log line about the store",
        deadline_s=20,
    )
    assert site.gateway.running
    site.redis.start()
    load.produce(200)
    finish(members, load)
    assert_confirmed_never_come_again(members)


@pytest.mark.deep
def test_redis_full_while_running(
    site: Site, load: Load, share_group: Group, any_host: ShareHost
) -> None:
    """Without room in Redis no window begins a delivery, and the node says why. With room again the
    groups go on by themselves; nothing is lost, and what was confirmed stays so.
    """
    members = at_work(site, load, share_group("lock"), any_host)
    with Redis.from_url(site.redis.url) as admin:
        admin.config_set("maxmemory", 1)
        status, said = health(site.gateway)
        assert (status, said["status"]) == (503, "not ready")
        assert said["reasons"][0].startswith("Redis refuses to write: ")
        load.produce(RECORDS)
        wait_until(
            lambda: any("windows wait" in why for why in health(site.gateway)[1]["reasons"]),
            what="the windows of the group wait",
            deadline_s=SETTLED_S_MAX,
        )
        admin.config_set("maxmemory", 0)
    load.produce(200)
    finish(members, load)
    assert_confirmed_never_come_again(members)


@pytest.mark.deep
def test_upstream_broker_restarted(
    plain_kafka: KafkaCluster, tmp_path: Path, fresh_name: Name, java_host: ShareHost
) -> None:
    """The only broker goes and returns under load."""
    name = fresh_name("restart")
    create_topic(plain_kafka.bootstrap_servers, name, partitions=2)
    with EmbeddedRedis(tmp_path / "redis") as redis:
        gateway = GatewayProcess(
            tmp_path / "gateway",
            plain_kafka.bootstrap_servers,
            groups=GROUPS,
            redis_url=redis.url,
        )
        with gateway:
            load = Load(plain_kafka, name)
            members = at_work(Site(gateway, redis), load, fresh_name("group"), java_host)
            plain_kafka.restart()
            load.produce(200)
            finish(members, load)
            assert_confirmed_never_come_again(members)


@pytest.mark.deep
def test_attempts_survive_a_restart(
    site: Site, load: Load, share_group: Group, librdkafka_host: ShareHost
) -> None:
    """Scenario 18: three deliveries allowed, two before the crash: one more, then the policy."""
    group = share_group("drop")
    produce(load.kafka.bootstrap_servers, load.topic, [(b"k", b"poison")], partition=0)
    first = librdkafka_host.member(site.gateway.bootstrap, group, [load.topic], explicit=True)
    for attempt in (1, 2):
        batch = first.poll_some()
        assert [record.delivery_count for record in batch] == [attempt]
        first.settle("RELEASE", batch)
    first.close()
    site.gateway.kill()
    site.gateway.start()
    second = librdkafka_host.member(site.gateway.bootstrap, group, [load.topic], explicit=True)
    batch = second.poll_some()
    assert [record.delivery_count for record in batch] == [3]
    second.settle("RELEASE", batch)
    assert second.poll_empty(1.5) == [], "dropped"
    second.close()


@pytest.mark.deep
@pytest.mark.parametrize("flushed", [False, True], ids=["redis-kept", "redis-flushed"])
def test_holes_survive_a_crash(
    site: Site, kafka: KafkaCluster, topic: Topic, share_group: Group, *, flushed: bool
) -> None:
    """Scenario 21: half of 2,000 records accepted at random; only the others come again.

    Also when Redis forgot everything: the settled bitmap is in the metadata of Kafka's commit.
    """
    name, group = topic(partitions=1), share_group()
    produce(kafka.bootstrap_servers, name, [(b"k%d" % at, b"v") for at in range(2_000)])
    chosen = set(random.Random(21).sample(range(1, 2_000), 1_000))
    with ShareSession(site.gateway.bootstrap, group, name).join() as session:
        held: set[int] = set()
        # 1,000 in flight per member at most: accepted ones make room for more.
        deadline = time.monotonic() + patient_s(60)
        while not chosen <= held:
            assert time.monotonic() < deadline, f"{len(held)} of 2,000 were handed out"
            got = session.fetch(max_wait_ms=200).get(0)
            fresh = [] if got is None else got.offsets
            held |= set(fresh)
            accepted = [(at, at, [ACCEPT]) for at in fresh if at in chosen]
            refused = [(at, at, [RELEASE]) for at in fresh if at not in chosen]
            if fresh:
                assert session.acknowledge({0: sorted(accepted + refused)}) == {0: 0}
        session.leave()
    # Offset 0 stays, so that the cursor stays; the rest is in the metadata.
    wait_until(
        lambda: decode_commit(*committed(kafka, group, name, 0)) == runs(chosen),
        what="all that is settled committed",
        deadline_s=60,
    )
    site.gateway.kill()
    if flushed:
        site.flush()
    site.gateway.start()
    with ShareSession(site.gateway.bootstrap, group, name).join() as session:
        again: set[int] = set()
        deadline = time.monotonic() + patient_s(60)
        while len(again) < 1_000:
            assert time.monotonic() < deadline, f"{len(again)} of 1,000 came again"
            for part in session.fetch(max_wait_ms=200).values():
                again |= set(part.offsets)
                acks = [(at, at, [ACCEPT]) for at in part.offsets]
                if acks:
                    assert session.acknowledge({0: acks}) == {0: 0}
        assert not again & chosen, "no settled record comes again"
        assert again == set(range(2_000)) - chosen
        session.leave()


def runs(offsets: set[int]) -> list[tuple[int, int]]:
    """First and last of each run of offsets, ascending."""
    firsts = sorted(at for at in offsets if at - 1 not in offsets)
    lasts = sorted(at for at in offsets if at + 1 not in offsets)
    return list(zip(firsts, lasts, strict=True))


def test_a_connection_that_ends_with_an_acknowledgement_under_way(
    site: Site, load: Load, share_group: Group, java_host: ShareHost
) -> None:
    """The Java client alone calls that UNKNOWN_SERVER_ERROR, with Kafka's own share groups as here.

    kafka-clients 4.3.1 knows no error code for its DisconnectException, and asks for one
    (handleShareAcknowledgeFailure, ShareConsumeRequestManager.java:1079). It was not confirmed, and
    may count all the same, if its step had reached the store; else the record comes again.
    """
    group = share_group()
    produce(load.kafka.bootstrap_servers, load.topic, [(b"k", b"v")], partition=0)
    member = java_host.member(site.gateway.bootstrap, group, [load.topic], explicit=True)
    batch = member.poll_some()
    assert [record.delivery_count for record in batch] == [1]
    assert site.redis.pid is not None
    os.kill(site.redis.pid, signal.SIGSTOP)
    try:
        member.acknowledge("ACCEPT", batch)
        member.begin("commit", 300_000)
        wait_until(
            # A window that has given up waiting for the store shows none.
            lambda: sum(row.get("in_flight", 0) for row in windows_of(site.gateway, group)) == 0,
            what="the acknowledgement handled, and not answered",
            deadline_s=30,  # to be handled; from then on the store is waited for
        )
        site.gateway.kill()
        member.finish()
    finally:
        os.kill(site.redis.pid, signal.SIGCONT)
    said = {acked.error for acked in member.acked}
    assert said == {
        "UnknownServerException: The server experienced an unexpected error when processing the"
        " request."
    }
    site.gateway.start()

    def counts() -> bool:
        if again := member.poll_empty(0.5):
            member.acknowledge("ACCEPT", again)
            member.commit()
        return committed(load.kafka, group, load.topic, 0)[0] == 1

    wait_until(counts, what="the record counted, at once or when it came again", deadline_s=90)
    member.close()


@pytest.mark.deep
def test_a_member_and_the_gateway_die_together(
    site: Site,
    load: Load,
    share_group: Group,
    new_host: Callable[[str], ShareHost],
    librdkafka_host: ShareHost,
) -> None:
    """Records of the dead member are redelivered after the restart, once its lease ends."""
    group = share_group("lock")  # leases of 1.5 s
    load.produce(400)
    host = new_host("librdkafka")
    dying = host.member(site.gateway.bootstrap, group, [load.topic], explicit=True)
    held = dying.poll_some()
    assert held
    host.kill()
    site.gateway.kill()
    site.gateway.start()
    heir = librdkafka_host.member(site.gateway.bootstrap, group, [load.topic])
    heir.begin_consume(120)
    wait_for_deliveries([heir], 400)
    wait_until(lambda: len(accepted_places([heir])) == 400, what="all accepted", deadline_s=30)
    heir.end_consume()
    heir.close()
    assert_first_deliveries_in_order(deliveries_of([heir]))
    counts = {delivery.place: delivery.delivery_count for delivery in heir.deliveries}
    assert all((counts[record.place] or 0) >= 2 for record in held)
