"""Keys that change owner while a record of theirs is in flight, with stock share consumers: nothing
of the key moves before that record is settled, everything else does at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.order import assert_never_backwards
from tests.rig.clients.share_lines import Delivery
from tests.rig.clients.share_members import ShareHost, ShareMember, deliveries_of
from tests.rig.committed import wait_for_committed
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import produce
from tests.rig.operating import keys_of, members_of, owner_of, windows_of
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

Topic = Callable[..., str]
Group = Callable[..., str]
KEYS, EACH = 40, 3


def open_member(
    gateway: GatewayProcess, host: ShareHost, group: str, topic: str, others: int
) -> ShareMember:
    """Opens an explicit member and returns when the node knows it, beside `others`."""
    member = host.member(gateway.bootstrap, group, [topic], explicit=True)

    def joined() -> bool:
        assert member.poll(0.1) == []
        return len(members_of(gateway, group)) == others + 1

    wait_until(joined, what="joined", deadline_s=30)
    return member


@dataclass
class Drained:
    """`first` holds the first record of every key when `second` joins and becomes the owner of
    half of the keys.
    """

    gateway: GatewayProcess
    topic: str
    group: str
    first: ShareMember
    second: ShareMember
    held: list[Delivery]
    moved: list[Delivery]  # of them, those whose key is the second's now

    def window(self) -> dict[str, Any]:
        (row,) = windows_of(self.gateway, self.group)
        return row

    def draining(self) -> list[tuple[int, int]]:
        """Per member: draining keys, and the records that wait behind them."""
        rows: list[dict[str, Any]] = self.window()["members"]
        return sorted((row["draining_keys"], row["draining_blocked"]) for row in rows)

    def cleared(self) -> list[int]:
        """Keys that have drained: of the window, then of each member, ascending."""
        rows: list[dict[str, Any]] = self.window()["members"]
        return [self.window()["draining_cleared"], *sorted(row["draining_cleared"] for row in rows)]


Drain = Callable[[ShareHost, ShareHost], Drained]


@pytest.fixture
def drain(gateway: GatewayProcess, topic: Topic, share_group: Group) -> Drain:
    def start(host: ShareHost, other: ShareHost) -> Drained:
        name, group = topic(partitions=1), share_group("patient")
        keys = [b"old-%d" % at for at in range(KEYS)]
        produce(gateway.bootstrap, name, [(key, b"%d" % at) for at in range(EACH) for key in keys])
        first = host.member(gateway.bootstrap, group, [name], explicit=True)
        held = first.poll_count(KEYS)
        assert [record.value for record in held] == [b"0"] * KEYS
        second = open_member(gateway, other, group, name, others=1)
        members = members_of(gateway, group)
        moved = [record for record in held if owner_of(members, record.key or b"") == second.name]
        assert moved
        return Drained(gateway, name, group, first, second, held, moved)

    return start


@pytest.mark.parametrize(("kind", "other"), [("librdkafka", "java"), ("java", "librdkafka")])
def test_a_key_drains_and_the_others_do_not_wait(
    drain: Drain, kafka: KafkaCluster, request: pytest.FixtureRequest, kind: str, other: str
) -> None:
    """Scenario 5: a new key of the newcomer comes at once, one that drains after its record was
    accepted; the operator sees how many, and that they are none in the end.
    """
    drained = drain(
        request.getfixturevalue(f"{kind}_host"), request.getfixturevalue(f"{other}_host")
    )
    assert drained.draining() == [(0, 0), (len(drained.moved), len(drained.moved) * (EACH - 1))]
    (new_key,) = keys_of(members_of(drained.gateway, drained.group), drained.second.name, 1)
    produce(drained.gateway.bootstrap, drained.topic, [(new_key, b"new")])
    got = drained.second.poll_some()  # which the locks of `first` outlast
    assert [(one.key, one.value) for one in got] == [(new_key, b"new")]
    drained.second.settle("ACCEPT", got)
    assert drained.second.poll_empty(1.0) == []
    drains = drained.window()["draining"]
    assert len(drains) == len(drained.moved)
    assert all(drain["attempts"] > 0 for drain in drains), "the newcomer asks in vain"
    assert drained.cleared() == [0, 0, 0]
    drained.first.settle("ACCEPT", drained.held)
    wait_until(lambda: drained.draining() == [(0, 0), (0, 0)], what="drained", deadline_s=10)
    assert drained.cleared() == [len(drained.moved), 0, len(drained.moved)]
    next_ones = drained.second.poll_some()
    assert {one.key for one in next_ones} <= {one.key for one in drained.moved}
    assert {one.value for one in next_ones} == {b"1"}
    drained.second.settle("ACCEPT", next_ones)
    for member in (drained.first, drained.second):
        member.begin_consume()
    wait_for_committed(kafka, drained.group, drained.topic, 0, KEYS * EACH + 1)
    for member in (drained.first, drained.second):
        member.end_consume()
    everything = deliveries_of([drained.first, drained.second])
    assert len(everything) == KEYS * EACH + 1
    assert_never_backwards(everything)
    drained.first.close()
    drained.second.close()


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["librdkafka", "java"])
def test_the_heir_of_a_killed_holder_begins_where_it_stood(
    drain: Drain,
    kafka: KafkaCluster,
    new_host: Callable[[str], ShareHost],
    librdkafka_host: ShareHost,
    kind: str,
) -> None:
    """Scenarios 2 and 3 (PIP-282's issues 1 and 2): nothing of the key comes to its new owner while
    the old one holds it; when that one is killed, all of it does, in order.
    """
    host = new_host(kind)
    drained = drain(host, librdkafka_host)
    assert drained.second.poll_empty(1.0) == []
    host.kill()
    drained.second.begin_consume()
    wait_for_committed(kafka, drained.group, drained.topic, 0, KEYS * EACH)
    drained.second.end_consume()
    assert len(drained.second.deliveries) == KEYS * EACH
    assert_never_backwards(drained.second.deliveries)
    twice = {one.place for one in drained.second.deliveries if one.delivery_count == 2}
    assert twice == {one.place for one in drained.held}
    drained.second.close()


@pytest.mark.deep
@pytest.mark.parametrize("ending", ["accepts", "leaves"])
def test_a_key_that_returns_home_goes_on_without_new_traffic(
    drain: Drain,
    gateway: GatewayProcess,
    librdkafka_host: ShareHost,
    java_host: ShareHost,
    ending: str,
) -> None:
    """Scenario 6: the newcomer leaves again, so that nothing drains; the holder accepts, or leaves
    to a third member, and the next records come at once though nothing is produced.
    """
    drained = drain(java_host, librdkafka_host)
    drained.second.close()
    wait_until(lambda: drained.draining() == [(0, 0)], what="nothing drains", deadline_s=10)
    if ending == "accepts":
        drained.first.settle("ACCEPT", drained.held)
        heir, value = drained.first, b"1"
    else:
        heir = open_member(gateway, librdkafka_host, drained.group, drained.topic, others=1)
        drained.first.close()
        value = b"0"
    got = heir.poll_some()  # which the locks of `first` outlast
    assert {one.value for one in got} == {value}
    heir.settle("ACCEPT", got)
    assert all(keys == 0 for keys, _ in drained.draining())
    heir.close()
    if ending == "accepts":
        return
    assert_never_backwards(deliveries_of([drained.first, heir]))


def test_who_was_full_gets_the_older_record_first(
    gateway: GatewayProcess, topic: Topic, share_group: Group, any_host: ShareHost
) -> None:
    """Scenario 11: k1 comes while its owner holds all that it may, k2 when it has room again."""
    name, group = topic(partitions=1), share_group("cap")
    produce(gateway.bootstrap, name, [(b"held-%d" % at, b"x") for at in range(10)])
    member = any_host.member(gateway.bootstrap, group, [name], explicit=True)
    held = member.poll_count(10)
    produce(gateway.bootstrap, name, [(b"k", b"k1")])
    wait_until(
        lambda: windows_of(gateway, group)[0]["unsettled"] == 11, what="k1 read", deadline_s=10
    )
    member.settle("ACCEPT", held[:5])
    produce(gateway.bootstrap, name, [(b"k", b"k2")])
    member.settle("ACCEPT", held[5:])
    values = []
    for _ in range(2):
        batch = member.poll_some()
        values += [record.value for record in batch]
        member.settle("ACCEPT", batch)
    assert values == [b"k1", b"k2"]
    member.close()


def test_a_run_of_a_key_that_is_given_back_comes_again_in_order(
    gateway: GatewayProcess, topic: Topic, share_group: Group, any_host: ShareHost
) -> None:
    """Scenario 17 (PIP-493): three of a key were prefetched and the first failed. The two behind it
    come back with it, in order, and were no redelivery of theirs; the other key does not wait.
    """
    name, group = topic(partitions=1), share_group("prefetch")
    produce(gateway.bootstrap, name, [(b"a", b"%d" % at) for at in range(5)] + [(b"b", b"b")])
    member = any_host.member(gateway.bootstrap, group, [name], explicit=True)
    first = member.poll_count(4)
    assert [record.value for record in first] == [b"0", b"1", b"2", b"b"]
    member.acknowledge("RELEASE", first[:3])
    member.settle("ACCEPT", first[3:])
    again: list[Delivery] = []
    while len(again) < 5:
        batch = member.poll_some()
        assert batch, f"stuck after {again}"
        member.settle("ACCEPT", batch)
        again += batch
    assert [(record.value, record.delivery_count) for record in again] == [
        (b"0", 2),
        (b"1", 1),
        (b"2", 1),
        (b"3", 1),
        (b"4", 1),
    ]
    member.close()
