"""The registry view with stock clients: written by logical subject on A, read on B under the same
id. A's registry is Apicurio, polled; B has no registry but its view, fed by distribution.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import free_ports, wait_until
from tests.rig.apicurio import served_apicurio
from tests.rig.kafka import create_topic, produce, read_partition
from tests.rig.schema_registry.site import HTTP, Site, answers

pytestmark = pytest.mark.integration

CUSTOMER = '{"type":"record","name":"Customer","fields":[{"name":"name","type":"string"}]}'
ORDER = '{"type":"record","name":"Order","fields":[{"name":"customer","type":"Customer"}]}'


@dataclass(frozen=True)
class Views:
    a: str
    b: str
    registry: str
    kafka: str


@pytest.fixture(scope="module")
def views(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Views]:
    folder = tmp_path_factory.mktemp("views")
    with ExitStack() as stack:
        registry = stack.enter_context(served_apicurio(folder / "apicurio.log"))
        site = Site(kafka.bootstrap_servers, folder, "views")
        site.a["registry"] = {"url": registry, "reads": "rest"}
        ports = free_ports(2)
        site.a["registry_view"] = {"port": ports}
        site.b["registry_view"] = {"port": ports + 1}
        stack.enter_context(site.running())
        stack.enter_context(site.running("view", "a"))
        stack.enter_context(site.running("view", "b"))
        a, b = f"http://127.0.0.1:{ports}", f"http://127.0.0.1:{ports + 1}"
        wait_until(lambda: answers(a) and answers(b), what="both views", deadline_s=60)
        yield Views(a, b, registry, kafka.bootstrap_servers)


@pytest.fixture
def a(views: Views) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": views.a}) as client:
        yield client


@pytest.fixture
def b(views: Views) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": views.b}) as client:
        yield client


def on(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


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
    a.register_schema(f"{topic}-customer-value", Schema(CUSTOMER, "AVRO"))
    refers = [SchemaReference("Customer", f"{topic}-customer-value", 1)]
    schema = Schema(ORDER, "AVRO", refers)
    value = AvroSerializer(a, schema)({"customer": {"name": "Ann"}}, on(topic))
    assert isinstance(value, bytes)
    number = int.from_bytes(value[1:5], "big")
    physical = HTTP.get(f"{views.registry}/subjects/acme-{topic}-value/versions/1").json()
    assert physical["id"] == number
    assert physical["references"][0]["subject"] == f"acme-{topic}-customer-value"
    got = carried(views, topic, value)
    assert got == value
    arrived(views.b, number)
    assert AvroDeserializer(b)(got, on(topic)) == {"customer": {"name": "Ann"}}
    found = b.get_latest_version(f"{topic}-value")
    assert (found.schema_id, found.version, found.subject) == (number, 1, f"{topic}-value")
    assert b.lookup_schema(f"{topic}-value", schema).version == 1
    # By hand: five bytes, then Avro's.
    text = HTTP.get(f"{views.b}/schemas/ids/{number}").json()
    assert text["references"] == [
        {"name": "Customer", "subject": f"{topic}-customer-value", "version": 1}
    ]
    whole = text["schema"].replace('"Customer"', CUSTOMER)
    parsed = fastavro.parse_schema(json.loads(whole))
    read = fastavro.schemaless_reader(io.BytesIO(got[5:]), parsed, None)
    assert read == {"customer": {"name": "Ann"}}


def test_json_schema(
    views: Views,
    fresh_name: Callable[[str], str],
    a: SchemaRegistryClient,
    b: SchemaRegistryClient,
) -> None:
    topic = fresh_name("j")
    text = '{"title": "P", "type": "object", "properties": {"a": {"type": "integer"}}}'
    value = JSONSerializer(text, a)({"a": 1}, on(topic))
    assert isinstance(value, bytes)
    arrived(views.b, int.from_bytes(value[1:5], "big"))
    reads = JSONDeserializer(text, schema_registry_client=b)
    assert reads(carried(views, topic, value), on(topic)) == {"a": 1}


def message_class() -> Any:
    """message Order { string name = 1; }, as protoc would compile it."""
    file = descriptor_pb2.FileDescriptorProto(
        name="order.proto", package="keyway.tests", syntax="proto3"
    )
    text = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
    file.message_type.add(name="Order").field.add(name="name", number=1, type=text, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("keyway.tests.Order"))


def test_protobuf(
    views: Views,
    fresh_name: Callable[[str], str],
    a: SchemaRegistryClient,
    b: SchemaRegistryClient,
) -> None:
    topic = fresh_name("p")
    config = {"use.deprecated.format": False}
    order = message_class()
    value = ProtobufSerializer(order, a, config)(order(name="x"), on(topic))
    assert isinstance(value, bytes)
    arrived(views.b, int.from_bytes(value[1:5], "big"))
    reads = ProtobufDeserializer(order, config, b)
    assert reads(carried(views, topic, value), on(topic)).name == "x"


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
