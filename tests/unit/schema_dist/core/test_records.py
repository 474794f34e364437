"""Records of `_schemas`, as Confluent and Karapace write them, and others."""

from __future__ import annotations

import json

import pytest

from schema_dist.core.model import PROTOBUF, Reference, Schema, SchemaId, SchemaVersion, Version
from schema_dist.core.records import (
    CompatibilitySet,
    Event,
    Ignored,
    Malformed,
    ModeSet,
    SchemaRemoved,
    SchemaWritten,
    SubjectCleared,
    SubjectDeleted,
    compatibility_record,
    decode,
    mode_record,
    schema_key,
    schema_record,
    schema_version,
)

KARAPACE = (
    b'{"keytype":"SCHEMA","subject":"s","version":4,"magic":1}',
    b'{"subject":"s","version":4,"id":900,"schema":"\\"string\\"","deleted":false}',
)


def stored(**changes: object) -> SchemaVersion:
    fields = {"subject": "s", "version": 4, "id": 900, "schema": '"string"'}
    return schema_version(fields | changes)


def test_a_version_as_karapace_writes_it() -> None:
    assert decode(*KARAPACE) == SchemaWritten(
        SchemaVersion(
            subject="s", version=Version(4), id=SchemaId(900), schema=Schema("AVRO", '"string"')
        )
    )


def test_an_empty_value_is_a_tombstone_as_karapace_writes_it() -> None:
    assert decode(KARAPACE[0], b"") == SchemaRemoved("s", Version(4))
    assert decode(b'{"keytype":"CONFIG","subject":"s","magic":0}', b"") == CompatibilitySet(
        "s", None
    )


def test_the_keys_we_write_are_the_keys_they_write() -> None:
    """A compacted log knows a record by the bytes of its key."""
    assert schema_record(stored(), deleted=False) == KARAPACE
    assert schema_key(stored()) == KARAPACE[0]
    assert compatibility_record("s", "FULL") == (
        b'{"keytype":"CONFIG","subject":"s","magic":0}',
        b'{"compatibilityLevel":"FULL"}',
    )
    assert compatibility_record("s", "FULL", '{"alias":"t"}')[1] == (
        b'{"compatibilityLevel":"FULL","alias":"t"}'
    )
    assert compatibility_record("s", None, '{"alias":"t"}')[1] == b'{"alias":"t"}'
    assert compatibility_record("", None) == (
        b'{"keytype":"CONFIG","subject":null,"magic":0}',
        None,
    )
    assert (
        mode_record("größe", None)[0] == '{"keytype":"MODE","subject":"größe","magic":0}'.encode()
    )
    assert mode_record("s", "IMPORT") == (
        b'{"keytype":"MODE","subject":"s","magic":0}',
        b'{"mode":"IMPORT"}',
    )


def test_everything_of_a_version_comes_back() -> None:
    written = SchemaVersion(
        subject=":.eu:größe-value",
        version=Version(2),
        id=SchemaId(5),
        schema=Schema(
            PROTOBUF,
            'message P { string a = 1; } // "\\',
            (Reference("c.proto", "common-value", Version(1)),),
            '{"metadata":{"properties":{"owner":"x"}}}',
        ),
    )
    key, value = schema_record(written, deleted=False)
    assert decode(key, value) == SchemaWritten(written)
    assert json.loads(value)["metadata"] == {"properties": {"owner": "x"}}
    deleted = decode(*schema_record(written, deleted=True))
    assert isinstance(deleted, SchemaWritten)
    assert deleted.written.deleted


@pytest.mark.parametrize(
    ("key", "value", "event"),
    [
        ({"keytype": "SCHEMA", "subject": "s", "version": 4}, None, SchemaRemoved("s", Version(4))),
        (
            {"keytype": "CONFIG", "subject": "s"},
            {"compatibilityLevel": "FULL"},
            CompatibilitySet("s", "FULL"),
        ),
        (
            {"keytype": "CONFIG", "subject": None},
            {"compatibilityLevel": "NONE"},
            CompatibilitySet("", "NONE"),
        ),
        ({"keytype": "CONFIG", "subject": "s"}, None, CompatibilitySet("s", None)),
        (
            {"keytype": "CONFIG", "subject": "s"},
            {"subject": "s", "compatibilityGroup": "application.version"},
            CompatibilitySet("s", None, '{"compatibilityGroup":"application.version"}'),
        ),
        (
            {"keytype": "CONFIG", "subject": "s"},
            {"subject": "s", "compatibilityLevel": "FULL", "normalize": True, "alias": "t"},
            CompatibilitySet("s", "FULL", '{"alias":"t","normalize":true}'),
        ),
        ({"keytype": "MODE", "subject": "s"}, {"mode": "READONLY"}, ModeSet("s", "READONLY")),
        ({"keytype": "MODE"}, None, ModeSet("", None)),
        (
            {"keytype": "DELETE_SUBJECT", "subject": "s"},
            {"subject": "s", "version": 3},
            SubjectDeleted("s", Version(3)),
        ),
        *(
            (
                {"keytype": "DELETE_SUBJECT", "subject": "s"},
                {"subject": "s", "version": number},
                SubjectDeleted("s", Version(number)),
            )
            for number in (0, 2**31 - 1)
        ),
        ({"keytype": "DELETE_SUBJECT", "subject": "s"}, None, Ignored("DELETE_SUBJECT")),
        ({"keytype": "CLEAR_SUBJECT", "subject": "s"}, {"subject": "s"}, SubjectCleared("s")),
        ({"keytype": "NOOP"}, None, Ignored("NOOP")),
        ({"keytype": "CONTEXT", "tenant": "t", "context": "c"}, {}, Ignored("CONTEXT")),
        ({"keytype": "ASSOC"}, {"a": 1}, Ignored("ASSOC")),
    ],
)
def test_every_key_type(key: object, value: object, event: Event) -> None:
    raw = None if value is None else json.dumps(value).encode()
    assert decode(json.dumps(key).encode(), raw) == event


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (None, b"{}", "no key"),
        (b"", b"{}", "the key is no JSON"),
        (b"\xff", b"{}", "the key is no JSON"),
        (b"[]", b"{}", "the key is no JSON object"),
        (b"[" * 100_000, b"{}", "the key is no JSON"),
        (b'{"subject":"s"}', b"{}", "keytype is missing"),
        (b'{"keytype":7}', b"{}", "keytype is no text"),
        (KARAPACE[0], b"{", "the value is no JSON"),
        (KARAPACE[0], b"{}", "id is missing"),
        (KARAPACE[0], b'{"id":1,"schema":null}', "schema is missing"),
        (KARAPACE[0], b'{"id":true,"schema":"x"}', "id is no positive integer"),
        (KARAPACE[0], b'{"id":2147483648,"schema":"x"}', "id is no positive integer"),
        (
            KARAPACE[0],
            b'{"id":1,"schema":"x","references":{"a":1}}',
            "references is no list of objects",
        ),
        (
            KARAPACE[0],
            b'{"id":1,"schema":"x","references":[1]}',
            "references is no list of objects",
        ),
        (KARAPACE[0], b'{"id":1,"schema":"x","references":[{}]}', "name is missing"),
        (b'{"keytype":"SCHEMA","subject":"s"}', None, "version is missing"),
        (b'{"keytype":"CONFIG"}', b'{"compatibilityLevel":7}', "compatibilityLevel is no text"),
    ],
)
def test_what_no_registry_wrote_is_malformed(key: bytes | None, value: bytes, why: str) -> None:
    assert decode(key, value) == Malformed(why)
