"""One record through all steps: a pure core but for the registry it asks for schemas.

A record that any step cannot read leaves as it came, with the reason: never half transformed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, assert_never
from zoneinfo import ZoneInfo

from spark.transforms.core.avro_derived import ConflictingChange, SchemaTree
from spark.transforms.core.avro_document import AvroDocument
from spark.transforms.core.avro_types import Definitions, InvalidSchema, Schema, Type, types_of
from spark.transforms.core.conditions import fits
from spark.transforms.core.json_document import JsonDocument
from spark.transforms.core.limits import SCHEMAS_MAX
from spark.transforms.core.masks import hmac_masked, last_kept
from spark.transforms.core.paths import Path
from spark.transforms.core.plan import Plan, uses_of
from spark.transforms.core.steps import (
    Condition,
    Drop,
    Filter,
    Mask,
    Part,
    Plain,
    Rename,
    Route,
    Step,
    Timestamp,
)
from spark.transforms.core.text_document import TextDocument
from spark.transforms.core.times import EPOCH_UNITS, instant, written
from spark.transforms.core.values import Document, Location, Number, Scalar, UnreadableRecord

WIRE_HEADER = struct.Struct(">BI")  # magic 0, schema id
_LOGICAL = {
    "unix_ms": "timestamp-millis",
    "unix_us": "timestamp-micros",
    "unix_ns": "timestamp-nanos",
}


Use = tuple[int, Part, Path]  # of a path: by which step, counted from 0, in which part


class UnknownSchema(Exception):
    """The registry has no schema of that id."""


class Schemas(Protocol):
    """A schema registry. Other errors than those named mean that it is away: the record waits."""

    def writer(self, schema_id: int) -> Definitions:
        """Raises UnknownSchema, InvalidSchema (also for a schema that is not Avro)."""

    def register(self, subject: str, definitions: Definitions) -> int:
        """The schema's id, the same for the same schema."""


@dataclass(frozen=True, slots=True)
class Problem:
    """`step`: its number, counted from 0."""

    step: int
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """`topic` None: filtered out. With a problem, `topic` is the quarantine, and key and value are
    as they came.
    """

    topic: str | None
    key: bytes | None
    value: bytes | None
    problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class _AvroPlan:
    """The steps seen from one writer's schema. `derived` None: they keep the schema."""

    kind: Type
    derived: Definitions | None


class _Wire:
    """An Avro part: five bytes in front of the document."""

    __slots__ = ("document", "plan", "schema_id")

    def __init__(self, schema_id: int, document: AvroDocument, plan: _AvroPlan) -> None:
        self.schema_id, self.document, self.plan = schema_id, document, plan


class _Draft:
    """A record on its way. A part is opened when a step first looks into it."""

    __slots__ = ("_documents", "_engine", "_parts", "topic")

    def __init__(self, engine: Engine, topic: str, key: bytes | None, value: bytes | None) -> None:
        self._engine = engine
        self.topic = topic
        self._parts: dict[Part, bytes | None] = {"key": key, "value": value}
        self._documents: dict[Part, JsonDocument | TextDocument | _Wire] = {}

    def document(self, part: Part) -> Document | None:
        """None for a null key or value: there is nothing to look into."""
        data = self._parts[part]
        if data is None:
            return None
        opened = self._documents.get(part)
        if opened is None:
            opened = self._documents[part] = self._engine.opened(part, data)
        return opened.document if isinstance(opened, _Wire) else opened

    def closed(self, part: Part) -> bytes | None:
        opened = self._documents.get(part)
        if opened is None:
            return self._parts[part]
        if not isinstance(opened, _Wire):
            return opened.encode()
        schema_id = opened.schema_id
        if opened.plan.derived is not None:
            schema_id = self._engine.registered(part, self.topic, schema_id, opened.plan.derived)
        return WIRE_HEADER.pack(0, schema_id) + opened.document.encode()


