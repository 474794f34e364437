"""`make demo` on part of the data; that it cleans up; that its audit can fail on real logs."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Message, ShareConsumer

from demo import flights as data
from demo.audit import audit
from demo.consumer import processed
from demo.run import PORT_VARIABLE, Ports, run_demo
from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import SetupError, free_ports
from tests.rig.kafka import create_topic, produce, set_group_config
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration


@pytest.fixture
def demo_ports(monkeypatch: pytest.MonkeyPatch) -> Ports:
    while True:
        ports = Ports(free_ports(30) + 12)
        try:
            ports.require_all_free()
        except SetupError:
            continue
        monkeypatch.setenv(PORT_VARIABLE, str(ports.bootstrap))
        return ports


def commands(processes: list[psutil.Process]) -> list[str]:
    """Command lines of those that run."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # ended, or a zombie
            found.append(" ".join(process.cmdline()))
    return found


@pytest.mark.deep
@pytest.mark.spark
def test_demo_holds_and_leaves_nothing_running(
    demo_ports: Ports, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    status = run_demo(False, flights_max=40_000, directory=tmp_path / "demo")
    said = capsys.readouterr().out
    assert status == 0, said
    figures = dict(re.findall(r"│ ([a-z ()-]+?) +│ +([\d,]+)", said))
    assert figures["records"] == "40,000"
    assert figures["lost"] == figures["keys out of order"] == "0"
    assert re.search(r"\(consumer-[123] killed\)", said)
    assert "All checks held" in said
    left = [one for one in psutil.Process().children(recursive=True) if one.pid not in before]
    assert commands(left) == []
    demo_ports.require_all_free()


@pytest.mark.deep
def test_sigterm_on_the_way_leaves_nothing_running(demo_ports: Ports, tmp_path: Path) -> None:
    said = tmp_path / "said"
    with (
        said.open("wb") as output,
        subprocess.Popen(
            [sys.executable, "-m", "demo"],
            stdout=output,
            env={**os.environ, PORT_VARIABLE: str(demo_ports.bootstrap)},
        ) as demo,
    ):
        started: list[psutil.Process] = []

        def gateway_runs() -> bool:
            nonlocal started
            assert demo.poll() is None, f"ended too early: {said.read_text()}"
            started = psutil.Process(demo.pid).children(recursive=True)
            return any("gateway.cli serve" in command for command in commands(started))

        try:
            wait_until(gateway_runs, what="the gateway runs", deadline_s=100)
            demo.send_signal(signal.SIGTERM)
            assert demo.wait(300) == 130
        finally:
            demo.kill()
    assert len(started) >= 2
    _, alive = psutil.wait_procs(started, timeout=60)
    assert commands(alive) == []


def test_taken_port_is_one_line(
    demo_ports: Ports, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", demo_ports.bootstrap)):
        assert run_demo(False, directory=tmp_path / "demo") == 2
    said = capsys.readouterr().out.strip().splitlines()
    assert len(said) == 1
    assert f"port {demo_ports.bootstrap} (the gateway's bootstrap port) is taken" in said[0]
    assert PORT_VARIABLE in said[0]


def acquire(consumer: ShareConsumer) -> list[Message[bytes, bytes]]:
    found: list[Message[bytes, bytes]] = []

    def some() -> bool:
        found.extend(message for message in consumer.poll(0.2) if message.error() is None)
        return bool(found)

    wait_until(some, what="records acquired", deadline_s=60)
    return found


def test_kafkas_own_share_group_fails_the_audit(
    kafka: KafkaCluster, fresh_name: Callable[[str], str]
) -> None:
    # No Keyway: Kafka hands the records of a key to any member that asks, here to two at once, and
    # the later half is processed first. An audit that passed this would prove nothing in the demo.
    name, group = fresh_name("flights"), fresh_name("trackers")
    servers = kafka.bootstrap_servers
    create_topic(servers, name)
    set_group_config(servers, group, {"share.auto.offset.reset": "earliest"})
    records = [(f"N{at % 5}".encode(), b"flight") for at in range(2_000)]
    produce(servers, name, records, config={"batch.num.messages": 50})
    config = {
        "bootstrap.servers": servers,
        "group.id": group,
        "share.acknowledgement.mode": "explicit",
        "max.poll.records": 50,
    }
    first, second = ShareConsumer(config), ShareConsumer(config)
    try:
        for consumer in (first, second):
            consumer.subscribe([name])
        acquired = [acquire(first), acquire(second)]
        acquired.sort(key=lambda messages: -(messages[0].offset() or 0))
        logs = [processed(message) for messages in acquired for message in messages]
        report = audit(data.read_topic(servers, name), logs)
    finally:
        first.close()
        second.close()
    assert report.altered == report.unknown == report.repeated == 0
    assert report.keys_out_of_order == 5
    assert re.match(
        r"key b'N\d': partition 0 offset \d+ by .* after partition 0", report.first_fault
    )
