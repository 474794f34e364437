"""An Avro record taken apart only where a path leads, and put together again byte for byte.

As in `json_document`: a record, array, map or union on a path becomes a node with parts, all else
stays the slice of bytes it was. A document without a change is its own bytes. In a changed one an
array or map on a path is written as one block, however many blocks it came in.

The bytes hold no names, so a rename changes nothing here, and a removed field is cut out; the
schema that fits the result is made by `avro_derived`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from spark.transforms.core.avro_types import (
    Array,
    Map,
    Primitive,
    Record,
    Type,
    Union,
    read_long,
    write_long,
)
from spark.transforms.core.paths import EVERY, Path, Segment
from spark.transforms.core.values import Scalar, Shape, UnreadableRecord, Value, described

_NAME = Primitive("string")


class Node:
    """A value of type `kind`: its bytes, or its parts once it was taken apart. `names` has the
    fields of a record or the keys of a map, `branch` the branch of a union, whose value is the
    one part.
    """

    __slots__ = ("branch", "kind", "names", "parts", "raw")

    def __init__(self, kind: Type, raw: bytes) -> None:
        self.kind = kind
        self.raw = raw
        self.parts: list[Node] | None = None
        self.names: list[str] = []
        self.branch = 0

    def encode(self) -> bytes:
        if self.parts is None:
            return self.raw
        inside = [part.encode() for part in self.parts]
        if isinstance(self.kind, Record):
            return b"".join(inside)
        if isinstance(self.kind, Union):
            return write_long(self.branch) + inside[0]
        if isinstance(self.kind, Map):
            inside = [
                _NAME.encode(name) + value for name, value in zip(self.names, inside, strict=True)
            ]
        return (write_long(len(inside)) if inside else b"") + b"".join(inside) + b"\0"

    def value_node(self) -> Node:
        """The node itself, or of a union the node of its branch."""
        if not isinstance(self.kind, Union):
            return self
        if self.parts is None:
            self.branch, at = read_long(self.raw, 0)
            self.parts = [Node(self.kind.branches[self.branch], self.raw[at:])]
        return self.parts[0].value_node()

    def opened(self) -> list[Node]:
        """The parts of a record, array or map."""
        if self.parts is not None:
            return self.parts
        self.parts = []
        if isinstance(self.kind, Record):
            at = 0
            for name, kind in self.kind.fields:
                at = self._add(name, kind, at)
        elif isinstance(self.kind, Array):
            for at in _starts(self.raw, self.kind.items, named=False):
                self._add("", self.kind.items, at)
        else:
            assert isinstance(self.kind, Map)
            for at in _starts(self.raw, self.kind.values, named=True):
                end = _NAME.skip(self.raw, at)
                key = _NAME.decode(self.raw[at:end])
                assert isinstance(key, str)
                self._add(key, self.kind.values, end)
        return self.parts

    def _add(self, name: str, kind: Type, at: int) -> int:
        assert self.parts is not None
        end = kind.skip(self.raw, at)
        self.names.append(name)
        self.parts.append(Node(kind, self.raw[at:end]))
        return end


def _starts(raw: bytes, item: Type, *, named: bool) -> Iterator[int]:
    """Where the items of all blocks begin. The blocks were walked once when the record was opened,
    so their sizes are right.
    """
    at = 0
    while True:
        count, at = read_long(raw, at)
        if count == 0:
            return
        if count < 0:
            _, at = read_long(raw, at)
        for _ in range(abs(count)):
            yield at
            at = item.skip(raw, _NAME.skip(raw, at) if named else at)


@dataclass(frozen=True, slots=True)
class AvroLocation:
    document: AvroDocument
    holder: Node
    index: int

    def _node(self) -> Node:
        return self.holder.opened()[self.index]

    def _put(self, node: Node) -> None:
        self.holder.opened()[self.index] = node
        self.document.changed = True

    @property
    def value(self) -> Value:
        inner = self._node().value_node()
        return inner.kind.decode(inner.raw)

    def replace(self, value: Scalar) -> None:
        """In a union the branch stays if it can hold the value."""
        node = self._node()
        inner = node.value_node()
        try:
            inner.raw = inner.kind.encode(value)
        except UnreadableRecord:
            self._put(Node(node.kind, node.kind.encode(value)))
        else:
            inner.parts = None
            self.document.changed = True

    def retype(self, value: Scalar, kind: Literal["long", "string"]) -> None:
        new = retyped(self._node().kind, Primitive(kind))
        self._put(Node(new, new.encode(value)))

    def rename(self, name: str) -> None:
        if isinstance(self.holder.kind, Map):
            raise UnreadableRecord("a key of an Avro map cannot be renamed")
        self.holder.names[self.index] = name
        self.document.changed = True

    def remove(self) -> None:
        del self.holder.opened()[self.index]
        del self.holder.names[self.index]
        self.document.changed = True


def retyped(kind: Type, new: Primitive) -> Type:
    """The type of a field that held `kind` and is to hold `new`: in a union null stays where it
    is, all else gives way to `new`, once.
    """
    if not isinstance(kind, Union):
        return new
    branches: list[Type] = []
    for branch in kind.branches:
        wanted = branch if branch == Primitive("null") else new
        if wanted not in branches:
            branches.append(wanted)
    return Union(tuple(branches))


class AvroDocument:
    """One value in Avro's binary encoding."""

    __slots__ = ("_data", "_kind", "_root", "changed", "lacking")

    def __init__(self, data: bytes, kind: Type) -> None:
        self._data = data
        self._kind = kind
        self._root: Node | None = None
        self.changed = False
        self.lacking = False

    def encode(self) -> bytes:
        if not self.changed or self._root is None:
            return self._data
        return self._root.opened()[0].encode()

    def places(self, path: Path) -> list[AvroLocation]:
        if self._root is None:
            self._root = _whole(self._data, self._kind)
        found = [(self._root, 0)]
        self.lacking = False
        for segment in path.segments:
            below: list[tuple[Node, int]] = []
            for holder, index in found:
                there = _below(holder.opened()[index].value_node(), segment, path)
                self.lacking |= not there and segment is not EVERY
                below += there
            found = below
        return [AvroLocation(self, holder, index) for holder, index in found]


def _below(node: Node, segment: Segment, path: Path) -> list[tuple[Node, int]]:
    if node.kind == Primitive("null"):
        return []
    fits = isinstance(node.kind, Array) if segment is EVERY else isinstance(node.kind, Record | Map)
    if not fits:
        is_there = described(node.kind.decode(node.raw))
        wanted = Shape.ARRAY if segment is EVERY else Shape.OBJECT
        raise UnreadableRecord(f"on path {path} is {is_there}, not {wanted.value}")
    return [
        (node, index)
        for index in range(len(node.opened()))
        if segment is EVERY or node.names[index] == segment
    ]


def _whole(data: bytes, kind: Type) -> Node:
    """A record of one field around the value, which is walked once from end to end."""
    try:
        end = kind.skip(data, 0)
    except RecursionError:
        raise UnreadableRecord("nested too deeply") from None
    if end != len(data):
        raise UnreadableRecord(
            f"{len(data) - end} bytes behind the end that the Avro schema describes"
        )
    root = Node(Record("", [("", kind)]), data)
    root.opened()
    return root
