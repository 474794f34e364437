"""`keyway serve --workers 2` in front of one broker of two slots: both workers serve, one that is
killed is started again, and one SIGTERM stops all.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.embedded.kafka import KafkaCluster
from tests.rig.clients.order import assert_first_deliveries_in_order
from tests.rig.clients.share_members import ShareHost, deliveries_of
from tests.rig.gateway_process import GatewayProcess
from tests.rig.groups import GROUPS
from tests.rig.kafka import create_topic, produce
from tests.rig.operating import keyway
from tests.rig.patience import wait_until

pytestmark = pytest.mark.integration

Name = Callable[[str], str]
PARTITIONS = 8
SLOTS = {"slots_per_broker": 2, "port_step": 2}


def owned(service: GatewayProcess) -> dict[str, list[int]]:
    status, said, problem = keyway(service, "node", "list", "-o", "json")
    assert status == 0, problem
    return {row["node"]: row["owns"] for row in json.loads(said)["nodes"]}


def pids_of(service: GatewayProcess, worker: int) -> list[int]:
    started = re.findall(rf"'worker_started' worker={worker} pid=(\d+)", service.log_text())
    return [int(pid) for pid in started]


@pytest.mark.deep
def test_two_workers_are_one_service(
    tmp_path: Path, kafka: KafkaCluster, fresh_name: Name, java_host: ShareHost
) -> None:
    topic, group = fresh_name("orders"), fresh_name("group")
    create_topic(kafka.bootstrap_servers, topic, partitions=PARTITIONS)
    service = GatewayProcess(
        tmp_path, kafka.bootstrap_servers, groups=GROUPS, listen=SLOTS, workers=2, afresh=True
    )

    def both_own() -> bool:
        return sorted(map(len, owned(service).values())) == [1, 1]

    with service:
        wait_until(both_own, what="a virtual broker for each worker", deadline_s=30)
        members = [java_host.member(service.bootstrap, group, [topic]) for _ in "ab"]
        for member in members:
            member.begin_consume(200)
        sent = 0

        def more() -> None:
            nonlocal sent
            rows = [(b"k%d" % (at % 50), b"%d" % at) for at in range(sent, sent + 500)]
            produce(service.bootstrap, topic, rows)
            sent += len(rows)
            wait_until(
                lambda: len({delivery.place for delivery in deliveries_of(members)}) == sent,
                what=f"{sent} records",
                deadline_s=60,
            )

        more()
        os.kill(pids_of(service, 1)[0], signal.SIGKILL)
        more()
        wait_until(lambda: len(pids_of(service, 1)) == 2, what="another start", deadline_s=30)
        wait_until(both_own, what="its virtual broker again", deadline_s=30)
        more()
        for member in members:
            member.end_consume()
            member.close()
        assert_first_deliveries_in_order(deliveries_of(members))
        assert service.stop() == 0
    ends = re.findall(r"'worker_stopped' worker=(\d) status=(-?\d+)", service.log_text())
    assert ends == [("0", "0"), ("1", "0")]
    assert not re.search(r"Traceback|handler_failed|dispatcher_bug", service.log_text())


def test_a_port_of_a_worker_that_is_taken_is_named(tmp_path: Path, kafka: KafkaCluster) -> None:
    service = GatewayProcess(
        tmp_path, kafka.bootstrap_servers, listen=SLOTS, workers=2, afresh=True
    )
    with socket.socket() as taken:
        port = service.port_base + 5  # of worker 1, slot 0 of broker 1
        taken.bind(("127.0.0.1", port))
        taken.listen()
        service.spawn()
        assert service.child is not None
        assert service.child.wait(60) == 2
    said = service.log_text()
    assert f"cannot listen on 127.0.0.1:{port} (listen.host, listen.port_base + 1)" in said
    assert said.splitlines()[-1] == "keyway: worker 1 cannot start: its line above says why"
    assert "Traceback" not in said
