"""The Avro schema of records that went through a pipeline: fields renamed, dropped, of a new type.

Pure: schema in, schema out. `avro_document` does the same to the bytes, field by field, so that
the two agree (`tests/property/test_transforms_avro.py` holds them against fastavro).

A named type that a schema uses at several places can be changed only if it is changed the same way
at each: Avro has one definition per name.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from spark.transforms.core.avro_types import PRIMITIVES, Definitions, Schema, defined
from spark.transforms.core.paths import EVERY, Path

Tree = Any  # a parsed schema on its way: text, list, object
_NULL = ("null", {"type": "null"})


class ConflictingChange(Exception):
    """One named type would have two definitions."""


class SchemaTree:
    """A schema that can be edited: every use of a named type is a copy of its own."""

    def __init__(self, definitions: Definitions) -> None:
        self._named = definitions.named
        # A field of nothing around the schema, so that also the whole schema has a holder.
        self._root: dict[str, Any] = {"type": copy.deepcopy(definitions.schema)}
        self.changed = False

    def __contains__(self, path: Path) -> bool:
        return any(True for _ in self._uses(path))

    def rename(self, path: Path, name: str) -> None:
        """Raises ConflictingChange. Keys of a map are no part of the schema."""
        for record, field in self._fields(path):
            if any(other["name"] == name for other in record["fields"]):
                raise ConflictingChange(f"{record['name']} has a field {name} already")
            field["name"] = name

    def drop(self, path: Path) -> None:
        for record, field in self._fields(path):
            record["fields"].remove(field)

    def retype(self, path: Path, new: Schema) -> None:
        """In a union, only null stays beside `new`."""
        for holder, key in list(self._uses(path)):
            old = holder[key]
            if isinstance(old, list):
                branches: list[Any] = []
                for branch in old:
                    wanted = "null" if branch in _NULL else copy.deepcopy(new)
                    if wanted not in branches:
                        branches.append(wanted)
                holder[key] = branches
            else:
                holder[key] = copy.deepcopy(new)
            if key == "type" and "default" in holder and holder["default"] is not None:
                del holder["default"]  # a value of the old type
            self.changed = True

    def definitions(self) -> Definitions:
        """Raises ConflictingChange."""
        return defined(_Compact(self._named).schema(self._root["type"]))

    def _fields(self, path: Path) -> list[tuple[Any, Any]]:
        """(record, field) of every record that has the field."""
        *way, name = path.segments
        found = []
        for holder, key in self._uses(Path(tuple(way))):
            for record in self._branches(holder, key):
                if isinstance(record, dict) and record["type"] in ("record", "error"):
                    found += [
                        (record, field) for field in record["fields"] if field["name"] == name
                    ]
        self.changed |= bool(found)
        return found

    def _uses(self, path: Path) -> Iterator[tuple[Any, Any]]:
        """(holder, key): `holder[key]` is the schema of the value at `path`."""
        uses: list[tuple[Any, Any]] = [(self._root, "type")]
        for segment in path.segments:
            below: list[tuple[Any, Any]] = []
            for holder, key in uses:
                for schema in self._branches(holder, key):
                    if not isinstance(schema, dict):
                        continue
                    kind = schema["type"]
                    if segment is EVERY:
                        below += [(schema, "items")] if kind == "array" else []
                    elif kind == "map":
                        below.append((schema, "values"))
                    elif kind in ("record", "error"):
                        below += [
                            (field, "type")
                            for field in schema["fields"]
                            if field["name"] == segment
                        ]
            uses = below
        yield from uses

    def _branches(self, holder: Tree, key: str | int) -> Iterator[Any]:
        """The schema at `holder[key]`, or the branches of a union; names are replaced by copies of
        their definitions.
        """
        holder[key] = self._copied(holder[key])
        if isinstance(holder[key], list):
            holder[key] = [self._copied(branch) for branch in holder[key]]
            yield from holder[key]
        else:
            yield holder[key]

    def _copied(self, schema: Tree) -> Tree:
        while isinstance(schema, str) and schema not in PRIMITIVES:
            schema = copy.deepcopy(self._named[schema])
        return schema


class _Compact:
    """Puts a tree back into a schema: each named type defined where it is first used."""

    def __init__(self, named: Mapping[str, Schema]) -> None:
        self._original = named
        self._visited: set[str] = set()
        self._found: dict[str, Any] = {}  # bodies, in which named types are names

    def schema(self, tree: Tree) -> Tree:
        """Raises ConflictingChange."""
        return self._expanded(self._flat(tree), set())

    def _flat(self, tree: Tree) -> Tree:
        """`tree` with names in place of named types, whose bodies go to `_found`."""
        if isinstance(tree, str):
            # A use that no path went through has the original definition.
            if tree not in PRIMITIVES and tree not in self._visited:
                self._visited.add(tree)
                self._flat(self._original[tree])
            return tree
        if isinstance(tree, list):
            return [self._flat(branch) for branch in tree]
        body = dict(tree)
        for key in ("items", "values"):
            if key in body:
                body[key] = self._flat(body[key])
        if "fields" in body:
            body["fields"] = [
                {**field, "type": self._flat(field["type"])} for field in body["fields"]
            ]
        if "name" not in body:
            return body
        name = body["name"]
        if self._found.setdefault(name, body) != body:
            raise ConflictingChange(
                f"type {name} is used at several places; name the field at each of them"
            )
        return name

    def _expanded(self, flat: Tree, done: set[str]) -> Tree:
        if isinstance(flat, str):
            if flat not in self._found or flat in done:
                return flat
            done.add(flat)
            return self._expanded(self._found[flat], done)
        if isinstance(flat, list):
            return [self._expanded(branch, done) for branch in flat]
        body = dict(flat)
        for key in ("items", "values"):
            if key in body:
                body[key] = self._expanded(body[key], done)
        if "fields" in body:
            body["fields"] = [
                {**field, "type": self._expanded(field["type"], done)} for field in body["fields"]
            ]
        if "name" in body and "." not in body["name"]:
            body["namespace"] = ""  # or it would be of the namespace around it
        return body
