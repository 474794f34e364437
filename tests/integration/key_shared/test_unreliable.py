"""A group with `reliable: false` and stock share consumers: the losses of a saturated member
are counted, its records are in order, nothing comes again, and Redis never hears of the group.
"""

from __future__ import annotations

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator

import pytest
import redis

from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.redis import EmbeddedRedis
from gateway.routing.lone import KEY
from tests.rig.clients.order import assert_never_backwards
from tests.rig.clients.share_members import ShareHost
from tests.rig.committed import wait_for_committed
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import produce
from tests.rig.operating import metrics
from tests.rig.patience import patient_s, wait_until

pytestmark = pytest.mark.integration

WAITING_MAX = 50


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path_factory.mktemp("unreliable-redis")) as server:
        yield server


@pytest.fixture(scope="module")
def gateway(
    kafka: KafkaCluster, store: EmbeddedRedis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    """A gateway of this file alone, so that everything in its Redis is of these groups."""
    group = {
        "match": "*",
        "reliable": False,
        "in_flight_per_member_max": WAITING_MAX,
        "auto_offset_reset": "earliest",
        "lock_duration_ms": 500,
    }
    with GatewayProcess(
        tmp_path_factory.mktemp("unreliable-gateway"),
        kafka.bootstrap_servers,
        groups=[group],
        redis_url=store.url,
        state={"commit_interval_ms": 300},
    ) as process:
        yield process


def dropped(gateway: GatewayProcess, group: str) -> int:
    url = f"http://{gateway.admin}/v1/groups/{urllib.parse.quote(group)}"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return sum(int(window.get("dropped", 0)) for window in json.load(answer)["partitions"])


def counted(gateway: GatewayProcess, group: str, outcome: str) -> float:
    sample = f'keyway_group_records_total{{group="{group}",outcome="{outcome}"}}'
    return metrics(gateway).get(sample, 0.0)


def test_a_saturated_consumer_loses_records_in_order_and_counted(
    gateway: GatewayProcess,
    store: EmbeddedRedis,
    kafka: KafkaCluster,
    topic: Callable[..., str],
    fresh_name: Callable[[str], str],
    any_host: ShareHost,
) -> None:
    name, group = topic(partitions=1), fresh_name("lossy")
    member = any_host.member(gateway.bootstrap, group, [name], explicit=True)
    produce(gateway.bootstrap, name, [(b"key-%d" % (at % 5), b"%d" % at) for at in range(20)])
    while len(member.deliveries) < 20:
        batch = member.poll_some()
        assert batch, f"stuck after {len(member.deliveries)} of 20"
        member.settle("RELEASE", batch)
    # It pauses: records that do not fit while it is away are dropped.
    produce(gateway.bootstrap, name, [(b"key-%d" % (at % 5), b"%d" % at) for at in range(1_000)])
    wait_until(lambda: dropped(gateway, group) > 0, what="records dropped", deadline_s=30)
    deadline = time.monotonic() + patient_s(60)
    while len(member.deliveries) + dropped(gateway, group) < 1_020:
        assert time.monotonic() < deadline, f"{len(member.deliveries)} delivered"
        member.settle("ACCEPT", member.poll(0.2))
    assert counted(gateway, group, "undelivered") == dropped(gateway, group) >= 500
    assert counted(gateway, group, "sent") == len(member.deliveries)
    assert len({delivery.offset for delivery in member.deliveries}) == len(member.deliveries)
    assert {delivery.delivery_count for delivery in member.deliveries} == {1}
    assert_never_backwards(member.deliveries)
    wait_for_committed(kafka, group, name, 0, 1_020)
    member.close()
    with redis.Redis(unix_socket_path=str(store.socket_path)) as client:
        # That the node is there, that the index of windows is complete, and no window.
        assert set(client.keys("*")) <= {KEY.encode(), b"keyway:indexed"}
