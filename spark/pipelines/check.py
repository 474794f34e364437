"""A pipeline tried on real records: before and after, and paths that lead nowhere.

Nothing is written: a new schema is kept here, under an id of no registry.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import fastavro

from spark.pipelines.config import Fault, Pipeline, location_of_path
from spark.pipelines.sample import SampledRecord
from spark.transforms.core.avro_types import Definitions
from spark.transforms.core.engine import WIRE_HEADER, Engine, Outcome, Schemas
from spark.transforms.core.plan import Format, missing_of
from spark.transforms.core.steps import Part

PROBE_RECORDS = 100  # a field that none of so many records has is taken for a slip of the pen
_UNREGISTERED_ID = 0xFFFF_0000  # ids of registries count up from 1


class DrySchemas:
    """A registry that is only read."""

    def __init__(self, registry: Schemas) -> None:
        self._registry = registry
        self._new: dict[int, Definitions] = {}
        self.subjects: dict[str, Definitions] = {}

    def writer(self, schema_id: int) -> Definitions:
        return self._new.get(schema_id) or self._registry.writer(schema_id)

    def register(self, subject: str, definitions: Definitions) -> int:
        schema_id = _UNREGISTERED_ID + len(self._new)
        self._new[schema_id] = definitions
        self.subjects[subject] = definitions
        return schema_id


@dataclass(frozen=True, slots=True)
class Trial:
    """One record and its outcome."""

    record: SampledRecord
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Findings:
    """`faults`: paths that lead nowhere. `schemas`: those that `run` would register."""

    trials: list[Trial]
    faults: list[Fault]
    schemas: dict[str, Definitions]

    def shown(self, count: int) -> list[Trial]:
        """By partition and offset, the newest of each partition."""
        return sorted(
            self.trials[:count], key=lambda trial: (trial.record.partition, trial.record.offset)
        )

    @property
    def quarantined(self) -> int:
        return sum(trial.outcome.problem is not None for trial in self.trials)


def tried(
    pipeline: Pipeline, records: Iterable[SampledRecord], schemas: DrySchemas | None
) -> Findings:
    """Raises RegistryError."""
    engine = Engine(pipeline.plan, schemas, watched=True)
    topic = pipeline.config.target.topic if pipeline.config.target else ""
    trials = [
        Trial(record, engine.process(topic or record.topic, record.key, record.value))
        for record in records
    ]
    faults = list(_lost_paths(pipeline, engine, len(trials)))
    return Findings(trials, faults, {} if schemas is None else schemas.subjects)


def _lost_paths(pipeline: Pipeline, engine: Engine, records: int) -> Iterator[Fault]:
    for index, part, path in sorted(engine.looked - engine.seen, key=str):
        step = pipeline.plan.steps[index]
        if missing_of(step, part, path) == "ignore":
            continue
        yield Fault(
            pipeline.line(*location_of_path(pipeline, index, path)),
            f"no field {path} in the {part} of any of {records} records;"
            " set `missing: ignore` for a field that is rare",
        )


# -------------------------------------------------------------------------------- records to show


@dataclass(frozen=True, slots=True)
class Change:
    """A field as text before and after; None where it is not there."""

    field: str
    before: str | None
    after: str | None


def changes(pipeline: Pipeline, trial: Trial, schemas: DrySchemas | None) -> list[Change]:
    """The differences, field by field: `key...`, `value...`, and the topic."""
    found: list[Change] = []
    record, outcome = trial.record, trial.outcome
    parts: tuple[tuple[Part, bytes | None, bytes | None], ...] = (
        ("key", record.key, outcome.key),
        ("value", record.value, outcome.value),
    )
    for part, before, after in parts:
        if before == after:
            continue
        kind = pipeline.plan.format_of(part)
        old, new = (_fields(part, kind, data, schemas) for data in (before, after))
        found += [
            Change(name, old.get(name), new.get(name))
            for name in [*old, *(name for name in new if name not in old)]
            if old.get(name) != new.get(name)
        ]
    return found


def _fields(
    part: Part, kind: Format, data: bytes | None, schemas: DrySchemas | None
) -> dict[str, str]:
    """Every scalar by its path, numbers as they are written."""
    if data is None:
        return {part: "null"}
    if kind == "text":
        return {part: data.decode("utf-8", "replace")}
    return dict(_flat(part, _parsed(kind, data, schemas)))


class _Digits(str):
    """A number of JSON, as it is written."""

    __slots__ = ()


def _parsed(kind: Format, data: bytes, schemas: DrySchemas | None) -> Any:  # noqa: ANN401
    if kind == "json":
        return json.loads(data, parse_float=_Digits, parse_int=_Digits)
    assert schemas is not None
    _, schema_id = WIRE_HEADER.unpack_from(data)
    definitions = schemas.writer(schema_id)
    named = dict(definitions.named)
    parsed: Any = fastavro.parse_schema(definitions.schema, named_schemas=named)  # type: ignore[arg-type]
    return fastavro.schemaless_reader(io.BytesIO(data[WIRE_HEADER.size :]), parsed, None)


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}", inner)
    elif isinstance(value, list) and value:
        for at, inner in enumerate(value):
            yield from _flat(f"{name}[{at}]", inner)
    elif isinstance(value, _Digits):
        yield name, str(value)
    else:
        yield name, json.dumps(value, ensure_ascii=False, default=str)


def as_json(pipeline: Pipeline, findings: Findings, show: int, schemas: DrySchemas | None) -> Any:  # noqa: ANN401
    """Everything, for `-o json`. Bytes that are no text are in base64."""
    return {
        "pipeline": pipeline.config.name,
        "records": len(findings.trials),
        "quarantined": findings.quarantined,
        "filtered": sum(trial.outcome.topic is None for trial in findings.trials),
        "faults": [{"line": fault.line, "reason": fault.reason} for fault in findings.faults],
        "schemas": {subject: derived.schema for subject, derived in findings.schemas.items()},
        "shown": [_shown(pipeline, trial, schemas) for trial in findings.shown(show)],
    }


def _shown(pipeline: Pipeline, trial: Trial, schemas: DrySchemas | None) -> dict[str, object]:
    record, outcome = trial.record, trial.outcome
    return {
        "partition": record.partition,
        "offset": record.offset,
        "topic": outcome.topic,
        "before": {"key": _text(record.key), "value": _text(record.value)},
        "after": {"key": _text(outcome.key), "value": _text(outcome.value)},
        "changes": [
            {"field": change.field, "before": change.before, "after": change.after}
            for change in changes(pipeline, trial, schemas)
        ],
        "problem": None
        if outcome.problem is None
        else {
            "line": pipeline.line_of_step(outcome.problem.step),
            "step": outcome.problem.step + 1,
            "reason": outcome.problem.reason,
        },
    }


def _text(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
