"""Distribution to and from real registries: each test runs against those that were given. Subjects
and ids are new in every run, and subjects of others are left alone.
"""

from __future__ import annotations

import io
import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from typer.testing import CliRunner

from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import kill_child, wait_until
from schema_dist.cli import app
from schema_dist.core.compare import canonical
from schema_dist.core.model import JSON, PROTOBUF, Reference, Schema, SchemaVersion, Version
from schema_dist.core.records import compatibility_record, schema_key
from tests.peers.registries import Peer, peer
from tests.rig.schema_registry.history import Held, go_on, record
from tests.rig.schema_registry.site import Site, served_registry, version

pytestmark = pytest.mark.integration

ARRIVE_S_MAX = 90.0
KILLS = 8
FIRST_IDS = range(1_000_000, 2_000_000_000, 1_000)

CUSTOMER = record("Customer", "name")
ORDER_TEXT = '{"type": "record", "name": "Order", "fields": [{"name": "c", "type": "Customer"}]}'
COMMON = 'syntax = "proto3";\nmessage P {\n  string a = 1;\n}\n'
USES = 'syntax = "proto3";\nimport "common.proto";\nmessage Q {\n  P p = 1;\n}\n'
POINTS = '{"type": "object", "properties": {"j": {"$ref": "j.json"}}}'
TITLED = '{"type": "object", "title": "J", "properties": {"a": {"type": "integer"}}}'


@pytest.fixture(params=["karapace", "import"])
def registry(request: pytest.FixtureRequest) -> Peer:
    return peer(request.param)


@pytest.fixture
def run(fresh_name: Callable[[str], str]) -> str:
    """The beginning of all topics of a test."""
    return fresh_name("peers")


@pytest.fixture
def first_id() -> int:
    return random.choice(FIRST_IDS)


@pytest.fixture
def site(kafka: KafkaCluster, tmp_path: Path, run: str) -> Site:
    made = Site(kafka.bootstrap_servers, tmp_path, run)
    made.top["subjects"] = {"include": [f"{run}*"]}
    return made


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Peer]:
    with served_registry(tmp_path / "registry.log") as url:
        yield Peer(url)


def command(*words: str) -> tuple[int, dict[str, Any]]:
    """Runs `keyway schemas` here; its exit code and JSON."""
    ended = CliRunner().invoke(app, [*words, "-o", "json"], catch_exceptions=False)
    assert ended.exit_code in (0, 1), ended.output
    return ended.exit_code, json.loads(ended.stdout)


def becomes(of: Peer, subject: str, wanted: dict[int, tuple[int, bool]]) -> None:
    wait_until(
        lambda: of.shown(subject) == wanted, what=f"{subject}: {wanted}", deadline_s=ARRIVE_S_MAX
    )


def of_all_types(run: str, first: int) -> list[SchemaVersion]:
    """Avro, Protobuf and JSON Schema, with and without references."""
    uses = (Reference("common.proto", f"acme-{run}-common-value", Version(1)),)
    points = (Reference("j.json", f"acme-{run}-j-key", Version(1)),)
    refers = (Reference("Customer", f"acme-{run}-customer-value", Version(1)),)
    return [
        version(f"acme-{run}-customer-value", 1, first, CUSTOMER),
        version(f"acme-{run}-orders-value", 4, first + 1, Schema("AVRO", ORDER_TEXT, refers)),
        version(f"acme-{run}-common-value", 1, first + 2, Schema(PROTOBUF, COMMON)),
        version(f"acme-{run}-q-value", 1, first + 3, Schema(PROTOBUF, USES, uses)),
        version(f"acme-{run}-j-key", 1, first + 4, Schema(JSON, TITLED)),
        version(f"acme-{run}-points-value", 1, first + 5, Schema(JSON, POINTS, points)),
    ]


