"""Registries behind a password and TLS: distributed from one to another, and read through a view
that asks the primary about its readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import free_ports
from tests.rig.patience import wait_until
from tests.rig.schema_registry.site import HTTP, Site, answers, served_registry
from tests.rig.secure_kafka import self_signed

pytestmark = pytest.mark.integration

USER, PASSWORD = "keyway", "pass:wörd"
KNOWN = (USER, PASSWORD.encode())
FIXED = Schema('{"type":"fixed","name":"F","size":3}', "AVRO")


@pytest.fixture
def site(
    kafka: KafkaCluster,
    tmp_path: Path,
    fresh_name: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Site]:
    """Both registries are locked; the primary's is polled."""
    self_signed(tmp_path)
    certificate = str(tmp_path / "kafka.cert")
    locked = ["--user", f"{USER}:{PASSWORD}", "--cert", certificate]
    locked += ["--key", str(tmp_path / "kafka.key")]
    monkeypatch.setenv("KEYWAY_TESTS_REGISTRY_PASSWORD", PASSWORD)
    known = {"username": USER, "password_env": "KEYWAY_TESTS_REGISTRY_PASSWORD"}
    with ExitStack() as stack:
        site = Site(kafka.bootstrap_servers, tmp_path, fresh_name("locked"))
        for cluster in (site.a, site.b):
            log = tmp_path / f"registry-{cluster['name']}.log"
            url = stack.enter_context(served_registry(log, *locked))
            cluster["registry"] = {"url": url, "basic": known, "ca_file": certificate}
        site.a["registry"]["reads"] = "rest"
        site.b["registry"]["reads"] = "rest"
        yield site


def register(site: Site) -> None:
    """Under id 1, at the primary itself."""
    answer = HTTP.post(
        f"{site.a['registry']['url']}/subjects/acme-s-value/versions",
        json={"schema": FIXED.schema_str},
        auth=KNOWN,
    )
    assert answer.json() == {"id": 1}


def becomes_registered(site: Site) -> None:
    url = f"{site.b['registry']['url']}/subjects/s.b-value/versions/1"
    wait_until(lambda: HTTP.get(url, auth=KNOWN).status_code == 200, what="it on b", deadline_s=60)
    assert HTTP.get(url, auth=KNOWN).json()["id"] == 1
    assert HTTP.get(url).status_code == 401


def test_readers_and_writers_of_a_view_are_those_of_the_primary(site: Site, tmp_path: Path) -> None:
    port = free_ports(1)
    site.b["registry_view"] = {
        "port": port,
        "cert_file": str(tmp_path / "kafka.cert"),
        "key_file": str(tmp_path / "kafka.key"),
    }
    register(site)
    url = f"https://127.0.0.1:{port}"
    trusted: dict[str, Any] = {"url": url, "ssl.ca.location": str(tmp_path / "kafka.cert")}
    with site.running(), site.running("view", "b"):
        becomes_registered(site)
        wait_until(lambda: answers(url), what="the view", deadline_s=60)
        known = trusted | {"basic.auth.user.info": f"{USER}:{PASSWORD}"}
        with SchemaRegistryClient(known) as client:
            wait_until(
                lambda: client.get_subjects() == ["s-value"], what="its subject", deadline_s=30
            )
            assert client.get_schema(1).schema_str == FIXED.schema_str
            assert client.register_schema("new-value", Schema('"bytes"', "AVRO")) == 2
        assert HTTP.get(f"{url}/schemas/ids/1").status_code == 401
        for other in ({}, {"basic.auth.user.info": f"{USER}:wrong"}):
            with (
                SchemaRegistryClient(trusted | other) as stranger,
                pytest.raises(SchemaRegistryError, match="Unauthorized") as refused,
            ):
                stranger.register_schema("another-value", FIXED)
            assert refused.value.http_status_code == 401
        assert HTTP.get(f"{url}/subjects").headers["www-authenticate"] == 'Basic realm="registry"'
    assert PASSWORD not in site.log()


def test_a_wrong_password_is_named_and_tried_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(site)
    monkeypatch.setenv("KEYWAY_TESTS_REGISTRY_PASSWORD", "wrong-word")
    with site.running():
        site.wait_for("source_unreadable", 2)
    assert "401 Unauthorized for GET /schemas" in site.log()
    assert "wrong-word" not in site.log()
