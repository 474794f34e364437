"""The embedded Kafka itself, on which every other test stands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import SetupError, free_ports
from tests.rig.kafka import create_topic, produce, read_partition
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration


def test_records_are_read_back_in_order(kafka: KafkaCluster, topic: Callable[..., str]) -> None:
    name = topic()
    sent = [(f"k{at % 7}".encode(), f"v{at}".encode()) for at in range(100)]
    produce(kafka.bootstrap_servers, name, sent)
    read = read_partition(kafka.bootstrap_servers, name, 0)
    assert read == [(at, key, value) for at, (key, value) in enumerate(sent)]


@pytest.mark.deep
def test_second_broker_dies_and_comes_back(
    kafka_pair: KafkaCluster, fresh_name: Callable[[str], str]
) -> None:
    name = fresh_name("pair")
    servers = kafka_pair.bootstrap_servers
    create_topic(servers, name, assignment=[[1, 2], [2, 1]])
    produce(servers, name, [(b"k", b"before")], partition=1)
    second = kafka_pair.brokers[1]
    second.kill()
    assert kafka_pair.brokers[0].running
    kafka_pair.restart(second)
    produce(servers, name, [(b"k", b"after")], partition=1)
    assert [value for _, _, value in read_partition(servers, name, 1)] == [b"before", b"after"]


def test_taken_port_is_one_clear_line() -> None:
    port = free_ports(1)
    with subprocess.Popen(
        [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    ) as holder:
        try:
            held = psutil.Process(holder.pid)
            wait_until(
                lambda: any(c.laddr.port == port for c in held.net_connections("tcp4")),
                what="the port held",
                deadline_s=20,
            )
            with pytest.raises(SetupError, match=f"port {port} .* is taken") as raised:
                KafkaCluster(1, ports=(port,)).start()
            assert "\n" not in str(raised.value)
        finally:
            holder.terminate()


@pytest.mark.deep
def test_broker_that_cannot_start_says_why() -> None:
    cluster = KafkaCluster(1, properties={"authorizer.class.name": "no.such.Authorizer"})
    with pytest.raises(SetupError, match=r"no\.such\.Authorizer"):
        cluster.start()
    assert not cluster.brokers[0].running
    assert not cluster.directory.exists()


def test_sigkilled_parent_leaves_no_broker(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from gateway.embedded.kafka import KafkaCluster\n"
        "c = KafkaCluster(1, directory=Path(sys.argv[1])).start()\n"
        "print(c.brokers[0].child.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        broker = psutil.Process(int(parent.stdout.readline()))
        assert "kafka.Kafka" in broker.cmdline()
        os.kill(parent.pid, signal.SIGKILL)

    def gone() -> bool:
        return not broker.is_running() or broker.status() == psutil.STATUS_ZOMBIE

    wait_until(gone, what="the broker gone", deadline_s=20)
