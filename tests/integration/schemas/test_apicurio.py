"""Apicurio as the primary, polled over REST, and as a target that takes explicit ids and ignores
them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.embedded.kafka import KafkaCluster
from schema_dist.cli import app
from schema_dist.core.model import Schema
from tests.rig.apicurio import served_apicurio
from tests.rig.patience import wait_until
from tests.rig.schema_registry.site import HTTP, Site, served_registry, version

pytestmark = [pytest.mark.deep, pytest.mark.integration]


@pytest.fixture(scope="module")
def apicurio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served_apicurio(tmp_path_factory.mktemp("apicurio") / "log") as url:
        yield url


def command(*words: str) -> tuple[int, dict[str, Any]]:
    """Runs `keyway schemas` here; its exit code and JSON."""
    ended = CliRunner().invoke(app, [*words, "-o", "json"], catch_exceptions=False)
    assert ended.exit_code in (0, 1), ended.output
    return ended.exit_code, json.loads(ended.stdout)


def test_a_registry_that_ignores_ids_is_found_and_left_as_it_was(
    kafka: KafkaCluster, tmp_path: Path, fresh_name: Callable[[str], str], apicurio: str
) -> None:
    before = HTTP.get(f"{apicurio}/subjects?deleted=true").json()
    site = Site(kafka.bootstrap_servers, tmp_path, fresh_name("apicurio"))
    site.b["registry"] = {"url": apicurio}
    site.register(
        [
            version("acme-orders-value", 1, 41, Schema("AVRO", '"string"')),
            version("acme-orders-value", 2, 42, Schema("AVRO", '"bytes"')),
        ]
    )
    code, found = command("check", str(site.config()))
    assert code == 1
    (target,) = found["targets"]
    assert "IMPORT mode" in target["probe"]
    assert [write["id"] for write in target["writes"]] == [41, 42]
    with site.running():
        site.wait_for("registry_ignores_ids", 2)
        wait_until(lambda: _reported(site), what="the status", deadline_s=30)
    code, found = command("status", str(site.config()))
    assert code == 1
    assert found["targets"][0]["refused"] == {"registry_ignores_ids": 2}
    assert HTTP.get(f"{apicurio}/subjects?deleted=true").json() == before


def _reported(site: Site) -> bool:
    return "refused" in command("status", str(site.config()))[1]["targets"][0]


def test_a_primary_whose_log_cannot_be_read_is_polled(
    kafka: KafkaCluster, tmp_path: Path, fresh_name: Callable[[str], str], apicurio: str
) -> None:
    site = Site(kafka.bootstrap_servers, tmp_path, fresh_name("polled"))
    site.a["registry"] = {"url": apicurio, "reads": "rest"}
    with served_registry(tmp_path / "registry.log") as url:
        site.b["registry"] = {"url": url}
        customer = '{"type":"record","name":"Customer","fields":[]}'
        order = '{"type":"record","name":"Order","fields":[{"name":"c","type":"Customer"}]}'
        refers = [{"name": "Customer", "subject": "acme-customer-value", "version": 1}]
        ids = [
            HTTP.post(f"{apicurio}/subjects/{subject}/versions", json=body).json()["id"]
            for subject, body in (
                ("acme-filler-value", {"schema": '"int"'}),
                ("acme-customer-value", {"schema": customer}),
                ("acme-orders-value", {"schema": order, "references": refers}),
            )
        ]
        with site.running():
            path = f"{url}/subjects/orders.b-value/versions/1"
            wait_until(lambda: HTTP.get(path).status_code == 200, what="it", deadline_s=60)
            assert HTTP.get(path).json()["id"] == ids[2]
            assert HTTP.get(path).json()["references"][0]["subject"] == "customer.b-value"
            gone = f"{url}/subjects/filler.b-value/versions/1"
            deleted_at = time.monotonic()
            assert HTTP.delete(f"{apicurio}/subjects/acme-filler-value/versions/1").is_success
            wait_until(lambda: HTTP.get(gone).status_code == 404, what="gone", deadline_s=180)
            assert time.monotonic() - deleted_at > 60  # asked for by name meanwhile
            assert HTTP.get(f"{gone}?deleted=true").json()["id"] == ids[0]
        code, found = command("diff", str(site.config()), "a", "b")
        assert (code, found["differences"]) == (0, [])
        HTTP.post(f"{apicurio}/subjects/acme-new-value/versions", json={"schema": '"long"'})
        code, found = command("diff", str(site.config()), "a", "b")
        assert code == 1
        assert [
            (difference["subject"], difference["what"]) for difference in found["differences"]
        ] == [("new.b-value", "only in the first")]
