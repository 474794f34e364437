"""Avro in the registry wire format: written and read by the stock serializers, changed by Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import SparkSession

from spark.transforms.core.avro_types import InvalidSchema, defined, types_of
from spark.transforms.core.engine import Engine, UnknownSchema
from spark.transforms.core.masks import Secret, hmac_masked
from spark.transforms.core.plan import Plan, RegistrySettings
from spark.transforms.core.steps import (
    Drop,
    Hmac,
    Mask,
    Redact,
    Rename,
    Route,
    Rule,
    Step,
    TimeFormat,
    Timestamp,
)
from spark.transforms.frames import marked
from spark.transforms.registry import Registry, RegistryError, registry_of
from tests.rig.rest_stand_in import stand_in

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore")]

KEY = Secret(b"sixteen byte key")
LEG = {
    "type": "record",
    "name": "ny.Leg",
    "fields": [{"name": "to", "type": "string"}, {"name": "tail", "type": ["null", "string"]}],
}
FLIGHT = {
    "type": "record",
    "name": "ny.Flight",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "at", "type": "long"},
        {"name": "legs", "type": {"type": "array", "items": LEG}},
        {"name": "crew", "type": ["null", {"type": "map", "values": "string"}], "default": None},
    ],
}
DATUM = {
    "carrier": "UA",
    "at": 1357034400,
    "legs": [{"to": "IAH", "tail": "N14228"}, {"to": "JFK", "tail": None}],
    "crew": {"captain": "Ann"},
}


@pytest.fixture
def client(registry: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry}) as opened:
        yield opened


def plan(registry: str, *steps: Step) -> Plan:
    return Plan(
        name="p",
        steps=steps,
        quarantine="sick",
        value_format="avro",
        secrets={"KEY": KEY},
        registry=RegistrySettings(url=registry, register=True),
    )


def paths(*texts: str) -> Any:
    return texts


def serialized(client: SchemaRegistryClient, topic: str, datum: Any = DATUM) -> bytes:
    serializer = AvroSerializer(client, json.dumps(FLIGHT))
    data = serializer(datum, SerializationContext(topic, MessageField.VALUE))
    assert isinstance(data, bytes)
    return data


def deserialized(client: SchemaRegistryClient, topic: str, data: bytes | None) -> Any:
    assert data is not None
    return AvroDeserializer(client)(data, SerializationContext(topic, MessageField.VALUE))


def engine(registry: str, *steps: Step) -> Engine:
    return Engine(plan(registry, *steps), registry_of(RegistrySettings(url=registry)))


def test_masks_keep_the_five_bytes(
    registry: str, client: SchemaRegistryClient, fresh_name: Callable[[str], str]
) -> None:
    topic = fresh_name("masked")
    data = serialized(client, topic)
    known = engine(
        registry,
        Mask(paths=paths("legs[].tail"), hmac=Hmac(key_env="KEY")),
        Mask(paths=paths("crew.captain"), redact=Redact()),
    )
    out = known.process(topic, None, data).value
    assert out is not None
    assert out[:5] == data[:5]
    masked = hmac_masked("N14228", KEY, 32)
    assert deserialized(client, topic, out) == {
        **DATUM,
        "legs": [{"to": "IAH", "tail": masked}, {"to": "JFK", "tail": None}],
        "crew": {"captain": "***"},
    }


@pytest.mark.spark
def test_new_schemas_are_registered_for_the_topic_of_each_record(
    registry: str,
    client: SchemaRegistryClient,
    fresh_name: Callable[[str], str],
    spark: SparkSession,
) -> None:
    topic, united, others = (fresh_name(name) for name in ("flights", "united", "others"))
    steps = (
        Drop(paths=paths("crew")),
        Rename(path="legs[].to", to="dest"),  # type: ignore[arg-type]
        Timestamp(
            paths=paths("at"),
            input=TimeFormat(format="unix_s"),
            output=TimeFormat(format="iso8601", zone="America/New_York"),
        ),
        Route(
            rules=(Rule(path="carrier", equals="UA", topic=united),),  # type: ignore[arg-type]
            otherwise=others,
        ),
    )
    values = [
        serialized(client, topic, {**DATUM, "carrier": carrier}) for carrier in ("UA", "B6", "UA")
    ]
    columns = (
        "key binary, value binary, topic string, headers array<struct<key:string,value:binary>>"
    )
    frame = spark.createDataFrame([(None, value, topic, None) for value in values], columns)
    rows = marked(frame, plan(registry, *steps)).collect()
    assert sorted(row["topic"] for row in rows) == sorted([others, united, united])
    for row in rows:
        assert deserialized(client, row["topic"], bytes(row["value"])) == {
            "carrier": "UA" if row["topic"] == united else "B6",
            "at": "2013-01-01T05:00:00-05:00",
            "legs": [{"dest": "IAH", "tail": "N14228"}, {"dest": "JFK", "tail": None}],
        }
    found = {name: client.get_version(f"{name}-value", -1) for name in (topic, united, others)}
    assert {version.version for version in found.values()} == {1}
    assert found[united].schema_id == found[others].schema_id, "the same schema has the same id"
    assert found[united].schema_id != found[topic].schema_id


def test_schemas_with_references(
    registry: str, client: SchemaRegistryClient, fresh_name: Callable[[str], str]
) -> None:
    topic, leg = fresh_name("flights"), fresh_name("leg")
    client.register_schema(leg, Schema(json.dumps(LEG), "AVRO"))
    flight = json.loads(json.dumps(FLIGHT))
    flight["fields"][2]["type"]["items"] = "ny.Leg"
    referring = Schema(json.dumps(flight), "AVRO", [SchemaReference("ny.Leg", leg, 1)])
    schema_id = client.register_schema(fresh_name("referring"), referring)
    definitions = registry_of(RegistrySettings(url=registry)).writer(schema_id)
    body = serialized(client, topic)[5:]
    assert types_of(definitions).skip(body, 0) == len(body)
    data = b"\0" + schema_id.to_bytes(4, "big") + body
    outcome = engine(registry, Drop(paths=paths("legs[].to"))).process(
        fresh_name("dropped"), None, data
    )
    assert outcome.problem is None
    assert deserialized(client, topic, outcome.value)["legs"] == [
        {"tail": "N14228"},
        {"tail": None},
    ]


def test_what_the_registry_does_not_have_or_is_not_avro(
    registry: str, client: SchemaRegistryClient, fresh_name: Callable[[str], str]
) -> None:
    known = registry_of(RegistrySettings(url=registry))
    with pytest.raises(UnknownSchema):
        known.writer(999_999)
    schema_id = client.register_schema(fresh_name("json"), Schema('{"type":"object"}', "JSON"))
    with pytest.raises(InvalidSchema, match="is JSON, not AVRO"):
        known.writer(schema_id)
    known.register(fresh_name("s"), defined("string"))


def test_a_registry_that_refuses_or_is_away_is_no_fault_of_the_record(
    registry: str, client: SchemaRegistryClient, fresh_name: Callable[[str], str], free_port: int
) -> None:
    topic = fresh_name("flights")
    data = serialized(client, topic)
    with pytest.raises(RegistryError, match=rf"POST .*{topic}-value/versions: 409 "):
        # Readers of the new schema would miss the new name in records of the old one.
        engine(registry, Rename(path="at", to="when")).process(topic, None, data)  # type: ignore[arg-type]
    away = Engine(
        plan(registry, Drop(paths=paths("at"))),
        Registry(RegistrySettings(url=f"http://127.0.0.1:{free_port}")),
    )
    with pytest.raises(RegistryError, match=r"GET .*: ConnectError"):
        away.process(topic, None, data)


@pytest.mark.parametrize(
    "body", [b"<html>default backend - 404</html>", {"error_code": 404, "message": "HTTP 404"}, []]
)
def test_a_404_that_is_not_the_registrys_is_no_fault_of_the_record(body: Any) -> None:
    """All records went into the quarantine while a proxy did not reach the registry."""
    with stand_in({"/schemas/ids/7": (404, body)}) as proxy:
        url = f"http://{proxy.address}"
        asking = Engine(
            plan(url, Drop(paths=paths("at"))),
            Registry(RegistrySettings(url=url)),
        )
        with pytest.raises(RegistryError, match=r"GET .*/schemas/ids/7: 404 "):
            asking.process("flights", None, b"\0\0\0\0\7")


def test_a_password_goes_to_the_registry_and_nowhere_else() -> None:
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["authorization"])
        return httpx.Response(401, json={"error_code": 401, "message": "no"})

    settings = RegistrySettings(url="http://r", username="me", password=Secret(b"SECRET"))
    known = Registry(settings)
    known._http._transport = httpx.MockTransport(answer)
    with pytest.raises(RegistryError, match="401") as error:
        known.writer(1)
    assert seen == ["Basic bWU6U0VDUkVU"]
    assert "SECRET" not in f"{error.value} {settings}"
