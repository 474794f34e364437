"""The registry view behind TLS: a stock client that trusts its certificate, and others."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import free_ports
from schema_dist.core.model import Schema
from tests.rig.patience import wait_until
from tests.rig.schema_registry.site import HTTP, Site, answers, version
from tests.rig.secure_kafka import self_signed

pytestmark = pytest.mark.integration


@pytest.fixture
def port(kafka: KafkaCluster, tmp_path: Path, fresh_name: Callable[[str], str]) -> Iterator[int]:
    """Of a view with two versions; its certificate is kafka.cert in `tmp_path`."""
    self_signed(tmp_path)
    site = Site(kafka.bootstrap_servers, tmp_path, fresh_name("tls"))
    site.register(
        [
            version("acme-orders-value", 1, 30, Schema("AVRO", '"string"')),
            version("acme-orders-value", 2, 31, Schema("AVRO", '"bytes"')),
        ]
    )
    found = free_ports(1)
    site.a["registry_view"] = {
        "port": found,
        "cert_file": str(tmp_path / "kafka.cert"),
        "key_file": str(tmp_path / "kafka.key"),
    }
    with site.running("view", "a"):
        url = f"https://127.0.0.1:{found}"
        wait_until(lambda: answers(url), what="the view", deadline_s=60)
        wait_until(
            lambda: HTTP.get(f"{url}/subjects").json() == ["orders-value"],
            what="the subject",
            deadline_s=30,
        )
        yield found


def test_stock_clients_that_trust_the_certificate(port: int, tmp_path: Path) -> None:
    trusted = {"url": f"https://127.0.0.1:{port}", "ssl.ca.location": str(tmp_path / "kafka.cert")}
    with SchemaRegistryClient(trusted) as client:
        assert client.get_subjects() == ["orders-value"]
        assert client.get_schema(30).schema_str == '"string"'
        latest = client.get_latest_version("orders-value")
        assert (latest.schema_id, latest.version) == (31, 2)
    with (
        SchemaRegistryClient({"url": f"https://127.0.0.1:{port}", "max.retries": 0}) as stranger,
        pytest.raises(Exception, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        stranger.get_subjects()


def test_plain_text_and_old_tls_get_no_answer(port: int) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        HTTP.get(f"http://127.0.0.1:{port}/subjects")
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        old.wrap_socket(plain)
    assert HTTP.get(f"https://127.0.0.1:{port}/subjects").status_code == 200  # it goes on


def test_a_certificate_that_cannot_be_used_is_named(
    kafka: KafkaCluster, tmp_path: Path, fresh_name: Callable[[str], str]
) -> None:
    site = Site(kafka.bootstrap_servers, tmp_path, fresh_name("nocert"))
    files = {"cert_file": str(tmp_path / "none.pem"), "key_file": str(tmp_path / "none.key")}
    site.a["registry_view"] = {"port": free_ports(1), **files}
    child = site.start("view", "a")
    assert child.wait(300) == 2
    log = (tmp_path / "view.log").read_text()
    assert f"keyway: registry_view: cert_file {tmp_path}/none.pem" in log
    assert "Traceback" not in log
