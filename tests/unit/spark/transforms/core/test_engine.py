"""One record through steps: each step alone, then together; an unreadable record stays whole."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import fastavro
import pytest

from spark.transforms.core.avro_types import Definitions, InvalidSchema, defined
from spark.transforms.core.engine import WIRE_HEADER, Engine, Outcome, UnknownSchema, Use
from spark.transforms.core.masks import Secret, hmac_masked
from spark.transforms.core.plan import Format, ImpossibleStep, Plan, RegistrySettings
from spark.transforms.core.steps import (
    Condition,
    Drop,
    Filter,
    Hmac,
    KeepLast,
    Mask,
    Redact,
    Rename,
    Route,
    Rule,
    Step,
    TimeFormat,
    Timestamp,
)

SECRETS = {"KEY": Secret(b"sixteen byte key")}
HMAC = Hmac(key_env="KEY")
REGISTRY = RegistrySettings(url="http://127.0.0.1:1", register=True)


def path(*texts: str) -> Any:
    """Steps read paths from text; their fields hold parsed ones."""
    return texts


def engine(
    *steps: Step, value: Format = "json", key: Format = "text", schemas: Any = None
) -> Engine:
    plan = Plan(
        name="p",
        steps=steps,
        quarantine="sick",
        value_format=value,
        key_format=key,
        secrets=SECRETS,
        registry=REGISTRY,
    )
    return Engine(plan, schemas, watched=True)


def through(value: bytes | None, *steps: Step, key: bytes | None = b"k") -> Outcome:
    return engine(*steps).process("t", key, value)


def masked(value: bytes, *paths: str, **how: Any) -> bytes | None:
    outcome = through(value, Mask(paths=path(*paths), **how))
    assert outcome.problem is None
    return outcome.value


FLIGHT = b'{"tail": "N14228", "legs": [{"to": "IAH"}, {"to": null}, {}], "n": 1.50, "x": null}'


def test_redact() -> None:
    assert masked(FLIGHT, "tail", redact=Redact()) == FLIGHT.replace(b'"N14228"', b'"***"')
    assert masked(FLIGHT, "n", redact=Redact(replacement=0)) == FLIGHT.replace(b"1.50", b"0")
    assert masked(FLIGHT, "legs", redact=Redact(replacement=None)) == (
        b'{"tail": "N14228", "legs": null, "n": 1.50, "x": null}'
    )
    assert masked(FLIGHT, "legs[].to", redact=Redact()) == FLIGHT.replace(b"IAH", b"***")


def test_hmac() -> None:
    mask = hmac_masked("N14228", SECRETS["KEY"], 32)
    assert masked(FLIGHT, "tail", hmac=HMAC) == FLIGHT.replace(b"N14228", str(mask).encode())
    assert masked(b'{"a":"N1","b":"N1"}', "a", "b", hmac=HMAC) == masked(
        b'{"a":"\\u004e1","b":"N1"}', "a", "b", hmac=HMAC
    ), "the same text in another spelling"


def test_keep_last() -> None:
    assert masked(FLIGHT, "tail", keep_last=KeepLast(characters=2)) == FLIGHT.replace(
        b"N14228", b"****28"
    )


def test_null_and_missing_fields_stay() -> None:
    for name in ("x", "x.y", "nowhere", "nowhere.deeper", "legs[].nowhere"):
        assert masked(FLIGHT, name, hmac=HMAC) == FLIGHT


def test_rename_and_drop() -> None:
    outcome = through(FLIGHT, Rename(path="legs[].to", to="dest"), Drop(paths=path("n", "x")))  # type: ignore[arg-type]
    assert outcome.value == b'{"tail": "N14228", "legs": [{"dest": "IAH"}, {"dest": null}, {}]}'


def test_timestamp() -> None:
    step = Timestamp(
        paths=path("at", "nothing"),
        input=TimeFormat(format="%Y-%m-%d %H:%M", zone="America/New_York"),
        output=TimeFormat(format="unix_ms"),
    )
    outcome = through(b'{"at": "2013-01-01 05:00", "nothing": null}', step)
    assert outcome.value == b'{"at": 1357034400000, "nothing": null}'
    back = Timestamp(
        paths=path("at"), input=TimeFormat(format="unix_ms"), output=TimeFormat(format="iso8601")
    )
    assert through(outcome.value, back).value == b'{"at": "2013-01-01T10:00:00Z", "nothing": null}'


def condition(text: str, **test: Any) -> Condition:
    return Condition(path=text, **test)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("test", "fits"),
    [
        (condition("tail", equals="N14228"), True),
        (condition("tail", equals="N1422"), False),
        (condition("n", equals=1.5), True),
        (condition("n", equals="1.50"), False),
        (condition("n", one_of=(1, 1.5)), True),
        (condition("n", at_least=1.5), True),
        (condition("n", at_most=1.49), False),
        (condition("tail", matches="N[0-9]+"), True),
        (condition("tail", matches="N"), False),
        (condition("legs[].to", equals="IAH"), True),
        (condition("legs[].to", equals="JFK"), False),
        (condition("x", present=True), False),
        (condition("x", present=False), True),
        (condition("nowhere", present=False), True),
        (condition("nowhere", equals=None), False),
        (condition("x", equals=None), True),
        (condition("x", at_least=1), False),
        (condition("", equals="k", part="key"), True),
    ],
)
def test_conditions(test: Condition, fits: bool) -> None:
    kept = through(FLIGHT, Filter(keep=(test,)))
    dropped = through(FLIGHT, Filter(drop=(test,)))
    assert (kept.topic, dropped.topic) == (("t", None) if fits else (None, "t"))
    assert kept.value == dropped.value == FLIGHT
    assert kept.problem is None


def test_all_conditions_of_a_filter_must_fit() -> None:
    yes, no = condition("n", at_least=1), condition("n", at_least=2)
    assert through(FLIGHT, Filter(keep=(yes, no))).topic is None
    assert through(FLIGHT, Filter(drop=(yes, no))).topic == "t"


def test_route_takes_the_first_rule_that_fits() -> None:
    def rule(topic: str, at_least: int) -> Rule:
        return Rule(path="n", at_least=at_least, topic=topic)  # type: ignore[arg-type]

    rules = (rule("high", 10), rule("middle", 5), rule("low", 1))
    for number, topic in ((11, "high"), (5, "middle"), (1, "low"), (0, "rest")):
        value = b'{"n": %d}' % number
        assert through(value, Route(rules=rules, otherwise="rest")).topic == topic
    assert through(b'{"n": 0}', Route(rules=rules)).topic == "t"


def test_the_key_can_be_masked() -> None:
    outcome = through(FLIGHT, Mask(part="key", hmac=HMAC), key=b"N14228")
    assert outcome.key == str(hmac_masked("N14228", SECRETS["KEY"], 32)).encode()
    assert outcome.value == FLIGHT
    assert through(FLIGHT, Mask(part="key", hmac=HMAC), key=None).key is None


def test_a_tombstone_passes_steps_on_the_value() -> None:
    outcome = through(None, Mask(paths=path("a"), hmac=HMAC), Mask(part="key", redact=Redact()))
    assert outcome == Outcome("t", b"***", None)


@pytest.mark.parametrize(
    ("value", "steps", "step", "reason"),
    [
        (b"no json", (Mask(paths=path("a"), hmac=HMAC),), 0, "not JSON at character 1"),
        (b"", (Mask(paths=path("a"), hmac=HMAC),), 0, "not JSON"),
        (b'{"a":{}}', (Mask(paths=path("a"), hmac=HMAC),), 0, "does not fit an object"),
        (
            b'{"a":"x","b":"noon"}',
            (
                Mask(paths=path("a"), hmac=HMAC),
                Timestamp(
                    paths=path("b"),
                    input=TimeFormat(format="iso8601"),
                    output=TimeFormat(format="unix_s"),
                ),
            ),
            1,
            "not of the format iso8601",
        ),
        (b'{"a":"x"}', (Filter(keep=(condition("a", at_least=1),)),), 0, "cannot be compared"),
        (b'{"a":1}', (Filter(keep=(condition("a", matches="1"),)),), 0, "cannot match"),
        (
            b'{"b":1}',
            (Mask(paths=path("a"), hmac=HMAC, missing="quarantine"),),
            0,
            "value has no field a",
        ),
    ],
)
def test_what_a_step_cannot_read_leaves_as_it_came(
    value: bytes, steps: tuple[Step, ...], step: int, reason: str
) -> None:
    outcome = through(value, Mask(part="key", redact=Redact()), *steps)
    assert (outcome.topic, outcome.key, outcome.value) == ("sick", b"k", value)
    assert outcome.problem is not None
    assert outcome.problem.step == step + 1
    assert reason in outcome.problem.reason


def test_no_reason_shows_what_is_in_the_record() -> None:
    secret = b'{"a":{"deep":"SECRET"},"SECRET":"SECRET"'
    for value in (secret, secret + b"}", b'["SECRET"]', b'"SECRET"'):
        problem = through(value, Mask(paths=path("a"), hmac=HMAC)).problem
        assert problem is not None
        assert "SECRET" not in problem.reason


def test_an_empty_array_lacks_no_field() -> None:
    step = Mask(paths=path("legs[].to"), hmac=HMAC, missing="quarantine")
    assert through(b'{"legs":[]}', step).problem is None
    assert through(b'{"legs":[{}]}', step).problem is not None


def shown(uses: set[Use]) -> set[str]:
    return {str(at) for _, _, at in uses}


def test_seen_paths() -> None:
    steps = engine(
        Mask(paths=path("a", "b.c"), hmac=HMAC), Filter(keep=(condition("d", equals=1),))
    )
    steps.process("t", None, b'{"a":null,"b":{}}')
    assert shown(steps.seen) == {"a"}
    assert shown(steps.looked) == {"a", "b.c", "d"}
    steps.process("t", None, b'{"b":{"c":1},"d":1}')
    assert shown(steps.seen) == {"a", "b.c", "d"}


@pytest.mark.parametrize(
    ("step", "formats", "reason"),
    [
        (Mask(paths=path("a"), part="key", hmac=HMAC), {}, "one text without fields"),
        (Drop(paths=path("a"), part="key"), {}, "one text without fields"),
    ],
)
def test_steps_that_do_not_fit_the_format(step: Step, formats: Any, reason: str) -> None:
    with pytest.raises(ImpossibleStep, match=reason):
        engine(step, **formats)


# ---------------------------------------------------------------------------------------- Avro

LEG = {"type": "record", "name": "Leg", "fields": [{"name": "to", "type": ["null", "string"]}]}
SCHEMA: Any = {
    "type": "record",
    "name": "Flight",
    "namespace": "ny",
    "fields": [
        {"name": "tail", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "legs", "type": {"type": "array", "items": LEG}},
        {"name": "speed", "type": ["null", "float", "double"]},
        {"name": "seats", "type": "int"},
    ],
}
DATUM = {
    "tail": "N14228",
    "at": 1357034400123,
    "legs": [{"to": "IAH"}, {"to": None}],
    "speed": 0.1,
    "seats": 7,
}


class MemorySchemas:
    """Schemas by id; a new one gets the next id."""

    def __init__(self, schemas: Mapping[int, Any]) -> None:
        self.schemas = dict(schemas)
        self.subjects: dict[str, int] = {}
        self.asked = 0

    def writer(self, schema_id: int) -> Definitions:
        self.asked += 1
        if schema_id not in self.schemas:
            raise UnknownSchema(schema_id)
        if self.schemas[schema_id] is None:
            raise InvalidSchema("is PROTOBUF, not AVRO")
        return defined(self.schemas[schema_id])

    def register(self, subject: str, definitions: Definitions) -> int:
        schema_id = max(self.schemas) + 1
        self.schemas[schema_id] = definitions.schema
        self.subjects[subject] = schema_id
        return schema_id


def wire(datum: Any, schema_id: int = 7) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, SCHEMA, {**datum, "speed": ("double", datum["speed"])})
    return WIRE_HEADER.pack(0, schema_id) + out.getvalue()


def unwire(schemas: MemorySchemas, data: bytes | None) -> tuple[int, Any]:
    assert data is not None
    _, schema_id = WIRE_HEADER.unpack_from(data)
    schema = json.loads(json.dumps(schemas.schemas[schema_id]).replace("logicalType", "was"))
    rest = io.BytesIO(data[5:])
    datum = fastavro.schemaless_reader(rest, schema, None)
    assert rest.read() == b""
    return schema_id, datum


def avro(*steps: Step) -> tuple[Engine, MemorySchemas]:
    schemas = MemorySchemas({7: SCHEMA})
    return engine(*steps, value="avro", schemas=schemas), schemas


def test_a_mask_keeps_the_schema_and_the_branch_of_every_union() -> None:
    steps, schemas = avro(
        Mask(paths=path("tail", "legs[].to"), hmac=HMAC),
        Mask(paths=path("seats"), redact=Redact(replacement=0)),
    )
    outcome = steps.process("t", b"k", wire(DATUM))
    schema_id, datum = unwire(schemas, outcome.value)
    assert schema_id == 7
    assert datum == {
        **DATUM,
        "tail": hmac_masked("N14228", SECRETS["KEY"], 32),
        "legs": [{"to": hmac_masked("IAH", SECRETS["KEY"], 32)}, {"to": None}],
        "seats": 0,
    }
    assert datum["speed"] == 0.1, "read as float it would be 0.10000000149011612"


def test_steps_that_change_the_schema_register_the_new_one_once_per_topic() -> None:
    steps, schemas = avro(
        Rename(path="tail", to="aircraft"),  # type: ignore[arg-type]
        Drop(paths=path("legs[].to", "seats")),
        Timestamp(
            paths=path("at"),
            input=TimeFormat(format="unix_ms"),
            output=TimeFormat(format="iso8601", zone="America/New_York"),
        ),
        Route(
            rules=(Rule(path="aircraft", equals=None, topic="u"),),  # type: ignore[arg-type]
        ),
    )
    for _ in range(3):
        schema_id, datum = unwire(schemas, steps.process("t", b"k", wire(DATUM)).value)
        assert schema_id == 8
        assert datum == {
            "aircraft": "N14228",
            "at": "2013-01-01T05:00:00.123-05:00",
            "legs": [{}, {}],
            "speed": 0.1,
        }
    nobody = steps.process("t", b"k", wire({**DATUM, "tail": None}))
    assert nobody.topic == "u"
    assert unwire(schemas, nobody.value)[1]["aircraft"] is None
    assert schemas.subjects == {"t-value": 8, "u-value": 9}
    assert schemas.asked == 1


def test_epoch_units_get_their_logical_type() -> None:
    steps, schemas = avro(
        Timestamp(
            paths=path("at"),
            input=TimeFormat(format="unix_ms"),
            output=TimeFormat(format="unix_us"),
        )
    )
    _, datum = unwire(schemas, steps.process("t", None, wire(DATUM)).value)
    assert datum["at"] == 1357034400123000
    at = next(field for field in schemas.schemas[8]["fields"] if field["name"] == "at")
    assert at["type"] == {"type": "long", "logicalType": "timestamp-micros"}


def test_a_record_that_no_step_changes_keeps_its_bytes() -> None:
    steps, _ = avro(
        Mask(paths=path("tail"), hmac=HMAC), Filter(keep=(condition("seats", equals=7),))
    )
    nobody = wire({**DATUM, "tail": None})
    assert steps.process("t", None, nobody).value == nobody


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\0\0\0", "does not begin with the id of a schema"),
        (b"\1" + wire(DATUM)[1:], "does not begin with the id of a schema"),
        (wire(DATUM, 9), "schema id 9 is not in the registry"),
        (wire(DATUM, 8), "schema id 8: is PROTOBUF"),
        (wire(DATUM)[:-1], "not of its Avro schema"),
        (wire(DATUM) + b"x", "1 bytes behind"),
        (wire({**DATUM, "tail": "x"})[:5] + b"\xff" * 40, "not of its Avro schema"),
    ],
)
def test_avro_that_cannot_be_read(value: bytes, reason: str) -> None:
    steps = engine(
        Mask(paths=path("tail"), hmac=HMAC),
        value="avro",
        schemas=MemorySchemas({7: SCHEMA, 8: None}),
    )
    outcome = steps.process("t", b"k", value)
    assert (outcome.topic, outcome.value) == ("sick", value)
    assert outcome.problem is not None
    assert reason in outcome.problem.reason


def test_a_mask_that_its_type_cannot_hold_is_no_silent_loss() -> None:
    steps, _ = avro(Mask(paths=path("seats"), hmac=HMAC))
    outcome = steps.process("t", None, wire(DATUM))
    assert outcome.value == wire(DATUM)
    assert outcome.problem is not None
    assert outcome.problem.reason == "Avro type int cannot hold a text"


def test_avro_needs_a_registry_and_leave_to_register() -> None:
    def plan(registry: RegistrySettings | None, step: Step) -> Plan:
        return Plan(
            name="p",
            steps=(step,),
            quarantine="q",
            value_format="avro",
            secrets=SECRETS,
            registry=registry,
        )

    mask, drop = Mask(paths=path("a"), hmac=HMAC), Drop(paths=path("a"))
    with pytest.raises(ImpossibleStep, match="avro needs a registry"):
        plan(None, mask)
    with pytest.raises(ImpossibleStep, match=r"registry\.register_schemas"):
        plan(RegistrySettings(url="http://x"), drop)
    plan(RegistrySettings(url="http://x"), mask)
