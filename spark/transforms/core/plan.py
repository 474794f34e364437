"""A pipeline's steps with all they need to run: formats, secrets, registry, quarantine topic.

Immutable and picklable: Spark sends it to its workers as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, assert_never

from spark.transforms.core.masks import Secret
from spark.transforms.core.paths import WHOLE, Path
from spark.transforms.core.steps import (
    Condition,
    Drop,
    Filter,
    Mask,
    Part,
    Rename,
    Route,
    Step,
    Timestamp,
)

Format = Literal["json", "avro", "text"]


class ImpossibleStep(ValueError):
    """A step does not fit the format of the part that it addresses."""

    def __init__(self, step: int, reason: str) -> None:
        super().__init__(reason)
        self.step = step  # counted from 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """`url`: of a Confluent-compatible registry, for example http://127.0.0.1:8081."""

    url: str
    username: str | None = None
    password: Secret | None = None
    ca_file: str | None = None
    register: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`quarantine`: where records go that a step cannot read."""

    name: str
    steps: tuple[Step, ...]
    quarantine: str
    value_format: Format = "json"
    key_format: Format = "text"
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    registry: RegistrySettings | None = None

    def __post_init__(self) -> None:
        for index, step in enumerate(self.steps):
            self._check(index, step)

    def format_of(self, part: Part) -> Format:
        return self.value_format if part == "value" else self.key_format

    def _check(self, index: int, step: Step) -> None:
        if isinstance(step, Mask) and step.hmac is not None:
            assert step.hmac.key_env in self.secrets, "every key is resolved before a plan is built"
        for part, path in uses_of(step):
            kind = self.format_of(part)
            if kind == "text" and (path != WHOLE or isinstance(step, Rename | Drop)):
                raise ImpossibleStep(
                    index,
                    f"the {part} is one text without fields; set {part}_format to json"
                    " or avro, or leave out the path",
                )
            if kind == "avro" and self.registry is None:
                raise ImpossibleStep(index, "avro needs a registry")
            if (
                kind == "avro"
                and isinstance(step, Rename | Drop | Timestamp)
                and not (self.registry and self.registry.register)
            ):
                raise ImpossibleStep(
                    index,
                    "the step changes the schema: set registry.register_schemas to true, so that"
                    " the new schema may be registered",
                )


def uses_of(step: Step) -> Iterator[tuple[Part, Path]]:
    """Every path of a step, and into which part of the record it leads."""
    match step:
        case Mask() | Drop() | Timestamp():
            yield from ((step.part, path) for path in step.paths)
        case Rename():
            yield step.part, step.path
        case Filter():
            yield from ((condition.part, condition.path) for condition in step.conditions)
        case Route():
            yield from ((rule.part, rule.path) for rule in step.rules)
        case _:
            assert_never(step)


def missing_of(step: Step, part: Part, path: Path) -> Literal["pass", "ignore", "quarantine"]:
    """The meaning of a missing field; the strictest one, if a filter names the path twice."""
    match step:
        case Filter() | Route():
            found = {
                condition.missing
                for condition in conditions_of(step)
                if (condition.part, condition.path) == (part, path)
            }
            for strict in ("quarantine", "pass"):
                if strict in found:
                    return "quarantine" if strict == "quarantine" else "pass"
            return "ignore"
        case _:
            return step.missing


def conditions_of(step: Filter | Route) -> tuple[Condition, ...]:
    return step.conditions if isinstance(step, Filter) else step.rules
