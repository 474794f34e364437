"""A pipeline's YAML file, parsed once into frozen, validated objects. Every fault names its line.

    name: flights-masked          # also names the consumer group that holds its position
    quarantine: flights-sick      # records that a step cannot read
    format: json                  # of values: json, avro, text
    key_format: text              # of keys
    registry: {url: "http://127.0.0.1:8081", register_schemas: true}  # avro only
    source: {bootstrap_servers: "127.0.0.1:9192", topic: flights}
    target: {topic: flights-masked}                              # on the same cluster
    steps:
      - mask: {paths: [tailnum], hmac: {key_env: MASK_KEY}}

`source` and `target` are for a pipeline that runs on its own. A link takes the rest:

    marked(frame, load_pipeline(path).plan, destination="logical_topic")
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from keyway.clusters.config import Cluster, ConfigError, Sasl, Tls
from keyway.clusters.config import Registry as RegistrySection
from spark.pipelines.lines import LinedYaml, Location, YamlFault, read_yaml
from spark.transforms.core.limits import HMAC_KEY_BYTES_MIN, STEPS_MAX
from spark.transforms.core.masks import Secret
from spark.transforms.core.paths import Path, parse_path
from spark.transforms.core.plan import Format, ImpossibleStep, Plan, RegistrySettings
from spark.transforms.core.steps import (
    Drop,
    Filter,
    Mask,
    Rename,
    Route,
    Section,
    Step,
    Timestamp,
    Topic,
    topics_of,
)

FILE_BYTES_MAX = 1_000_000  # thousands of steps; a data file given by mistake is refused


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    line: int
    reason: str


class PipelineError(Exception):
    """The faults of a file, one per line of text: `FILE:LINE: reason`."""

    def __init__(self, path: FilePath, faults: list[Fault]) -> None:
        self.faults = sorted(set(faults))
        super().__init__("\n".join(f"{path}:{fault.line}: {fault.reason}" for fault in self.faults))


class StepEntry(Section):
    """One step under its own name."""

    mask: Mask | None = None
    rename: Rename | None = None
    drop: Drop | None = None
    timestamp: Timestamp | None = None
    filter: Filter | None = None
    route: Route | None = None

    @model_validator(mode="after")
    def _one_step(self) -> Self:
        if len(self.model_fields_set) != 1 or self._given() is None:
            names = ", ".join(StepEntry.model_fields)
            raise ValueError(f"exactly one of {names} is needed, with its options")
        return self

    def _given(self) -> Step | None:
        return self.mask or self.rename or self.drop or self.timestamp or self.filter or self.route

    @property
    def step(self) -> Step:
        step = self._given()
        assert step is not None, "checked above"
        return step

    @property
    def kind(self) -> str:
        (kind,) = self.model_fields_set
        return kind


class Registry(RegistrySection):
    """`register_schemas`: new schemas, of records whose fields changed, may be registered."""

    register_schemas: bool = False


class _ClusterSection(Section):
    bootstrap_servers: Annotated[str, Field(min_length=1)]
    sasl: Sasl | None = None
    tls: Tls | None = None

    def cluster(self, name: str) -> Cluster:
        return Cluster(
            name=name, bootstrap_servers=self.bootstrap_servers, sasl=self.sasl, tls=self.tls
        )


class Source(_ClusterSection):
    """`start`: where a pipeline begins that has no position yet. `records_per_batch_max`: for all
    partitions together; the batch that is under way at the end of a run is done again by the next
    run.
    """

    topic: Topic
    start: Literal["earliest", "latest"] = "earliest"
    records_per_batch_max: Annotated[int, Field(ge=1)] = 100_000


class Target(Section):
    """Without `bootstrap_servers` the source's cluster. `topic`: where records go that no route
    sends elsewhere.
    """

    topic: Topic
    bootstrap_servers: Annotated[str, Field(min_length=1)] | None = None
    sasl: Sasl | None = None
    tls: Tls | None = None

    @model_validator(mode="after")
    def _whose(self) -> Self:
        if self.bootstrap_servers is None and (self.sasl, self.tls) != (None, None):
            raise ValueError("sasl and tls need bootstrap_servers")
        return self


class PipelineConfig(Section):
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}\Z")]
    quarantine: Topic
    format: Format = "json"
    key_format: Format = "text"
    registry: Registry | None = None
    steps: Annotated[tuple[StepEntry, ...], Field(min_length=1, max_length=STEPS_MAX)]
    source: Source | None = None
    target: Target | None = None

    @property
    def same_cluster(self) -> bool:
        assert self.source is not None
        assert self.target is not None
        there = self.target.bootstrap_servers
        return there is None or there == self.source.bootstrap_servers

    def target_cluster(self) -> Cluster:
        assert self.source is not None
        assert self.target is not None
        if self.target.bootstrap_servers is None:
            return self.source.cluster("target")
        return Cluster(
            name="target",
            bootstrap_servers=self.target.bootstrap_servers,
            sasl=self.target.sasl,
            tls=self.target.tls,
        )

    def topics_written(self) -> set[str]:
        """Every topic that a record may go to."""
        assert self.target is not None
        steps = tuple(entry.step for entry in self.steps)
        return {self.target.topic, self.quarantine} | topics_of(steps)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A file that was read and found to be right."""

    path: FilePath
    config: PipelineConfig
    plan: Plan
    lines: LinedYaml

    def line(self, *location: str | int) -> int:
        return self.lines.line(location)

    def line_of_step(self, index: int) -> int:
        return self.line("steps", index)

    def require_places(self) -> None:
        """Raises PipelineError for a file that only a link can use."""
        missing = [
            section for section in ("source", "target") if getattr(self.config, section) is None
        ]
        if missing:
            reason = f"{' and '.join(missing)} missing: needed to run on its own"
            raise PipelineError(self.path, [Fault(1, reason)])