def test_same_id_and_version_by_rest_and_by_a_stock_client(
    registry: Peer, site: Site, run: str, first_id: int
) -> None:
    registry.make_target(site)
    versions = of_all_types(run, first_id)
    site.register(versions)
    site.write([compatibility_record(f"acme-{run}-orders-value", "FULL")])
    with site.running():
        for written in versions:
            there = written.subject.removeprefix("acme-").replace("-value", ".b-value")
            there = there.replace("-key", ".b-key")
            becomes(registry, there, {written.version: (written.id, True)})
            found = registry.get(f"/schemas/ids/{written.id}")
            assert canonical(written.schema.type, found["schema"]) == canonical(
                written.schema.type, written.schema.text
            )
        level = f"/config/{run}-orders.b-value"
        wait_until(
            lambda: registry.get(level).get("compatibilityLevel") == "FULL",
            what="the compatibility level",
            deadline_s=ARRIVE_S_MAX,
        )
    refers = registry.get(f"/subjects/{run}-q.b-value/versions/1")["references"]
    assert refers == [{"name": "common.proto", "subject": f"{run}-common.b-value", "version": 1}]
    order = registry.get(f"/subjects/{run}-orders.b-value/versions/4")
    assert order["references"][0]["subject"] == f"{run}-customer.b-value"
    with registry.client() as client:
        assert client.get_schema(first_id + 3).schema_type == "PROTOBUF"
        assert client.get_schema(first_id + 4).schema_type == "JSON"
        found = client.get_version(f"{run}-orders.b-value", 4)
        assert (found.schema_id, found.version) == (first_id + 1, 4)
        whole = json.loads(ORDER_TEXT.replace('"Customer"', CUSTOMER.text))
        body = io.BytesIO()
        fastavro.schemaless_writer(body, fastavro.parse_schema(whole), {"c": {"name": "Ann"}})
        value = b"\0" + (first_id + 1).to_bytes(4, "big") + body.getvalue()
        on = SerializationContext(f"{run}-orders", MessageField.VALUE)
        assert AvroDeserializer(client)(value, on) == {"c": {"name": "Ann"}}


def test_deletions_follow_and_a_second_run_writes_nothing(
    registry: Peer, site: Site, run: str, first_id: int
) -> None:
    registry.make_target(site)
    one, two, three = (
        version(f"acme-{run}-d-value", at, first_id + at, record("D", *"abc"[:at]))
        for at in (1, 2, 3)
    )
    subject = f"{run}-d.b-value"
    site.register([one, two, three])
    with site.running():
        becomes(registry, subject, {at: (first_id + at, True) for at in (1, 2, 3)})
        site.register([replace(two, deleted=True)])
        becomes(
            registry,
            subject,
            {1: (one.id, True), 2: (two.id, False), 3: (three.id, True)},
        )
        assert "schema" in registry.get(f"/schemas/ids/{two.id}")  # found by its id still
        site.write([(schema_key(two), None)])
        becomes(registry, subject, {1: (one.id, True), 3: (three.id, True)})
        site.register([two])  # and again
        becomes(registry, subject, {at: (first_id + at, True) for at in (1, 2, 3)})
        in_sync(site)
    code, found = command("diff", str(site.config()), "a", "b")
    assert (code, found["differences"]) == (0, [])
    code, found = command("check", str(site.config()))
    (target,) = found["targets"]
    assert (code, target["in_sync"], target["writes"]) == (0, 3, [])


def in_sync(site: Site) -> None:
    wait_until(
        lambda: command("status", str(site.config()))[0] == 0,
        what="the status",
        deadline_s=ARRIVE_S_MAX,
    )


def test_an_id_of_another_schema_is_refused_before_anything_is_written(
    registry: Peer, site: Site, run: str
) -> None:
    registry.make_target(site)
    own = registry.register(f"{run}-own-value", {"schema": record("Own", "a").text})
    taken = registry.register(f"{run}-taken.b-value", {"schema": record("Taken", "a").text})
    other = max(own, taken) + 1_000
    site.register(
        [
            version(f"acme-{run}-first-value", 1, own, record("First")),
            version(f"acme-{run}-taken-value", 1, other, record("Second")),
            version(f"acme-{run}-third-value", 1, other + 1, record("Third")),
        ]
    )
    with site.running():
        becomes(registry, f"{run}-third.b-value", {1: (other + 1, True)})
        site.wait_for("refused", 2)
    assert f"first.b-value version 1 (id {own}): id_taken" in site.log()
    assert f"taken.b-value version 1 (id {other}): version_taken" in site.log()
    assert registry.shown(f"{run}-first.b-value") == {}
    assert registry.shown(f"{run}-taken.b-value") == {1: (taken, True)}
    text = registry.get(f"/schemas/ids/{own}")["schema"]
    assert canonical("AVRO", text) == canonical("AVRO", record("Own", "a").text)


