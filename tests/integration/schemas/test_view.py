"""The registry view with stock clients: written by logical subject on A, read on B under the same
id. A's registry is Apicurio, polled; B has no registry but its view, fed by distribution.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from gateway.admin.value_decoder import Undecoded, ValueDecoder
from gateway.admin.values import Decoded
from gateway.config.state import RegistryViewSection
from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import free_ports
from tests.rig.apicurio import served_apicurio
from tests.rig.kafka import create_topic, produce, read_partition
from tests.rig.patience import wait_until
from tests.rig.schema_registry.framed import CUSTOMER, KINDS, ORDER, id_of
from tests.rig.schema_registry.site import HTTP, Site, answers

pytestmark = pytest.mark.integration


@dataclass(frozen=True)
class Views:
    a: str
    b: str
    registry: str
    kafka: str
    clusters: Path


@pytest.fixture(scope="module")
def views(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Views]:
    folder = tmp_path_factory.mktemp("views")
    with ExitStack() as stack:
        registry = stack.enter_context(served_apicurio(folder / "apicurio.log"))
        site = Site(kafka.bootstrap_servers, folder, "views")
        site.a["registry"] = {"url": registry, "reads": "rest", "topic": site.topic_a}
        ports = free_ports(2)
        site.a["registry_view"] = {"port": ports}
        site.b["registry_view"] = {"port": ports + 1}
        stack.enter_context(site.running())
        stack.enter_context(site.running("view", "a"))
        stack.enter_context(site.running("view", "b"))
        a, b = f"http://127.0.0.1:{ports}", f"http://127.0.0.1:{ports + 1}"
        wait_until(lambda: answers(a) and answers(b), what="both views", deadline_s=60)
        yield Views(a, b, registry, kafka.bootstrap_servers, site.config())


@pytest.fixture
def a(views: Views) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": views.a}) as client:
        yield client


@pytest.fixture
def b(views: Views) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": views.b}) as client:
        yield client


def arrived(url: str, number: int) -> None:
    path = f"{url}/schemas/ids/{number}/versions"
    wait_until(
        lambda: HTTP.get(path).status_code == 200,
        what=f"id {number} in the view",
        deadline_s=30,
    )


def carried(views: Views, topic: str, value: bytes) -> bytes:
    """Through a topic of A and a topic of B, as distribution copies records: bytes as they are."""
    for name in (f"acme-{topic}", f"{topic}.b"):
        create_topic(views.kafka, name)
        produce(views.kafka, name, [(None, value)])
        ((_, _, value),) = read_partition(views.kafka, name, 0)  # type: ignore[assignment]
    return value


def test_avro_with_a_reference(
    views: Views,
    fresh_name: Callable[[str], str],
    a: SchemaRegistryClient,
    b: SchemaRegistryClient,
) -> None:
    topic = fresh_name("orders")
    value = KINDS["avro"].write(a, topic)
    number = id_of(value)
    physical = HTTP.get(f"{views.registry}/subjects/acme-{topic}-value/versions/1").json()
    assert physical["id"] == number
    assert physical["references"][0]["subject"] == f"acme-{topic}-customer-value"
    got = carried(views, topic, value)
    assert got == value
    arrived(views.b, number)
    assert KINDS["avro"].read(b, topic, got) == {"customer": {"name": "Ann"}}
    found = b.get_latest_version(f"{topic}-value")
    assert (found.schema_id, found.version, found.subject) == (number, 1, f"{topic}-value")
    refers = [SchemaReference("Customer", f"{topic}-customer-value", 1)]
    assert b.lookup_schema(f"{topic}-value", Schema(ORDER, "AVRO", refers)).version == 1
    # By hand: five bytes, then Avro's.
    text = HTTP.get(f"{views.b}/schemas/ids/{number}").json()
    assert text["references"] == [
        {"name": "Customer", "subject": f"{topic}-customer-value", "version": 1}
    ]
    whole = text["schema"].replace('"Customer"', CUSTOMER)
    parsed = fastavro.parse_schema(json.loads(whole))
    read = fastavro.schemaless_reader(io.BytesIO(got[5:]), parsed, None)
    assert read == {"customer": {"name": "Ann"}}


@pytest.mark.deep
@pytest.mark.parametrize("name", ["json", "protobuf"])
def test_other_types(
    views: Views,
    fresh_name: Callable[[str], str],
    a: SchemaRegistryClient,
    b: SchemaRegistryClient,
    name: str,
) -> None:
    topic, kind = fresh_name(name), KINDS[name]
    value = kind.write(a, topic)
    arrived(views.b, id_of(value))
    assert kind.read(b, topic, carried(views, topic, value)) == kind.datum


@pytest.mark.deep
@pytest.mark.parametrize(
    ("name", "document"),
    [("avro", {"customer": {"name": "Ann"}}), ("protobuf", {"name": "Ann"}), ("json", {"a": 1})],
)
@pytest.mark.parametrize("cluster", ["a", "b"])
def test_an_operator_sees_a_value_by_its_schema(
    views: Views,
    fresh_name: Callable[[str], str],
    a: SchemaRegistryClient,
    name: str,
    document: object,
    cluster: str,
) -> None:
    """A has a registry, B the view alone."""
    topic = fresh_name(name)
    value = KINDS[name].write(a, topic)
    arrived(views.b, id_of(value))
    section = RegistryViewSection(clusters_file=views.clusters, cluster=cluster)
    found = asyncio.run(ValueDecoder.of(section).decoded(topic, value))
    assert found == Decoded(document, name, id_of(value))  # type: ignore[arg-type]
    missing = asyncio.run(ValueDecoder.of(section).decoded(topic, b"\0\x7f\0\0\0abc"))
    assert isinstance(missing, Undecoded)
    assert str(0x7F000000) in missing.problem


@pytest.mark.deep
def test_written_on_b_by_its_logical_subject(
    views: Views,
    fresh_name: Callable[[str], str],
    a: SchemaRegistryClient,
    b: SchemaRegistryClient,
) -> None:
    """The primary registers it, and B can use its id at once, before it has arrived."""
    subject = f"{fresh_name('w')}-value"
    number = b.register_schema(subject, Schema('{"type":"fixed","name":"F","size":3}', "AVRO"))
    with SchemaRegistryClient({"url": views.b}) as another:
        assert another.get_schema(number).schema_str
    arrived(views.b, number)
    assert subject in b.get_subjects()
    wait_until(  # A's registry is polled
        lambda: subject in a.get_subjects(), what="the subject in A's view", deadline_s=30
    )
    assert f"acme-{subject}" not in b.get_subjects()
    assert b.get_versions(subject) == [1]
    b.set_compatibility(subject, "FULL")
    wait_until(
        lambda: _level(b, subject) == "FULL", what="the level, by way of the primary", deadline_s=30
    )
    b.delete_subject(subject)
    wait_until(lambda: subject not in b.get_subjects(), what="its deletion", deadline_s=30)


def _level(of: SchemaRegistryClient, subject: str) -> str | None:
    try:
        return of.get_compatibility(subject)
    except SchemaRegistryError:
        return None


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/subjects/none-value/versions", 404, 40401),
        ("GET", "/subjects/none-value/versions/1", 404, 40401),
        ("GET", "/subjects/known-value/versions/9", 404, 40402),
        ("GET", "/subjects/known-value/versions/x", 422, 42202),
        ("GET", "/schemas/ids/999999", 404, 40403),
        ("GET", "/schemas/ids/999999/versions", 404, 40403),
        ("GET", "/config/known-value", 404, 40408),
        ("GET", "/mode/known-value", 404, 40409),
        ("POST", "/subjects/known-value", 422, 42201),
        ("GET", "/nowhere", 404, 404),
    ],
)
def test_errors_have_the_registry_s_codes(
    views: Views, b: SchemaRegistryClient, method: str, path: str, status: int, code: int
) -> None:
    arrived(views.b, b.register_schema("known-value", Schema('"bytes"', "AVRO")))
    wait_until(lambda: "known-value" in b.get_subjects(), what="it", deadline_s=30)
    answer = HTTP.request(method, views.b + path)
    assert (answer.status_code, answer.json()["error_code"]) == (status, code)
