"""Key-Shared groups with stock share consumers: every key in order, whatever the number and kind of
members.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable

import psutil
import pytest

from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.order import (
    assert_first_deliveries_in_order,
    assert_never_backwards,
    assert_one_of_a_key,
)
from tests.rig.clients.share_lines import Delivery, TopicPartitionOffset
from tests.rig.clients.share_members import ShareHost, ShareMember, consume_all, deliveries_of
from tests.rig.committed import wait_for_committed
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import Sent, produce
from tests.rig.operating import poll_until_up
from tests.rig.patience import patient_s, wait_until
from tests.rig.topic_contents import places_upstream

pytestmark = pytest.mark.integration

Topic = Callable[..., str]
Group = Callable[..., str]


def keyed(keys: int, each: int, *, seed: int = 1) -> list[Sent]:
    """`each` numbered records of every key, mixed."""
    records = [b"key-%d" % key for key in range(keys) for _ in range(each)]
    random.Random(seed).shuffle(records)
    return [(key, b"%d" % at) for at, key in enumerate(records)]


def close_all(members: Iterable[ShareMember]) -> None:
    for member in members:
        member.close()


def consume_until_all_joined(front: str, topic: str, members: list[ShareMember]) -> int:
    """Starts all members and produces records of many keys until each member has had one; how many
    were produced.
    """
    for member in members:
        member.begin_consume()
    deadline = time.monotonic() + patient_s(30)
    sent = 0
    while not all(member.deliveries for member in members):
        assert time.monotonic() < deadline, "some member never gets anything"
        produce(front, topic, [(b"warm-%d" % at, b"warm") for at in range(100)])
        sent += 100
    return sent


@pytest.mark.parametrize(
    "kinds",
    [
        ["librdkafka"] * 4,
        pytest.param(["java"] * 3, marks=pytest.mark.deep),
        ["java", "librdkafka"] * 2,
    ],
)
def test_affinity_and_order(
    front: str, topic: Topic, share_group: Group, request: pytest.FixtureRequest, kinds: list[str]
) -> None:
    """Scenario 1, and one group of clients of different kinds: every key at one member, in offset
    order.
    """
    name = topic(partitions=1)
    group = share_group()
    hosts = [request.getfixturevalue(f"{kind}_host") for kind in kinds]
    members = [host.member(front, group, [name]) for host in hosts]
    total = consume_until_all_joined(front, name, members) + 6_000
    produce(front, name, keyed(300, 20))
    wait_until(
        lambda: sum(len(member.deliveries) for member in members) >= total,
        what=f"{total} records",
        deadline_s=60,
    )
    for member in members:
        member.end_consume()
    deliveries = deliveries_of(members)
    assert [taken.offset for taken in sorted(deliveries, key=lambda record: record.offset)] == list(
        range(total)
    )
    assert_never_backwards(deliveries)
    owners: dict[bytes | None, set[str]] = {}
    for delivery in deliveries:
        if delivery.value != b"warm":
            owners.setdefault(delivery.key, set()).add(delivery.member)
    assert len(owners) == 300
    assert all(len(members_of_key) == 1 for members_of_key in owners.values())
    assert len(set.union(*owners.values())) >= 2, "more than one member works"
    close_all(members)


def test_four_partitions_and_both_acknowledgement_modes(
    front: str, kafka: KafkaCluster, topic: Topic, share_group: Group, share_host: ShareHost
) -> None:
    name = topic(partitions=4)
    produce(front, name, keyed(50, 20))
    group = share_group()
    members = [
        share_host.member(front, group, [name], explicit=True),
        share_host.member(front, group, [name], explicit=False),
    ]
    consume_all(members, places_upstream(kafka, name, 4))
    deliveries = deliveries_of(members)
    assert len(deliveries) == 1_000
    assert all(delivery.delivery_count == 1 for delivery in deliveries)
    assert_never_backwards(deliveries)
    close_all(members)


def test_one_record_of_a_key_in_flight(
    front: str, topic: Topic, share_group: Group, share_host: ShareHost
) -> None:
    name = topic(partitions=1)
    produce(front, name, keyed(5, 10))
    member = share_host.member(front, share_group(), [name], explicit=True)
    values: list[Delivery] = []
    while len(values) < 50:
        batch = member.poll_some()
        assert batch, f"stuck after {len(values)} of 50"
        assert_one_of_a_key(batch)
        member.settle("ACCEPT", batch)
        values += batch
    assert_never_backwards(values)
    member.close()


def test_two_groups_read_one_topic_independently(
    front: str, kafka: KafkaCluster, topic: Topic, share_group: Group, librdkafka_host: ShareHost
) -> None:
    name = topic(partitions=2)
    produce(front, name, keyed(20, 10))
    wanted = places_upstream(kafka, name, 2)
    groups = [share_group(), share_group()]
    members = [librdkafka_host.member(front, group, [name]) for group in groups]
    for member in members:
        consume_all([member], wanted)
        assert len(member.deliveries) == 200
        assert_never_backwards(member.deliveries)
    close_all(members)


def test_one_member_reads_two_topics(
    front: str, kafka: KafkaCluster, topic: Topic, share_group: Group, share_host: ShareHost
) -> None:
    names = [topic(partitions=1), topic(partitions=2)]
    for name in names:
        produce(front, name, keyed(10, 10))
    member = share_host.member(front, share_group(), names)
    consume_all([member], places_upstream(kafka, names[0], 1) | places_upstream(kafka, names[1], 2))
    assert len(member.deliveries) == 200
    assert_never_backwards(member.deliveries)
    member.close()


def test_members_come_and_go_without_disorder(
    front: str, kafka: KafkaCluster, topic: Topic, share_group: Group, share_host: ShareHost
) -> None:
    """Joins and clean leaves in the middle of traffic (scenario 4's heart): nothing lost, nothing
    backwards.
    """
    name = topic(partitions=2)
    group = share_group()
    members = [share_host.member(front, group, [name]) for _ in range(2)]
    for member in members:
        member.begin_consume()
    gone: list[ShareMember] = []
    total = 0
    for at in range(6):
        produce(front, name, keyed(40, 10, seed=at))
        total += 400
        if at % 2 == 0:
            members.append(share_host.member(front, group, [name]))
            members[-1].begin_consume()
        else:
            gone.append(members.pop(0))
            gone[-1].end_consume()
            gone[-1].close()
    everyone = gone + members
    wait_until(
        lambda: sum(len(member.deliveries) for member in everyone) >= total,
        what=f"{total} records",
        deadline_s=60,
    )
    for member in members:
        member.end_consume()
    deliveries = deliveries_of(everyone)
    assert {delivery.place for delivery in deliveries} == places_upstream(kafka, name, 2)
    assert_never_backwards(deliveries)
    close_all(members)


def test_null_keys_are_not_ordered_and_not_lost(
    front: str, topic: Topic, share_group: Group, share_host: ShareHost
) -> None:
    """A null key is no key: many such records may be in flight at once, and an empty key
    is a key.
    """
    name = topic(partitions=1)
    produce(front, name, [(None, b"%d" % at) for at in range(100)])
    produce(front, name, [(b"", b"empty-%d" % at) for at in range(3)])
    member = share_host.member(front, share_group(), [name], explicit=True)
    first = member.poll_some()
    nulls = [delivery for delivery in first if delivery.key is None]
    assert len(nulls) > 1, "null keys do not wait for each other"
    assert len([delivery for delivery in first if delivery.key == b""]) <= 1
    member.settle("ACCEPT", first)
    got = list(first)
    while len(got) < 103:
        batch = member.poll_some()
        assert batch, f"stuck after {len(got)} of 103"
        member.settle("ACCEPT", batch)
        got += batch
    assert {delivery.value for delivery in got if delivery.key is None} == {
        b"%d" % at for at in range(100)
    }
    assert [record.value for record in got if record.key == b""] == [
        b"empty-0",
        b"empty-1",
        b"empty-2",
    ]
    member.close()


def test_key_filters_route_and_skip(
    gateway: GatewayProcess,
    kafka: KafkaCluster,
    topic: Topic,
    share_group: Group,
    librdkafka_host: ShareHost,
) -> None:
    """Members get the keys their globs accept; a record that nobody accepts is settled, once nobody
    waits any longer for members of a new group.
    """
    name, group, front = topic(partitions=1), share_group("filter"), gateway.bootstrap
    europe = librdkafka_host.member(front, group, [name], name="eu-member")
    america = librdkafka_host.member(front, group, [name], name="us-member")
    for member in (europe, america):
        member.begin_consume()
    deadline = time.monotonic() + patient_s(30)
    warm = 0
    while not (europe.deliveries and america.deliveries):
        assert time.monotonic() < deadline, "some member never gets anything"
        produce(front, name, [(b"eu-1", b"warm"), (b"us-1", b"warm")])
        warm += 2
    keys = [b"eu-1", b"us-1", b"us-12", b"asia-1", b"eu-west"]
    produce(front, name, [(key, b"%d" % at) for at in range(20) for key in keys])

    def main_part(member: ShareMember) -> list[Delivery]:
        return [delivery for delivery in list(member.deliveries) if delivery.value != b"warm"]

    wait_until(
        lambda: len(main_part(europe)) >= 40 and len(main_part(america)) >= 20,
        what="40 European and 20 American records",
        deadline_s=30,
    )
    for member in (europe, america):
        member.end_consume()
    assert {delivery.key for delivery in main_part(europe)} == {b"eu-1", b"eu-west"}
    assert {delivery.key for delivery in main_part(america)} == {b"us-1"}
    assert_never_backwards(deliveries_of([europe, america]))
    # Skipped records do not hold the cursor: Kafka's committed offset reaches the end.
    wait_for_committed(kafka, group, name, 0, warm + 100)
    close_all([europe, america])


def test_hot_key_does_not_stop_the_others(
    front: str, topic: Topic, share_group: Group, librdkafka_host: ShareHost
) -> None:
    """Scenario 10 in small: 3,000 records of one key ahead of 300 others, their first
    record held.
    """
    name = topic(partitions=1)
    produce(front, name, [(b"hot", b"%d" % at) for at in range(3_000)])
    produce(front, name, [(b"cold-%d" % at, b"x") for at in range(300)])
    member = librdkafka_host.member(front, share_group(), [name], explicit=True)
    cold: set[bytes | None] = set()
    held: list[Delivery] = []
    while len(cold) < 300:
        batch = member.poll_some(10)
        assert batch, f"starved after {len(cold)} of 300 cold keys"
        held += [delivery for delivery in batch if delivery.key == b"hot"]
        assert len(held) <= 300, "each hot record is released, never accepted"
        cold |= {delivery.key for delivery in batch if delivery.key != b"hot"}
        member.acknowledge("RELEASE", [record for record in batch if record.key == b"hot"])
        member.acknowledge("ACCEPT", [record for record in batch if record.key != b"hot"])
        member.commit()
    assert {delivery.offset for delivery in held} <= {0}, "the hot key never went past its first"
    member.close()


def test_slow_member_delays_only_its_own_keys(
    front: str, kafka: KafkaCluster, topic: Topic, share_group: Group, share_host: ShareHost
) -> None:
    """Scenarios 8 and 9: a member that holds records and polls no more does not stop the other's
    keys.
    """
    name = topic(partitions=1)
    group = share_group("cap")
    slow = share_host.member(front, group, [name], explicit=True)
    produce(front, name, keyed(200, 1))
    held = slow.poll_some()
    assert held
    quick = share_host.member(front, group, [name])
    produce(front, name, keyed(200, 10, seed=2))
    quick.begin_consume()
    # The ring gives the newcomer its share; at least a fifth of the keys is far below any real
    # split.
    wait_until(
        lambda: len({delivery.key for delivery in quick.deliveries}) >= 40,
        what="the quick member's keys",
        deadline_s=30,
    )
    assert not {delivery.place for delivery in quick.deliveries} & {record.place for record in held}
    slow.settle("ACCEPT", held)
    slow.close()
    wanted = places_upstream(kafka, name, 1) - {delivery.place for delivery in held}
    wait_until(
        lambda: wanted <= {delivery.place for delivery in quick.deliveries},
        what="the rest, once the slow member left",
        deadline_s=30,
    )
    quick.end_consume()
    assert_never_backwards(deliveries_of([slow, quick]))
    quick.close()


def test_nothing_is_read_without_consumers(
    gateway: GatewayProcess,
    kafka: KafkaCluster,
    topic: Topic,
    share_group: Group,
    librdkafka_host: ShareHost,
) -> None:
    """After the last member left, megabytes that arrive upstream are not fetched; a new member then
    gets them.
    """
    name = topic(partitions=1)
    group = share_group()
    member = librdkafka_host.member(gateway.bootstrap, group, [name])
    produce(kafka.bootstrap_servers, name, [(b"first", b"x")])
    consume_all([member], {(name, 0, 0)})
    member.close()
    process = psutil.Process(gateway.pid)
    before = process.io_counters().read_chars
    size = 16 << 20  # the long poll that was out when the member left may bring 1 MiB
    produce(kafka.bootstrap_servers, name, [(b"k%d" % at, bytes(8192)) for at in range(2048)])
    late = librdkafka_host  # Time passes here by work, not by sleeping: a group on another topic.
    other = topic(partitions=1)
    produce(gateway.bootstrap, other, keyed(10, 5))
    busy = late.member(gateway.bootstrap, share_group(), [other])
    consume_all([busy], places_upstream(kafka, other, 1))
    busy.close()
    read = process.io_counters().read_chars - before
    assert read < size / 8, f"the gateway read {read:,} bytes for a group without members"
    again = late.member(gateway.bootstrap, group, [name])
    consume_all([again], {(name, 0, offset) for offset in range(1, 2049)})
    again.close()
    assert process.io_counters().read_chars - before > size, "this counter sees all reads"


def test_latest_is_where_a_group_starts_by_default(
    gateway: GatewayProcess, topic: Topic, share_group: Group, share_host: ShareHost
) -> None:
    name = topic(partitions=1)
    produce(gateway.bootstrap, name, [(b"old", b"old")] * 5)
    group = share_group("latest")
    member = share_host.member(gateway.bootstrap, group, [name])
    assert poll_until_up(gateway, group, member) == []
    produce(gateway.bootstrap, name, [(b"new", b"new")])
    got = member.poll_some()
    assert [delivery.value for delivery in got] == [b"new"]
    member.close()


def test_first_deliveries_in_order_with_redelivery(
    front: str, topic: Topic, share_group: Group, share_host: ShareHost
) -> None:
    """A RELEASE in the middle of each key does not let the later records of the key pass."""
    name = topic(partitions=1)
    produce(front, name, keyed(20, 5))
    member = share_host.member(front, share_group("drop"), [name], explicit=True)
    done: set[TopicPartitionOffset] = set()
    released: set[TopicPartitionOffset] = set()
    while len(done) < 100:
        batch = member.poll_some()
        assert batch, f"stuck after {len(done)} of 100"
        again = [
            record for record in batch if record.offset % 7 == 0 and record.place not in released
        ]
        released |= {delivery.place for delivery in again}
        kept = [delivery for delivery in batch if delivery not in again]
        member.acknowledge("RELEASE", again)
        member.acknowledge("ACCEPT", kept)
        member.commit()
        done |= {delivery.place for delivery in kept}
    assert_never_backwards(member.deliveries)
    assert_first_deliveries_in_order(member.deliveries)
    twice = [delivery for delivery in member.deliveries if delivery.delivery_count == 2]
    assert {delivery.place for delivery in twice} == released
    member.close()
