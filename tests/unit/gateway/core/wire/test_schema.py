from __future__ import annotations

import pytest

from gateway.core.wire import schema as s
from gateway.core.wire.apis import APIS
from gateway.core.wire.decode import decode
from gateway.core.wire.errors import ErrorCode, UnsupportedVersion
from gateway.core.wire.schema import Field, Schema, Versions, parse_tables, parse_versions

TABLE = """\
Thing request
  Name string?2+
  Parts [] 1-3
    Id uuid
    Size i64 2+ =-1
  Rack string? 2+ #0 =null
  Strict bool =true

Thing response
  ErrorCode i16
"""


def test_versions_are_one_a_range_or_open_ended() -> None:
    assert [parse_versions("3").has(version) for version in (2, 3, 4)] == [False, True, False]
    assert [parse_versions("1-7").has(version) for version in (0, 1, 7, 8)] == [
        False,
        True,
        True,
        False,
    ]
    assert parse_versions("2+").has(32_767)


def test_a_table_is_read_with_its_nesting() -> None:
    tables = parse_tables(TABLE)
    assert list(tables) == ["Thing request", "Thing response"]
    name, parts, rack, strict = tables["Thing request"]
    assert (name.kind, name.nullable.first, name.tag) == (s.STRING, 2, -1)
    assert [field.name for field in parts.fields] == ["Id", "Size"]
    # Without versions of its own a field is where its struct is.
    assert (parts.fields[0].versions.first, parts.fields[0].versions.last) == (1, 3)
    assert (rack.tag, rack.default_value()) == (0, None)
    assert strict.default_value() is True


def test_a_plan_has_the_fields_of_its_version_and_the_defaults_of_the_others() -> None:
    schema = Schema("Thing request", Versions(0, 3), 2, parse_tables(TABLE)["Thing request"])
    plan = schema.plan(0)
    assert [op.name for op in plan.ops] == ["Name", "Strict"]
    assert plan.constants == [("Rack", None)]
    assert [field.name for field in plan.fresh] == ["Parts"]
    newer = schema.plan(3)
    assert [op.name for op in newer.ops] == ["Name", "Parts", "Strict"]
    assert [op.name for op in newer.tagged] == ["Rack"]
    assert newer.flexible
    assert not plan.flexible
    assert schema.plan(3) is newer


def test_a_version_outside_the_range_is_refused_with_kafkas_error() -> None:
    schema = Schema("Thing request", Versions(1, 3), 2, parse_tables(TABLE)["Thing request"])
    for version in (-1, 0, 4):
        with pytest.raises(UnsupportedVersion, match="Thing request") as caught:
            schema.plan(version)
        assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    "line",
    [
        "  Name text",
        "  Name i32 1..2",
        "  Name i32 #x",
        "  Name i32 trailing words",
        "  Name",
    ],
)
def test_a_line_that_is_not_in_the_grammar_is_a_bug(line: str) -> None:
    with pytest.raises((AssertionError, KeyError)):
        parse_tables(f"Thing request\n{line}\n")


def test_one_message_has_one_table_and_a_struct_no_name_twice() -> None:
    with pytest.raises(AssertionError, match="two tables"):
        parse_tables("A request\n  B i8\nA request\n  B i8\n")
    fields = parse_tables("A request\n  B i8 0\n  B i16 1+\n")["A request"]
    with pytest.raises(AssertionError, match="two fields"):
        Schema("A request", Versions(0, 1), None, fields).plan(0)


def test_defaults_that_can_be_changed_are_made_anew() -> None:
    field = parse_tables("A request\n  B {}\n    C []i32\n")["A request"][0]
    first, second = field.default_value(), field.default_value()
    assert first == second == {"C": []}
    assert first is not second


def _walk(fields: list[Field]) -> list[Field]:
    return [each for field in fields for each in (field, *_walk(field.fields))]


@pytest.mark.parametrize("key", sorted(APIS))
def test_every_plan_of_every_table_can_be_made(key: int) -> None:
    api = APIS[key]
    for schema in (api.request, api.response):
        assert (schema.versions.first, schema.versions.last) == (api.min_version, api.max_version)
        for version in range(api.min_version, api.max_version + 1):
            schema.plan(version)
        for field in _walk(schema.fields):
            if field.tag >= 0:  # A tagged field exists in flexible versions only.
                assert api.flexible_from is not None
                assert field.versions.first >= api.flexible_from
            if field.kind >= s.ACK_BATCHES:  # decode.py reads columns in flexible form only.
                assert api.flexible_from == 0


def test_a_message_that_was_decoded_shares_no_default_with_the_next_one() -> None:
    """A rewriting changes a message in its place."""
    table = parse_tables("""\
Thing response
  Leader {} 1+ #0
    Id i32 =-1
    Epoch i32
""")
    plan = Schema("Thing response", Versions(0, 3), 1, table["Thing response"]).plan(1)
    first, second = decode(plan, b"\0", 0), decode(plan, b"\0", 0)
    assert first == second == {"Leader": {"Id": -1, "Epoch": 0}}
    first["Leader"]["Id"] = 7
    assert second["Leader"]["Id"] == -1
    assert decode(plan, b"\0", 0)["Leader"]["Id"] == -1