def load_pipeline(path: FilePath) -> Pipeline:
    """Reads the file; keys and passwords come from the environment. Raises PipelineError."""
    lines = _read(path)
    if not isinstance(lines.value, dict):
        raise PipelineError(path, [Fault(1, "a mapping is expected at the top")])
    try:
        config = PipelineConfig.model_validate(lines.value)
    except ValidationError as error:
        raise PipelineError(path, list(_faults(error, lines))) from None
    faults = [*_loops(config, lines), *_missing_keys(config, lines)]
    if faults:
        raise PipelineError(path, faults)
    try:
        plan = _plan(config)
    except ImpossibleStep as error:
        raise PipelineError(path, [Fault(lines.line(("steps", error.step)), str(error))]) from None
    except ConfigError as error:
        raise PipelineError(path, [Fault(lines.line(("registry",)), str(error))]) from None
    return Pipeline(path, config, plan, lines)


def _read(path: FilePath) -> LinedYaml:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise PipelineError(path, [Fault(1, f"larger than {FILE_BYTES_MAX} bytes")])
        return read_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PipelineError(path, [Fault(1, error.strerror or "cannot be read")]) from None
    except UnicodeDecodeError as error:
        raise PipelineError(path, [Fault(1, f"not UTF-8 at byte {error.start}")]) from None
    except YamlFault as fault:
        raise PipelineError(path, [Fault(fault.line, str(fault))]) from None


_WORDS = {  # pydantic's speak of Python
    "extra_forbidden": "unknown field",
    "missing": "is missing",
    "tuple_type": "a list is expected",
    "model_type": "an object is expected",
    "string_type": "text is expected",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
    "string_pattern_mismatch": "has characters that are not allowed there, or too many",
    "bool_type": "true or false is expected",
    "int_type": "a whole number is expected",
}


