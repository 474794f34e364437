"""Contents under logical names: lists, pages, lookups, errors with the registry's codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from keyway.clusters.core.names import compile_pattern
from keyway.clusters.core.subjects import RecordNames, pair_subjects
from schema_dist.core.contents import Contents
from schema_dist.core.limits import ANSWER_TEXT_CHARS_MAX, SCHEMAS_LISTED_MAX
from schema_dist.core.model import JSON, Reference, Schema, SchemaId, SchemaVersion, Version
from schema_dist.core.shown import (
    Listing,
    Shown,
    ViewError,
    places,
    under_logical_names,
    version_body,
)

NAMES = pair_subjects(
    compile_pattern("acme-{topic}"), compile_pattern("{topic}"), RecordNames.REFUSE
)


def version(
    subject: str, at: int, number: int, text: str = "", *, deleted: bool = False
) -> SchemaVersion:
    return SchemaVersion(
        subject=subject,
        version=Version(at),
        id=SchemaId(number),
        schema=Schema("AVRO", text or f'{{"type":"fixed","name":"n{number}","size":1}}'),
        deleted=deleted,
    )


REFERS = SchemaVersion(
    subject="acme-user-value",
    version=Version(1),
    id=SchemaId(20),
    schema=Schema(JSON, "{}", (Reference("o", "acme-orders-value", Version(2)),)),
)


@pytest.fixture
def shown() -> Shown:
    contents = Contents()
    for at, stored in enumerate(
        [
            version("acme-orders-value", 1, 10, deleted=True),
            version("acme-orders-value", 2, 11),
            version("acme-orders-value", 3, 12),
            version("acme-orders-key", 1, 11),
            version("acme-gone-value", 1, 13, deleted=True),
            version(":.eu:acme-orders-value", 1, 11, '"int"'),
            REFERS,
            version("evil-orders-value", 1, 14),
            version("_internal-value", 1, 15),
            version("com.acme.Record", 1, 16),
        ]
    ):
        contents.put(stored, at)
    contents.compatibility = {"": "FULL", "acme-orders-value": "NONE", "evil-orders-value": "NONE"}
    contents.modes = {"acme-orders-value": "READONLY"}
    return under_logical_names(contents, NAMES)


def test_only_logical_subjects_are_shown(shown: Shown) -> None:
    assert shown.list_subjects(Listing()) == [
        ":.eu:orders-value",
        "orders-key",
        "orders-value",
        "user-value",
    ]
    assert shown.list_subjects(Listing(deleted=True)) == [
        ":.eu:orders-value",
        "gone-value",
        "orders-key",
        "orders-value",
        "user-value",
    ]
    assert shown.list_subjects(Listing(deleted_only=True)) == ["gone-value", "orders-value"]
    assert shown.list_subjects(Listing(prefix="orders")) == ["orders-key", "orders-value"]
    assert shown.list_subjects(Listing(offset=1, limit=2)) == ["orders-key", "orders-value"]
    assert shown.list_subjects(Listing(offset=9)) == []
    assert shown.list_subjects(Listing(limit=0)) == []
    assert shown.contexts() == [".", ".eu"]
    assert set(shown.compatibility) == {"", "orders-value"}


def test_versions(shown: Shown) -> None:
    assert shown.list_versions("orders-value", Listing()) == [2, 3]
    assert shown.list_versions("orders-value", Listing(deleted=True)) == [1, 2, 3]
    assert shown.list_versions("orders-value", Listing(deleted_only=True)) == [1]
    assert shown.list_versions("orders-value", Listing(offset=1)) == [3]
    for text in ("latest", "-1", "3"):
        assert shown.version("orders-value", text, deleted=False).id == 12
    assert shown.version("orders-value", "1", deleted=True).id == 10
    assert shown.referenced_by("orders-value", "2") == [20]
    assert shown.referenced_by("orders-value", "3") == []
    assert [listed.id for listed in shown.list_schemas(Listing(prefix="orders-value"))] == [11, 12]
    latest = Listing(prefix="orders", latest_only=True)
    assert [listed.id for listed in shown.list_schemas(latest)] == [11, 12]


def test_a_list_is_bounded_by_its_texts_and_by_its_length() -> None:
    texts = ["x" * (ANSWER_TEXT_CHARS_MAX // 2)] * 2 + ["y"] * SCHEMAS_LISTED_MAX
    contents = Contents()
    for at, text in enumerate(texts):
        contents.put(version("acme-orders-value", at + 1, at + 1, text), at)
    found = under_logical_names(contents, NAMES)
    assert len(found.list_schemas(Listing(limit=2))) == 2, "16 MiB of text"
    with pytest.raises(ViewError, match="the list is too large"):
        found.list_schemas(Listing(limit=3))
    assert len(found.list_schemas(Listing(offset=1))) == 1_000
    assert len(found.list_schemas(Listing(offset=1, limit=2_000))) == 1_000


def test_a_version_is_shown_with_logical_references(shown: Shown) -> None:
    assert version_body(shown.version("user-value", "1", deleted=False)) == {
        "subject": "user-value",
        "version": 1,
        "id": 20,
        "schema": "{}",
        "schemaType": "JSON",
        "references": [{"name": "o", "subject": "orders-value", "version": 2}],
    }


def test_ids_of_each_context_and_of_deleted_versions(shown: Shown) -> None:
    found = shown.by_id(SchemaId(11), "")
    assert places(found, deleted=False) == [
        {"subject": "orders-value", "version": 2},
        {"subject": "orders-key", "version": 1},
    ]
    assert shown.by_id(SchemaId(11), ":.eu:any")[0].schema.text == '"int"'
    deleted = shown.by_id(SchemaId(13), "")
    assert places(deleted, deleted=False) == []
    assert len(places(deleted, deleted=True)) == 1


def test_look_up_by_meaning_newest_first(shown: Shown) -> None:
    schema = Schema("AVRO", '{"size": 1, "name": "n12", "type": "fixed"}')
    assert shown.look_up("orders-value", schema, deleted=False).version == 3
    old = Schema("AVRO", '{"size": 1, "name": "n10", "type": "fixed"}')
    assert shown.look_up("orders-value", old, deleted=True).version == 1
    refers = Schema(JSON, "{ }", (Reference("o", "orders-value", Version(2)),))
    assert shown.look_up("user-value", refers, deleted=False).id == 20


def test_settings(shown: Shown) -> None:
    assert shown.compatibility_of("", default_to_global=False) == "FULL"
    assert shown.compatibility_of("orders-value", default_to_global=False) == "NONE"
    assert shown.compatibility_of("orders-key", default_to_global=True) == "FULL"
    assert shown.mode_of("orders-value", default_to_global=False) == "READONLY"
    assert shown.mode_of("", default_to_global=False) == "READWRITE"
    assert Shown(NAMES).compatibility_of("", default_to_global=False) == "BACKWARD"


_WRONG: list[tuple[Callable[[Shown], Any], int, int]] = [
    (lambda asked: asked.list_versions("none", Listing()), 404, 40401),
    (lambda asked: asked.list_versions("gone-value", Listing()), 404, 40401),
    (lambda asked: asked.list_versions("evil-orders-value", Listing()), 404, 40401),
    (lambda asked: asked.version("gone-value", "1", deleted=False), 404, 40401),
    (lambda asked: asked.version("gone-value", "latest", deleted=False), 404, 40401),
    (lambda asked: asked.version("orders-value", "9", deleted=False), 404, 40402),
    (lambda asked: asked.version("orders-value", "1", deleted=False), 404, 40402),
    (lambda asked: asked.version("orders-value", "0", deleted=False), 422, 42202),
    (lambda asked: asked.version("orders-value", "²", deleted=False), 422, 42202),
    (lambda asked: asked.version("orders-value", "2147483648", deleted=False), 422, 42202),
    (lambda asked: asked.by_id(SchemaId(99), ""), 404, 40403),
    (lambda asked: asked.by_id(SchemaId(14), ""), 404, 40403),  # another tenant's
    (
        lambda asked: asked.look_up("orders-value", Schema("AVRO", '"int"'), deleted=False),
        404,
        40403,
    ),
    (lambda asked: asked.look_up("none", Schema("AVRO", '"int"'), deleted=False), 404, 40401),
    (lambda asked: asked.look_up("orders-value", Schema("AVRO", "{"), deleted=False), 422, 42201),
    (lambda asked: asked.compatibility_of("orders-key", default_to_global=False), 404, 40408),
    (lambda asked: asked.mode_of("orders-key", default_to_global=False), 404, 40409),
]


@pytest.mark.parametrize(("ask", "status", "code"), _WRONG)
def test_errors(shown: Shown, ask: Callable[[Shown], Any], status: int, code: int) -> None:
    with pytest.raises(ViewError) as refused:
        ask(shown)
    assert (refused.value.status, refused.value.code) == (status, code)
