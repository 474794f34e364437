"""Values of records as REST shows them: their form, and the fields that are masked."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.model import Acknowledge, AckType, Acquire
from gateway.admin.values import Decoded, globs_of, shown_value
from gateway.config.admin import MaskRule, Role
from gateway.core.wire.records import RecordStart
from tests.rig.admin_parts import M1, S1, Admin, ScriptedStarts
from tests.rig.node_parts import GROUP, TOPIC
from tests.rig.rest_client import story
from tests.rig.rest_parts import access, token
from tests.rig.virtual_time import now_ms

CARD = {"card": {"number": "4711", "kind": "debit"}, "items": [{"iban": "DE1"}, {"iban": "DE2"}]}


def start(value: bytes | None, size: int | None = None) -> RecordStart:
    whole = -1 if value is None else len(value)
    return RecordStart(7, value or b"", whole if size is None else size, [], 0)


@pytest.mark.parametrize(
    ("value", "size", "shown"),
    [
        (None, None, {"format": "null", "value_bytes": 0}),
        (b"", None, {"format": "text", "value": "", "value_bytes": 0}),
        (b"plain\ttext\n", None, {"format": "text", "value": "plain\ttext\n"}),
        (b'{"a": [1, null]}', None, {"format": "json", "value": {"a": [1, None]}}),
        (b"[1]", None, {"format": "json", "value": [1]}),
        (b"12", None, {"format": "text", "value": "12"}),
        (b'{"a": ', None, {"format": "text", "value": '{"a": '}),
        (b"[" * 60_000, None, {"format": "text", "value": "[" * 60_000}),
        (b"\x00\x01", None, {"format": "bytes", "value_base64": "AAE="}),
        (b"\xff", None, {"format": "bytes", "value_base64": "/w=="}),
        (b'{"a": 1', 900, {"format": "text", "value": '{"a": 1', "cut": True, "value_bytes": 900}),
        ("aü".encode()[:2], 3, {"format": "text", "value": "a", "cut": True}),
    ],
)
def test_the_form_of_a_value(value: bytes | None, size: int | None, shown: dict[str, Any]) -> None:
    row = shown_value(start(value, size), [])
    assert {name: getattr(row, name) for name in shown} == shown
    assert (row.timestamp_ms, row.masked) == (7, [])


def test_masked_fields_keep_their_place() -> None:
    row = shown_value(start(json.dumps(CARD).encode()), ["card.number", "*.iban"])
    assert row.value == {
        "card": {"number": "***", "kind": "debit"},
        "items": [{"iban": "***"}, {"iban": "***"}],
    }
    assert row.masked == ["card.number", "items.iban"]


def test_a_masked_object_is_masked_whole() -> None:
    row = shown_value(start(json.dumps(CARD).encode()), ["card"])
    assert row.value["card"] == "***"


@pytest.mark.parametrize("value", [b"4711", b'{"card": ', b"\x00\x01", b"\xff"])
def test_a_value_without_fields_is_not_shown_where_a_rule_masks_some(value: bytes) -> None:
    row = shown_value(start(value), ["card.number"])
    assert (row.format, row.value, row.value_base64) == ("masked", None, None)
    cut = shown_value(start(b'{"card": {"number": "4711"', 900), ["card.number"])
    assert (cut.format, cut.value) == ("masked", None)


def test_all_of_a_value_is_masked() -> None:
    for document in (CARD, [CARD], "4711", 4711, None):
        row = shown_value(start(b"x"), ["*"], Decoded(document, "avro", 3))
        assert (row.value, row.masked, row.schema_id) == ("***", ["*"], 3)
    row = shown_value(start(b"x"), ["number"], Decoded("4711", "avro", 3))
    assert row.value == "***", "it has no fields to tell apart"


documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "secret"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["a", "b", "secret"]), documents, max_size=3))
def test_no_masked_field_is_shown_however_deep(document: dict[str, Any]) -> None:
    def fields(of: object) -> list[tuple[str, object]]:
        if isinstance(of, list):
            return [pair for entry in of for pair in fields(entry)]
        if not isinstance(of, dict):
            return []
        return [*of.items(), *(pair for entry in of.values() for pair in fields(entry))]

    row = shown_value(start(json.dumps(document).encode()), ["secret", "*.secret"])
    assert all(value == "***" for name, value in fields(row.value) if name == "secret")


def test_rules_by_topic() -> None:
    rules = [
        MaskRule(topic="pay*", fields=("card",)),
        MaskRule(fields=("iban",)),
        MaskRule(topic="orders", fields=("name",)),
    ]
    assert globs_of(rules, "payments") == ["card", "iban"]


def test_a_look_at_a_value_takes_a_token_for_values_and_is_audited() -> None:
    guard = access(token("seer", Role.VIEWER, values=True), token("operator", Role.OPERATOR))
    starts = ScriptedStarts({(0, 0): [], (0, 1): []}, value=b'{"iban": "DE1", "sum": 5}')
    path = f"/v1/parked/value?group={GROUP}&topic={TOPIC}&partition=0&offset="

    async def tell(client: httpx.AsyncClient, admin: Admin) -> None:
        window = admin.node.window(0)
        assert window.acquire(Acquire(M1, S1, 9, now_ms())) is not None
        reject = bytes([AckType.REJECT])
        await window.ask(Acknowledge(M1, S1, [(0, 0, reject), (2, 2, reject)], now_ms()))
        client.headers["authorization"] = "Bearer operator"
        refused = await client.get(f"{path}0")
        assert (refused.status_code, starts.asked) == (403, [])
        client.headers["authorization"] = "Bearer seer"
        answer = await client.get(f"{path}0")
        assert answer.json()["value"] == {"iban": "***", "sum": 5}
        assert guard.audit.rows()[0].model_dump(exclude={"id", "at_ms"}) == {
            "who": "seer",
            "role": "viewer",
            "address": "127.0.0.1",
            "count": 1,
            "target": None,
            "action": "parked.value",
            "group": GROUP,
            "topic": TOPIC,
            "partition": 0,
            "offsets": "0",
            "outcome": "done",
        }
        starts.asked.clear()
        assert (await client.get(f"{path}1")).status_code == 409, "it is not parked"
        assert starts.asked == [], "so nobody reads it"
        assert (await client.get(f"{path}2")).status_code == 404, "it is gone from the log"

    masks = (MaskRule(topic=TOPIC, fields=("iban",)),)
    story(tell, access=guard, record_starts=starts, masks=masks)