class Engine:
    """`schemas` is needed for Avro only. With `watched`, `looked` has the paths that any record so
    far was looked into for, and `seen` those of them that led to a field, or are in the Avro schema
    of one.
    """

    def __init__(self, plan: Plan, schemas: Schemas | None, *, watched: bool = False) -> None:
        self.plan = plan
        self.watched = watched
        self.looked: set[Use] = set()
        self.seen: set[Use] = set()
        self._schemas = schemas
        self._avro_plans: dict[tuple[Part, int], _AvroPlan | str] = {}
        self._registered: dict[tuple[str, Part, int], int] = {}

    def process(self, topic: str, key: bytes | None, value: bytes | None) -> Outcome:
        draft = _Draft(self, topic, key, value)
        index = 0
        try:
            for index, step in enumerate(self.plan.steps):
                if not self._apply(index, step, draft):
                    return Outcome(None, key, value)
            return Outcome(draft.topic, draft.closed("key"), draft.closed("value"))
        except UnreadableRecord as error:
            return Outcome(self.plan.quarantine, key, value, Problem(index, str(error)))

    def _apply(self, index: int, step: Step, draft: _Draft) -> bool:
        """Returns False if the record is filtered out."""
        match step:
            case Mask() | Drop() | Timestamp():
                for path in step.paths:
                    # The last first: a place that is removed moves those behind it.
                    for place in reversed(self._places(index, step, path, draft)):
                        self._edit(step, place)
            case Rename():
                for place in self._places(index, step, step.path, draft):
                    place.rename(step.to)
            case Filter():
                fit = all(self._fits(index, condition, draft) for condition in step.conditions)
                return fit == (step.keep is not None)
            case Route():
                draft.topic = self._routed(index, step, draft)
            case _:
                assert_never(step)
        return True

    def _edit(self, step: Mask | Drop | Timestamp, place: Location) -> None:
        match step:
            case Mask():
                self._mask(step, place)
            case Drop():
                place.remove()
            case Timestamp():
                _convert(step, place)
            case _:
                assert_never(step)

    def _places(
        self,
        index: int,
        step: Mask | Rename | Drop | Timestamp | Condition,
        path: Path,
        draft: _Draft,
    ) -> Sequence[Location]:
        document = draft.document(step.part)
        if document is None:
            return ()
        places = document.places(path)
        if self.watched:
            self.looked.add((index, step.part, path))
            if places:
                self.seen.add((index, step.part, path))
        if document.lacking and step.missing == "quarantine":
            raise UnreadableRecord(f"{step.part} has no field {path}")
        return places

    def _mask(self, step: Mask, place: Location) -> None:
        value = place.value
        if value is None:
            return
        if step.hmac is not None:
            secret = self.plan.secrets[step.hmac.key_env]
            place.replace(hmac_masked(value, secret, step.hmac.digits))
        elif step.keep_last is not None:
            place.replace(last_kept(value, step.keep_last.characters, step.keep_last.filler))
        else:
            assert step.redact is not None
            place.replace(_scalar(step.redact.replacement))

    def _fits(self, index: int, condition: Condition, draft: _Draft) -> bool:
        return fits(condition, self._places(index, condition, condition.path, draft))

    def _routed(self, index: int, step: Route, draft: _Draft) -> str:
        for rule in step.rules:
            if self._fits(index, rule, draft):
                return rule.topic
        return step.otherwise or draft.topic

    # ------------------------------------------------------------------------------------- Avro

    def opened(self, part: Part, data: bytes) -> JsonDocument | TextDocument | _Wire:
        match self.plan.format_of(part):
            case "json":
                return JsonDocument(data)
            case "text":
                return TextDocument(data)
            case "avro":
                if len(data) < WIRE_HEADER.size or data[0] != 0:
                    raise UnreadableRecord(f"the {part} does not begin with the id of a schema")
                _, schema_id = WIRE_HEADER.unpack_from(data)
                plan = self._avro_plan(part, schema_id)
                return _Wire(schema_id, AvroDocument(data[WIRE_HEADER.size :], plan.kind), plan)

    def _avro_plan(self, part: Part, schema_id: int) -> _AvroPlan:
        plan = self._avro_plans.get((part, schema_id))
        if plan is None:
            if len(self._avro_plans) >= SCHEMAS_MAX:
                self._avro_plans.clear()
            plan = self._avro_plans[part, schema_id] = self._new_avro_plan(part, schema_id)
        if isinstance(plan, str):
            raise UnreadableRecord(plan)
        return plan

    def _new_avro_plan(self, part: Part, schema_id: int) -> _AvroPlan | str:
        """Or the reason why no record of that schema can be read."""
        assert self._schemas is not None, "a plan with avro has a registry"
        try:
            definitions = self._schemas.writer(schema_id)
            tree = SchemaTree(definitions)
            for index, step in enumerate(self.plan.steps):
                self._derive(index, step, part, tree)
            return _AvroPlan(types_of(definitions), tree.definitions() if tree.changed else None)
        except UnknownSchema:
            return f"schema id {schema_id} is not in the registry"
        except InvalidSchema as error:
            return f"schema id {schema_id}: {error}"
        except ConflictingChange as error:
            return f"schema id {schema_id} cannot be changed: {error}"

    def _derive(self, index: int, step: Step, part: Part, tree: SchemaTree) -> None:
        for in_part, path in uses_of(step):
            if in_part != part or path not in tree:
                continue
            self.seen.add((index, part, path))
            match step:
                case Rename():
                    tree.rename(path, step.to)
                case Drop():
                    tree.drop(path)
                case Timestamp():
                    tree.retype(path, _written_type(step.output.format))
                case Mask() | Filter() | Route():
                    pass
                case _:
                    assert_never(step)

    def registered(self, part: Part, topic: str, schema_id: int, derived: Definitions) -> int:
        """The id of the derived schema under the subject of `topic` (TopicNameStrategy)."""
        found = self._registered.get((topic, part, schema_id))
        if found is None:
            assert self._schemas is not None
            found = self._schemas.register(f"{topic}-{part}", derived)
            self._registered[topic, part, schema_id] = found
        return found


def _convert(step: Timestamp, place: Location) -> None:
    kind: Literal["long", "string"] = "long" if step.output.format in EPOCH_UNITS else "string"
    value = place.value
    if value is None:
        place.retype(None, kind)
        return
    nanos = instant(value, step.input.format, ZoneInfo(step.input.zone), step.ambiguous)
    place.retype(written(nanos, step.output.format, ZoneInfo(step.output.zone)), kind)


def _written_type(pattern: str) -> Schema:
    if pattern not in EPOCH_UNITS:
        return "string"
    logical = _LOGICAL.get(pattern)
    return {"type": "long", "logicalType": logical} if logical else "long"


def _scalar(value: Plain) -> Scalar:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Number(str(value))
    return value
