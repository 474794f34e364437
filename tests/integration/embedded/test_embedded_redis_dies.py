"""The embedded Redis of a real gateway is killed: it is started again, and nothing is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.wire_client import ShareSession
from tests.rig.committed import wait_for_committed
from tests.rig.gateway_process import GatewayProcess
from tests.rig.kafka import produce
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

ACCEPT = 1
KEYS = [b"k%d" % at for at in range(50)]


@pytest.fixture
def gateway(kafka: KafkaCluster, tmp_path: Path) -> Iterator[GatewayProcess]:
    groups = [{"match": "*", "auto_offset_reset": "earliest"}]
    state = {"commit_interval_ms": 500}
    with GatewayProcess(tmp_path, kafka.bootstrap_servers, groups=groups, state=state) as process:
        yield process


def redis_pid(gateway: GatewayProcess) -> int:
    return int((gateway.state_directory / "redis.pid").read_text())


def kill_redis(gateway: GatewayProcess) -> None:
    started_again(gateway, lambda: os.kill(redis_pid(gateway), signal.SIGKILL))


def started_again(gateway: GatewayProcess, after: Callable[[], object]) -> None:
    before = redis_pid(gateway)
    started = gateway.log_text().count("embedded_redis_started")
    after()
    wait_until(
        lambda: gateway.log_text().count("embedded_redis_started") > started,
        what="Redis started again",
        deadline_s=20,
    )
    assert redis_pid(gateway) != before


def test_a_killed_redis_is_started_again_and_the_group_goes_on(
    kafka: KafkaCluster,
    gateway: GatewayProcess,
    topic: Callable[..., str],
    fresh_name: Callable[[str], str],
) -> None:
    name, group = topic(), fresh_name("group")
    produce(kafka.bootstrap_servers, name, [(key, b"1") for key in KEYS])
    with ShareSession(gateway.bootstrap, group, name) as session:
        session.join()
        for round_number in range(3):
            taken = session.fetch_count(len(KEYS))
            assert taken.offsets == [len(KEYS) * round_number + at for at in range(len(KEYS))]
            assert {count for _, count in taken.acquired} == {1}, "nothing comes twice"
            kill_redis(gateway)
            produce(kafka.bootstrap_servers, name, [(key, b"2") for key in KEYS])
            batch = [(taken.offsets[0], taken.offsets[-1], [ACCEPT])]
            assert session.acknowledge({0: batch}) == {0: 0}, "leases were kept"
    end = 3 * len(KEYS)
    wait_for_committed(kafka, group, name, 0, end)
    log = gateway.log_text()
    assert log.count("embedded_redis_died") == 3
    assert "Traceback" not in log
    pid = redis_pid(gateway)
    assert gateway.stop() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_deleted_socket_costs_no_lease(
    kafka: KafkaCluster,
    gateway: GatewayProcess,
    topic: Callable[..., str],
    fresh_name: Callable[[str], str],
) -> None:
    name, group = topic(), fresh_name("group")
    produce(kafka.bootstrap_servers, name, [(key, b"1") for key in KEYS])
    with ShareSession(gateway.bootstrap, group, name) as session:
        session.join()
        taken = session.fetch_count(len(KEYS))
        started_again(gateway, (gateway.state_directory / "redis.sock").unlink)
        assert session.acknowledge({0: [(0, len(KEYS) - 1, [ACCEPT])]}) == {0: 0}
        assert {count for _, count in taken.acquired} == {1}
    wait_for_committed(kafka, group, name, 0, len(KEYS))
    log = gateway.log_text()
    assert log.count("embedded_redis_unreachable") == 1
    assert "Traceback" not in log


@pytest.mark.skipif(
    signal.getsignal(signal.SIGHUP) is signal.SIG_IGN,
    reason="under nohup, and so are the nodes that the tests start: they go on",
)
def test_a_hangup_drains(
    kafka: KafkaCluster,
    gateway: GatewayProcess,
    topic: Callable[..., str],
    fresh_name: Callable[[str], str],
) -> None:
    """As SIGTERM: settled records are committed before the node ends."""
    name, group = topic(), fresh_name("group")
    produce(kafka.bootstrap_servers, name, [(key, b"1") for key in KEYS])
    with ShareSession(gateway.bootstrap, group, name) as session:
        session.join()
        session.fetch_count(len(KEYS))
        session.acknowledge({0: [(0, len(KEYS) - 1, [ACCEPT])]})
        os.kill(gateway.pid, signal.SIGHUP)
        assert gateway.child is not None
        assert gateway.child.wait(300) == 0
    log = gateway.log_text()
    for event in ("signal_received", "SIGHUP", "stopping", "stopped"):
        assert event in log
    wait_for_committed(kafka, group, name, 0, len(KEYS))
