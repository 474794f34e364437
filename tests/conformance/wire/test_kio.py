"""kio as a second opinion: it was generated from the same message definitions by other people.

Its values are plain: kio takes no unknown tagged fields and no unknown error codes.
"""

from __future__ import annotations

import io
from zlib import crc32

import pytest
from kio.index import load_payload_module
from kio.schema.index import PayloadEntityType
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from gateway.core.wire.apis import APIS
from gateway.core.wire.decode import decode
from gateway.core.wire.encode import encode
from gateway.core.wire.schema import Schema
from tests.rig.wire_values import Values

MESSAGES_PER_VERSION = 6

CASES = [
    pytest.param(key, schema, kind, id=schema.name)
    for key, api in APIS.items()
    for schema, kind in (
        (api.request, EntityType.request),
        (api.response, EntityType.response),
    )
]


@pytest.mark.parametrize(("key", "schema", "kind"), CASES)
def test_kio_reads_and_writes_the_same_bytes(
    key: int, schema: Schema, kind: PayloadEntityType
) -> None:
    class_name = schema.name.replace(" r", "R")
    for version in range(schema.versions.first, schema.versions.last + 1):
        entity = getattr(load_payload_module(key, version, kind), class_name)
        plan = schema.plan(version)
        for index in range(MESSAGES_PER_VERSION):
            values = Values(crc32(f"{schema.name} {version} {index}".encode()), plain=True)
            data = encode(plan, values.message(schema, version))
            value, size = entity_reader(entity)(data, 0)
            assert size == len(data)
            again = io.BytesIO()
            entity_writer(entity)(again, value)
            assert again.getvalue() == data
            assert encode(plan, decode(plan, data, 0)) == data
