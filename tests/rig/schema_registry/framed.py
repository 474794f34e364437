"""Records in the registry's wire format, of each schema type, written and read by confluent-kafka's
own serializers: five bytes with the schema's id, then the datum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

CUSTOMER = '{"type":"record","name":"Customer","fields":[{"name":"name","type":"string"}]}'
ORDER = '{"type":"record","name":"Order","fields":[{"name":"customer","type":"Customer"}]}'
TITLED = '{"title": "P", "type": "object", "properties": {"a": {"type": "integer"}}}'
PROTOBUF_CONFIG = {"use.deprecated.format": False}


def on(topic: str) -> SerializationContext:
    """The value's place: the serializers make the subject `{topic}-value` of it."""
    return SerializationContext(topic, MessageField.VALUE)


def id_of(value: bytes) -> int:
    """The schema's id, in the first five bytes."""
    assert value[0] == 0
    return int.from_bytes(value[1:5], "big")


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


@dataclass(frozen=True, slots=True)
class Kind:
    """A schema type: its datum as bytes, and such bytes as the datum again."""

    write: Callable[[SchemaRegistryClient, str], bytes]
    read: Callable[[SchemaRegistryClient, str, bytes], object]
    datum: object


def _write_avro(registry: SchemaRegistryClient, topic: str) -> bytes:
    """With a reference to a subject of its own."""
    named = f"{topic}-customer-value"
    registry.register_schema(named, Schema(CUSTOMER, "AVRO"))
    schema = Schema(ORDER, "AVRO", [SchemaReference("Customer", named, 1)])
    return _bytes(AvroSerializer(registry, schema)({"customer": {"name": "Ann"}}, on(topic)))


def _write_protobuf(registry: SchemaRegistryClient, topic: str) -> bytes:
    order = message_class()
    return _bytes(
        ProtobufSerializer(order, registry, PROTOBUF_CONFIG)(order(name="Ann"), on(topic))
    )


def _read_protobuf(registry: SchemaRegistryClient, topic: str, value: bytes) -> object:
    return ProtobufDeserializer(message_class(), PROTOBUF_CONFIG, registry)(value, on(topic)).name


def _bytes(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value


KINDS: Mapping[str, Kind] = {
    "avro": Kind(
        _write_avro,
        lambda registry, topic, value: AvroDeserializer(registry)(value, on(topic)),
        {"customer": {"name": "Ann"}},
    ),
    "protobuf": Kind(_write_protobuf, _read_protobuf, "Ann"),
    "json": Kind(
        lambda registry, topic: _bytes(JSONSerializer(TITLED, registry)({"a": 1}, on(topic))),
        lambda registry, topic, value: JSONDeserializer(TITLED, schema_registry_client=registry)(
            value, on(topic)
        ),
        {"a": 1},
    ),
}
