"""A node that may open few files, and more clients than fit."""

from __future__ import annotations

import socket
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from gateway.embedded.kafka import KafkaCluster
from gateway.listen.admission import clients_max
from tests.rig.gateway_process import GatewayProcess, answers_api_versions
from tests.rig.operating import health
from tests.rig.patience import wait_until

OPEN_FILES_MAX = 256
TOO_MANY = clients_max(OPEN_FILES_MAX) * 3


def metric(gateway: GatewayProcess, name: str) -> float:
    with urllib.request.urlopen(f"http://{gateway.admin}/metrics", timeout=120) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def test_clients_beyond_the_open_files_are_refused_and_rest_answers(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    servers = kafka.bootstrap_servers
    with GatewayProcess(tmp_path, servers, open_files_max=OPEN_FILES_MAX) as gateway:
        wait_until(lambda: health(gateway)[1]["status"] == "up", what="up", deadline_s=30)
        host, _, port = gateway.bootstrap.rpartition(":")
        with ExitStack() as stack:
            for _ in range(TOO_MANY):
                stack.enter_context(socket.create_connection((host, int(port)), timeout=120))
            refused = 'keyway_server_refused_total{reason="too_many_clients"}'
            wait_until(lambda: metric(gateway, refused) > 0, what="refusals", deadline_s=30)

            def degraded() -> bool:
                """It can serve: those that are connected go on."""
                said = health(gateway)[1]
                return said["status"] == "degraded" and "limit of open files" in said["reasons"][0]

            wait_until(degraded, what="degraded", deadline_s=30)
            assert not answers_api_versions(gateway.bootstrap)
        wait_until(lambda: health(gateway)[1]["status"] == "up", what="up again", deadline_s=30)
        wait_until(lambda: answers_api_versions(gateway.bootstrap), what="served", deadline_s=20)
        log = gateway.log_text()
    assert log.count("clients_refused") == 1, "one line for an episode"
    assert log.count("clients_admitted_again") == 1
