"""The reference of all options, made from the models of keyway.yaml and of the clusters' file.

`python -m gateway.admin.config_reference` prints docs/configuration.md; a test keeps it current.
The source is the JSON schema of the models: type, default, limits and description of each option.
Its unit is in its name, or in the model's `json_schema_extra`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from pydantic import BaseModel

from gateway.config.file import Config
from keyway.clusters.config import ClustersConfig

Schema = dict[str, Any]

_UNITS: Final = {  # the end of an option's name: its unit
    "_ms": "ms",
    "_bytes_max": "bytes",
    "_records": "records",
    "_records_per_s": "records/s",
    "records_per_batch_max": "records",
}
_PORT: Final[tuple[float | None, float | None]] = (1, 65_535)
_COLUMNS: Final = ("Option", "Type", "Unit", "Default", "Limits", "Meaning")
_HEAD: Final = """\
# Configuration

Every option of the two files, made from the models that read them
(`python -m gateway.admin.config_reference`). An unknown option is an error that names it.
The options of the entries of a list stand under its name with `[]`.

- [keyway.yaml](#keywayyaml): one node. The same options as a file:
  [keyway.example.yaml](../keyway.example.yaml).
- [The clusters' file](#the-clusters-file): several clusters, and all that follows between them.
"""
_FILES: Final[tuple[tuple[str, str, type[BaseModel]], ...]] = (
    ("keyway.yaml", "`keyway serve --config keyway.yaml`. Each option has a default.", Config),
    (
        "The clusters' file",
        "`keyway distribute`, `keyway offsets` and `keyway schemas` read it:"
        " [replicate clusters](replicate-clusters.md), [fail over](fail-over.md),"
        " [schemas](schemas.md).",
        ClustersConfig,
    ),
)


def text() -> str:
    """The whole page."""
    parts = [_HEAD]
    for title, about, model in _FILES:
        parts.append(f"\n## {title}\n\n{about}\n")
        parts.append(reference(model))
    return "".join(parts)


def reference(model: type[BaseModel]) -> str:
    """The tables of one file. Raises ValueError for an option without a description or a unit."""
    return "".join(_sections(model))


def _sections(model: type[BaseModel]) -> Iterator[str]:
    """A heading, a sentence and a table for each object of the file, from the top down."""
    root = model.model_json_schema()
    definitions: dict[str, Schema] = root.get("$defs", {})
    waiting: list[tuple[str, Schema]] = [("", root)]
    while waiting:
        place, section = waiting.pop(0)
        about = _described(place or "the file", section)
        yield f"\n### `{place}`\n\n{about}\n\n" if place else "\n"
        yield _row(_COLUMNS) + _row(("-",) * len(_COLUMNS))
        below: list[tuple[str, Schema]] = []
        for name, option in section["properties"].items():
            yield _row(_cells(name, option, section, definitions))
            below += _objects_of(f"{place}.{name}".lstrip("."), option, definitions)
        # A node of the tree holds nodes: each model has one section below the same parent.
        waiting = [(at, inner) for at, inner in below if inner is not section] + waiting


def _objects_of(
    place: str, option: Schema, definitions: dict[str, Schema]
) -> Iterator[tuple[str, Schema]]:
    """The objects that the option holds, each with its place in the file."""
    for shape in _shapes(option, definitions):
        if "properties" in shape:
            yield place, shape
        elif shape.get("type") == "array":
            yield from _objects_of(f"{place}[]", shape["items"], definitions)


def _shapes(option: Schema, definitions: dict[str, Schema]) -> list[Schema]:
    """The alternatives of an option, without null."""
    alternatives: list[Schema] = option.get("anyOf") or option.get("oneOf") or [option]
    resolved = [
        definitions[shape["$ref"].rpartition("/")[2]] if "$ref" in shape else shape
        for shape in alternatives
    ]
    return [shape for shape in resolved if shape.get("type") != "null"]


def _cells(
    name: str, option: Schema, section: Schema, definitions: dict[str, Schema]
) -> tuple[str, ...]:
    shapes = _shapes(option, definitions)
    return (
        f"`{name}`",
        " or ".join(_type(shape, definitions) for shape in shapes),
        _unit(name, option, shapes),
        _default(name, option, section),
        _limits(option, shapes, definitions),
        _described(name, option),
    )


def _type(shape: Schema, definitions: dict[str, Schema]) -> str:
    if "properties" in shape:
        return "object"
    if "enum" in shape:
        return "choice"
    if shape.get("type") == "array":
        inner = " or ".join(
            _type(entry, definitions) for entry in _shapes(shape["items"], definitions)
        )
        return f"list of {inner}"
    if shape.get("type") == "object":
        return "names and texts"
    if _range(shape) == _PORT:
        return "port"
    if "format" in shape:
        return {"path": "path", "password": "secret"}[shape["format"]]
    return {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean"}[
        shape["type"]
    ]


def _unit(name: str, option: Schema, shapes: list[Schema]) -> str:
    """Raises ValueError for a number whose unit is nowhere."""
    for shape in (option, *shapes):
        if "unit" in shape:
            return str(shape["unit"])
    for ending, unit in _UNITS.items():
        if name.endswith(ending):
            return unit
    if any(each.get("type") in ("integer", "number") and _range(each) != _PORT for each in shapes):
        raise ValueError(f"{name}: its unit is neither in its name nor in its model")
    return ""


def _default(name: str, option: Schema, section: Schema) -> str:
    if name in section.get("required", ()) or option.get("required"):
        return "required"
    value = option.get("default")
    if value in ({}, []):
        return "empty"
    if isinstance(value, dict):
        return "its own defaults"
    return "none" if value is None else f"`{json.dumps(value, ensure_ascii=False)}`"


def _limits(option: Schema, shapes: list[Schema], definitions: dict[str, Schema]) -> str:
    if "limits" in option:
        return str(option["limits"])
    found: list[str] = []
    for shape in shapes:
        if "enum" in shape:
            found.append(", ".join(f"`{choice}`" for choice in shape["enum"]))
        found.append(_between(*_range(shape)))
        entries = "entry" if shape.get("minItems") == 1 and "maxItems" not in shape else "entries"
        found.append(_between(shape.get("minItems"), shape.get("maxItems"), f" {entries}"))
        if shape.get("minLength") == 1:
            found.append("not empty")
        if "maxLength" in shape:
            found.append(f"at most {shape['maxLength']} characters")
        if "pattern" in shape:
            found.append(f"matches `{shape['pattern']}`")
        if shape.get("type") == "array":
            each = _limits({}, _shapes(shape["items"], definitions), definitions)
            found.append(each and f"each {each}")
    return "; ".join(limit for limit in found if limit)


def _range(shape: Schema) -> tuple[float | None, float | None]:
    return shape.get("minimum"), shape.get("maximum")


def _between(least: float | None, most: float | None, of: str = "") -> str:
    if least is None:
        return "" if most is None else f"at most {most:,}{of}"
    return f"at least {least:,}{of}" if most is None else f"{least:,} to {most:,}{of}"


def _described(name: str, schema: Schema) -> str:
    """The description in one line. Raises ValueError if there is none."""
    if "description" not in schema:
        raise ValueError(f"{name}: its model has no description")
    return " ".join(schema["description"].split())


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    print(text(), end="")  # noqa: T201
