"""Contents under logical names: lists, pages, lookups, errors with the registry's codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from keyway.clusters.core.names import compile_pattern
from keyway.clusters.core.subjects import RecordNames, pair_subjects
from schema_dist.core.compare import Fingerprint, computed_fingerprint
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

ORDERS = Listing(prefix="orders-value", deleted=True)
NUMBERS = (21, 4, 16, 9)


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
    assert shown.list_subjects(Listing(offset=1, limit=1)) == ["orders-key"]
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
        assert shown.version("orders-value", text, deleted=True).id == 12
    assert shown.version("orders-value", "1", deleted=True).id == 10
    assert shown.referenced_by("orders-value", "2") == [20]
    assert shown.referenced_by("orders-value", "3") == []
    assert [listed.id for listed in shown.list_schemas(Listing(prefix="orders-value"))] == [11, 12]
    latest = Listing(prefix="orders", latest_only=True)
    assert [listed.id for listed in shown.list_schemas(latest)] == [11, 12]
    assert shown.list_schemas(Listing(limit=0)) == []
    assert shown.count == 7


def test_a_list_is_bounded_by_its_texts_and_by_its_length() -> None:
    texts = ["x" * (ANSWER_TEXT_CHARS_MAX // 2)] * 2 + ["y"] * SCHEMAS_LISTED_MAX
    contents = Contents()
    for at, text in enumerate(texts):
        contents.put(version("acme-orders-value", at + 1, at + 1, text), at)
    found = under_logical_names(contents, NAMES)
    assert len(found.list_schemas(Listing(limit=2))) == 2, "16 MiB of text"
    with pytest.raises(ViewError, match="the list is too large") as refused:
        found.list_schemas(Listing(limit=3))
    assert (refused.value.status, refused.value.code) == (413, 413)
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


def test_a_text_is_parsed_for_its_first_look_up_alone(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []

    def noted(schema: Schema) -> Fingerprint:
        parsed.append(schema.text)
        return computed_fingerprint(schema)

    monkeypatch.setattr("schema_dist.core.shown.computed_fingerprint", noted)
    newest = shown.version("orders-value", "latest", deleted=False)
    texts = [listed.schema.text for listed in shown.list_schemas(ORDERS)]
    assert shown.longest_of("none") == 0
    assert shown.longest_of("orders-value") == sum(map(len, texts))
    for _ in range(2):
        assert shown.look_up("orders-value", newest.schema, deleted=False) is newest
    assert parsed == [newest.schema.text] * 3, "what is looked for is parsed each time"
    assert shown.longest_of("orders-value") == sum(map(len, texts)) - len(newest.schema.text)


def test_what_a_thread_has_parsed_of_a_version_that_was_replaced_meanwhile(shown: Shown) -> None:
    newest = shown.version("orders-value", "latest", deleted=False)
    before = version("orders-value", 3, 12, '"int"')
    shown._meanings[newest.place] = before, computed_fingerprint(before.schema)
    assert shown.look_up("orders-value", newest.schema, deleted=False) is newest


def test_a_text_that_nobody_can_parse_is_like_none() -> None:
    contents = Contents()
    contents.put(version("acme-orders-value", 1, 1, "{"), 0)
    found = under_logical_names(contents, NAMES)
    for _ in range(2):
        with pytest.raises(ViewError, match="Schema not found"):
            found.look_up("orders-value", Schema("AVRO", '"int"'), deleted=False)


def test_a_version_that_is_replaced_or_removed_leaves_nothing() -> None:
    contents = Contents()
    users = [
        replace(REFERS, subject=f"acme-u{number}-value", id=SchemaId(number)) for number in NUMBERS
    ]
    for at, stored in enumerate((version("acme-orders-value", 2, 11), *users)):
        contents.put(stored, at)
    found = under_logical_names(contents, NAMES)
    assert found.referenced_by("orders-value", "2") == sorted(NUMBERS)
    contents.remove(users[0].place)
    other = version("acme-orders-value", 2, 11, '"int"')
    contents.put(other, len(users) + 1)
    found.look_up("orders-value", version("", 2, 11).schema, deleted=False)
    found.update(contents, [users[0].place, other.place])
    assert found.referenced_by("orders-value", "2") == sorted(NUMBERS[1:])
    assert found.longest_of("orders-value") == len(other.schema.text)


def test_contexts_are_in_order() -> None:
    contents, names = Contents(), [f".{letter}" for letter in "gfedcba"]
    for at, name in enumerate(names):
        contents.put(version(f":{name}:acme-orders-value", 1, at + 1), at)
    assert under_logical_names(contents, NAMES).contexts() == [".", *sorted(names)]


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
    (lambda asked: asked.version("orders-value", "2147483647", deleted=False), 404, 40402),
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
    assert refused.value.message == str(refused.value)
