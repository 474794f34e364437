"""The registry view served by a node, with a certificate that is replaced while it serves."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import free_ports
from schema_dist.core.model import Schema
from tests.rig.gateway_process import GatewayProcess
from tests.rig.operating import health, metrics
from tests.rig.patience import wait_until
from tests.rig.schema_registry.site import HTTP, Site, answers, version
from tests.rig.secure_kafka import self_signed

pytestmark = pytest.mark.integration


def test_a_node_serves_the_view_of_its_cluster(
    kafka: KafkaCluster, tmp_path: Path, fresh_name: Callable[[str], str]
) -> None:
    site = Site(kafka.bootstrap_servers, tmp_path, fresh_name("node"))
    site.register([version("acme-orders-value", 1, 30, Schema("AVRO", '"string"'))])
    port = free_ports(1)
    self_signed(tmp_path)
    cert_file, key_file = tmp_path / "kafka.cert", tmp_path / "kafka.key"
    files = {"cert_file": str(cert_file), "key_file": str(key_file)}
    site.a["registry_view"] = {"port": port, **files}
    url = f"https://127.0.0.1:{port}"
    node = GatewayProcess(tmp_path / "node", kafka.bootstrap_servers)
    settings: dict[str, Any] = yaml.safe_load(node.config.read_text())
    settings["registry_view"] = {"clusters_file": str(site.config()), "cluster": "a"}
    node.config.write_text(yaml.safe_dump(settings))
    with socket.create_server(("127.0.0.1", port)):
        node.start()
        wait_until(
            lambda: "cannot listen" in str(health(node)[1]["reasons"]),
            what="the reason in /health",
            deadline_s=60,
        )
    try:
        wait_until(lambda: answers(url), what="the view", deadline_s=60)
        wait_until(
            lambda: HTTP.get(f"{url}/subjects").json() == ["orders-value"],
            what="the subject",
            deadline_s=30,
        )
        starts = metrics(node)["keyway_registry_view_starts_total"]
        assert HTTP.get(f"{url}/schemas/ids/30").json() == {"schema": '"string"'}
        wait_until(lambda: health(node)[1]["status"] == "up", what="health", deadline_s=30)
        told = health(node)[1]["warnings"]
        assert any(
            "listener registry_view: certificate of cert_file expires" in line for line in told
        )
        end = 'expiry_timestamp_seconds{file="cert_file",listener="registry_view",position="0"}'
        assert metrics(node)[f"keyway_tls_certificate_{end}"] > 0
        first = ssl.get_server_certificate(("127.0.0.1", port))
        assert first.strip() == cert_file.read_text().strip()
        self_signed(tmp_path)
        answer = httpx.post(f"http://{node.admin}/v1/tls/reload").json()
        (row,) = answer["listeners"]
        assert (row["listener"], row["reloaded"]) == ("registry_view", True)
        wait_until(
            lambda: ssl.get_server_certificate(("127.0.0.1", port)) != first,
            what="the new certificate",
            deadline_s=30,
        )
        assert HTTP.get(f"{url}/subjects").json() == ["orders-value"]
        assert metrics(node)["keyway_registry_view_starts_total"] == starts, "no restart for it"
    finally:
        assert node.stop() == 0