def _faults(error: ValidationError, lines: LinedYaml) -> Iterator[Fault]:
    """The faults, without the wrong values, which may be secrets."""
    faults = error.errors(include_input=False, include_url=False)
    places = {tuple(fault["loc"]) for fault in faults}
    told: set[tuple[str, ...]] = set()
    for fault in faults:
        location = tuple(fault["loc"])
        inside = any(place[: len(location)] == location for place in places - {location})
        words = _written(location, lines)
        # A list with a bad entry is "too short", too; a union has a fault per branch.
        if (fault["type"] == "too_short" and inside) or words in told:
            continue
        told.add(words)
        what = _WORDS.get(fault["type"], fault["msg"].removeprefix("Value error, "))
        if len(words) < len(location) and fault["type"] != "missing":
            what = f"{_BRANCHES[str(location[-1])]} is expected"
        yield Fault(lines.line(location), f"{'.'.join(words)}: {what}" if words else what)


# The first branch of our unions, and the values that the whole union takes.
_BRANCHES = {"str": "a text, a number, true, false or null", "int": "a number"}


def _written(location: Location, lines: LinedYaml) -> tuple[str, ...]:
    """The place without the names that pydantic gives to branches of a union, and with steps
    counted from 1.
    """
    value: object = lines.value
    words: list[str] = []
    for part in location:
        if isinstance(value, list) and isinstance(part, int):
            words.append(str(part + 1))
            value = value[part]
        elif isinstance(value, dict):
            words.append(str(part))
            if part not in value:  # it is missing
                break
            value = value[part]
        else:
            break
    return tuple(words)


def _loops(config: PipelineConfig, lines: LinedYaml) -> Iterator[Fault]:
    if config.source is None or config.target is None or not config.same_cluster:
        return
    source = config.source.topic
    again = "would be read again for ever"
    if config.target.topic == source:
        yield Fault(lines.line(("target", "topic")), f"records that go to {source} {again}")
    if config.quarantine == source:
        yield Fault(lines.line(("quarantine",)), f"records that go to {source} {again}")
    for index, entry in enumerate(config.steps):
        if source in topics_of((entry.step,)):
            yield Fault(lines.line(("steps", index)), f"records that go to {source} {again}")


def _missing_keys(config: PipelineConfig, lines: LinedYaml) -> Iterator[Fault]:
    for index, entry in enumerate(config.steps):
        if entry.mask is None or entry.mask.hmac is None:
            continue
        name = entry.mask.hmac.key_env
        key = os.environb.get(name.encode())
        line = lines.line(("steps", index, "mask", "hmac", "key_env"))
        if not key:
            yield Fault(line, f"the environment variable {name} is not set")
        elif len(key) < HMAC_KEY_BYTES_MIN:
            yield Fault(line, f"the key in {name} is shorter than {HMAC_KEY_BYTES_MIN} bytes")


def _plan(config: PipelineConfig) -> Plan:
    masks = [entry.mask for entry in config.steps if entry.mask is not None]
    names = {mask.hmac.key_env for mask in masks if mask.hmac is not None}
    return Plan(
        name=config.name,
        steps=tuple(entry.step for entry in config.steps),
        quarantine=config.quarantine,
        value_format=config.format,
        key_format=config.key_format,
        secrets={name: Secret(os.environb[name.encode()]) for name in names},
        registry=None if config.registry is None else _registry(config.registry),
    )


def _registry(section: Registry) -> RegistrySettings:
    basic = section.basic
    return RegistrySettings(
        url=section.url,
        username=None if basic is None else basic.username,
        password=None if basic is None else Secret(basic.secret().encode()),
        ca_file=None if section.ca_file is None else str(section.ca_file),
        register=section.register_schemas,
    )


def location_of_path(pipeline: Pipeline, index: int, path: Path) -> list[str | int]:
    """Where in the file a step names that path, or the step itself if it names none."""
    entry = pipeline.config.steps[index]
    location: list[str | int] = ["steps", index, entry.kind]
    for name, given in pipeline.lines.value["steps"][index][entry.kind].items():
        if name == "path" and parse_path(given) == path:
            return [*location, name]
        if name == "paths":
            return [*location, name, [parse_path(text) for text in given].index(path)]
        if name in ("rules", "keep", "drop"):
            paths = [parse_path(rule["path"]) for rule in given]
            if path in paths:
                return [*location, name, paths.index(path), "path"]
    return location