def test_written_over_rest_it_is_found_to_ignore_ids(site: Site, run: str, first_id: int) -> None:
    """Karapace: no IMPORT mode, and 200 with its own id for an explicit one."""
    karapace = peer("karapace")
    karapace.make_target(site)
    del site.b["registry"]["writes"]
    site.register([version(f"acme-{run}-i-value", 1, first_id, record("I"))])
    code, found = command("check", str(site.config()))
    (target,) = found["targets"]
    assert (code, target["writes_count"]) == (1, 1)
    assert "IMPORT mode" in target["probe"]
    with site.running():
        site.wait_for("registry_ignores_ids")
    assert karapace.shown(f"{run}-i.b-value") == {}
    assert karapace.shown("_keyway-probe") == {}


def test_killed_and_started_again(registry: Peer, site: Site, run: str, first_id: int) -> None:
    """SIGKILL of Keyway while versions come, go and are deleted."""
    registry.make_target(site)
    draw = random.Random(14)
    source: Held = {}
    subjects = [f"acme-{run}-s{at}-value" for at in range(5)]
    for number in range(KILLS):
        child = site.start()
        started = site.log().count("schemas_distributed")
        go_on(site, draw, source, subjects, first_id=first_id + number * 10)
        if number % 3:
            site.wait_for("schemas_distributed", started + 1)
            time.sleep(draw.uniform(0, 1.0))  # the moment of the kill
        kill_child(child)
    theirs = [name.removeprefix("acme-").replace("-value", ".b-value") for name in subjects]
    with site.running():
        for subject, there in zip(subjects, theirs, strict=True):
            held = {at: stored for (name, at), stored in source.items() if name == subject}
            becomes(
                registry,
                there,
                {at: (stored.id, not stored.deleted) for at, stored in held.items()},
            )
        wait_until(  # the mode set for the writes
            lambda: all(registry.get(f"/mode/{name}").get("mode") != "IMPORT" for name in theirs),
            what="the modes to be taken back",
            deadline_s=ARRIVE_S_MAX,
        )
    assert registry.shown("_keyway-probe") == {}


def test_followed_as_the_primary(registry: Peer, site: Site, rig: Peer, run: str) -> None:
    """Its own clients register; the rig's registry has the same ids."""
    registry.make_source(site)
    rig.make_target(site)
    customer, common = f"acme-{run}-customer-value", f"acme-{run}-common-value"
    bodies: list[tuple[str, dict[str, Any]]] = [
        (customer, {"schema": CUSTOMER.text}),
        (
            f"acme-{run}-orders-value",
            {
                "schema": ORDER_TEXT,
                "references": [{"name": "Customer", "subject": customer, "version": 1}],
            },
        ),
        (common, {"schema": COMMON, "schemaType": "PROTOBUF"}),
        (
            f"acme-{run}-q-value",
            {
                "schema": USES,
                "schemaType": "PROTOBUF",
                "references": [{"name": "common.proto", "subject": common, "version": 1}],
            },
        ),
        (f"acme-{run}-j-value", {"schema": TITLED, "schemaType": "JSON"}),
    ]
    with site.running():
        for subject, body in bodies:
            number = registry.register(subject, body)
            there = subject.removeprefix("acme-").replace("-value", ".b-value")
            becomes(rig, there, {1: (number, True)})
        newer = registry.register(customer, {"schema": record("Customer", "name", "town").text})
        first = rig.shown(f"{run}-customer.b-value")[1][0]
        becomes(rig, f"{run}-customer.b-value", {1: (first, True), 2: (newer, True)})
        path = f"/subjects/acme-{run}-j-value/versions/1"
        gone = rig.shown(f"{run}-j.b-value")[1][0]
        assert registry.delete(path)
        becomes(rig, f"{run}-j.b-value", {1: (gone, False)})
        assert registry.delete(f"{path}?permanent=true")
        becomes(rig, f"{run}-j.b-value", {})
    _, found = command("diff", str(site.config()), "a", "b")  # others' subjects fit no pattern
    assert [difference for difference in found["differences"] if run in difference["subject"]] == []
