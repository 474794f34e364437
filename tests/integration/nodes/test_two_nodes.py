"""Two nodes in front of two brokers, one Redis, members of both stock clients in one group: a node
is killed, returns, and is stopped as planned. Nothing lost, keys in order, nothing that was
confirmed comes again.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from redis import Redis

from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.redis import EmbeddedRedis
from gateway.routing.shared_table import KEY
from tests.rig.clients.order import assert_first_deliveries_in_order
from tests.rig.clients.share_lines import TopicPartitionOffset
from tests.rig.clients.share_members import ShareHost, ShareMember, deliveries_of
from tests.rig.gateway_process import GatewayProcess
from tests.rig.groups import GROUPS
from tests.rig.kafka import create_topic, produce
from tests.rig.operating import keyway
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

Name = Callable[[str], str]
KEYS = 40
PARTITIONS = 4
PORTION = 20


@dataclass
class Nodes:
    """`a` and `b` in front of the same Kafka, with the same Redis."""

    redis: EmbeddedRedis
    a: GatewayProcess
    b: GatewayProcess

    @property
    def bootstrap(self) -> str:
        return f"{self.a.bootstrap},{self.b.bootstrap}"

    def owners(self) -> dict[int, str]:
        """Of virtual brokers that do not move at the moment."""
        with Redis.from_url(self.redis.url) as client:
            stored = client.hget(KEY, "owners")
        assert isinstance(stored, bytes | None)
        said = json.loads(stored or '{"owners": {}, "next": {}}')
        return {} if said["next"] else {int(broker): it for broker, it in said["owners"].items()}

    def listed(self, node: GatewayProcess) -> dict[str, str]:
        """The states of all nodes, as this one shows them; what it owns is what Redis says."""
        status, said, problem = keyway(node, "node", "list", "-o", "json")
        assert status == 0, problem
        answer = json.loads(said)
        owned = {it["node"]: it["owns"] for it in answer["nodes"]}
        owners = self.owners()
        assert {broker: owner for owner, has in owned.items() for broker in has} == owners
        return {it["node"]: it["state"] for it in answer["nodes"]}

    def wait_for_owners(self, *names: str) -> None:
        wait_until(
            lambda: sorted(self.owners().values()) == sorted(names),
            what=f"owners {names}",
            deadline_s=30,
        )


@dataclass
class Load:
    """Records of KEYS keys that come all the time, produced past the gateway."""

    kafka: KafkaCluster
    topic: str
    wanted: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._produce, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _produce(self) -> None:
        while not self._over.wait(0.1):
            keys = [b"k%d" % (at % KEYS) for at in range(self.wanted, self.wanted + PORTION)]
            produce(self.kafka.bootstrap_servers, self.topic, [(key, b"v") for key in keys])
            self.wanted += PORTION


@pytest.fixture
def nodes(kafka_pair: KafkaCluster, tmp_path: Path) -> Iterator[Nodes]:
    with EmbeddedRedis(tmp_path / "redis") as redis:

        def node(name: str) -> GatewayProcess:
            return GatewayProcess(
                tmp_path / name,
                kafka_pair.bootstrap_servers,
                groups=GROUPS,
                redis_url=redis.url,
                nodes={"id": name},
            )

        with node("a") as a, node("b") as b:
            yield Nodes(redis, a, b)


def delivered(members: list[ShareMember]) -> set[TopicPartitionOffset]:
    return {it.place for member in members for it in list(member.deliveries)}


def wait_for_more(members: list[ShareMember], count: int) -> None:
    """Each partition gets on."""
    before = delivered(members)

    def enough() -> bool:
        new = delivered(members) - before
        per_partition = [sum(it[1] == at for it in new) for at in range(PARTITIONS)]
        return min(per_partition) >= count

    wait_until(enough, what=f"{count} more records of each partition", deadline_s=90)


def longest_pause_s(members: list[ShareMember], since_ns: int, until_ns: int) -> float:
    """Of a partition, in this time."""
    longest = 0
    for partition in range(PARTITIONS):
        at = sorted(
            it.at_ns
            for it in deliveries_of(members)
            if it.partition == partition and since_ns <= it.at_ns <= until_ns
        )
        times = [since_ns, *at, until_ns]
        longest = max(longest, *(later - earlier for earlier, later in pairwise(times)))
    return longest / 1e9


def assert_confirmed_never_come_again(members: list[ShareMember]) -> None:
    confirmed: dict[TopicPartitionOffset, int] = {}
    for member in members:
        for acked in member.acked:
            if acked.error is None:
                at = min(acked.at_ns, confirmed.get(acked.place, acked.at_ns))
                confirmed[acked.place] = at
    assert confirmed
    again = [it for it in deliveries_of(members) if it.at_ns > confirmed.get(it.place, 2**63)]
    assert not again, f"{len(again)} confirmed records came again, first {again[:2]}"


def test_a_node_is_killed_returns_and_is_stopped(
    nodes: Nodes,
    kafka_pair: KafkaCluster,
    fresh_name: Name,
    java_host: ShareHost,
    librdkafka_host: ShareHost,
    tmp_path: Path,
) -> None:
    load = Load(kafka_pair, fresh_name("orders"))
    create_topic(kafka_pair.bootstrap_servers, load.topic, partitions=PARTITIONS)
    nodes.wait_for_owners("a", "b")
    group = fresh_name("group")
    hosts = (java_host, librdkafka_host, java_host, librdkafka_host)
    members = [host.member(nodes.bootstrap, group, [load.topic]) for host in hosts]
    for member in members:
        member.begin_consume(300)
    with load.running():
        wait_for_more(members, 20)

        def act(what: str, work: Callable[[], object], *owners: str) -> None:
            since_ns = time.monotonic_ns()
            work()
            nodes.wait_for_owners(*owners)
            wait_for_more(members, 20)
            pause_s = longest_pause_s(members, since_ns, time.monotonic_ns())
            with (tmp_path / "pauses").open("a") as figures:
                figures.write(f"{what} {pause_s:.2f} s\n")

        assert nodes.listed(nodes.b) == {"a": "up", "b": "up"}
        act("killed", nodes.a.kill, "b", "b")
        assert nodes.listed(nodes.b) == {"a": "gone", "b": "up"}
        act("returned", nodes.a.start, "a", "b")
        act("stopped", nodes.b.stop, "a", "a")
        act("started", nodes.b.start, "a", "b")
    wait_until(lambda: len(delivered(members)) >= load.wanted, what="all delivered", deadline_s=90)
    for member in members:
        member.end_consume()
        member.close()
    assert len(delivered(members)) == load.wanted
    assert_first_deliveries_in_order(deliveries_of(members))
    assert_confirmed_never_come_again(members)
    for node in (nodes.a, nodes.b):
        assert not re.search(r"handler_failed|dispatcher_bug|Traceback", node.log_text())
