"""One value, taken apart by the schema that its first five bytes name: `python -m schema_dist
decode`, a process that the node starts for an operator's look and that ends with it.

The bytes are a stranger's, and so is the schema. So nothing of this runs in the node: a schema that
takes for ever, or all memory, ends with this process.
"""

from __future__ import annotations

import json
import tempfile
from base64 import b64decode
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError, Message

MAGIC, HEADER_BYTES = 0, 5  # Confluent's framing: a zero, and the schema's id in four bytes
REFERENCES_MAX = 100  # of one schema, with theirs


class Undecodable(Exception):
    """The reason, in a line."""


class Asks(Protocol):
    """schema_dist.rest_client.RestClient"""

    async def ask(self, method: str, path: str, *, query: dict[str, str] | None = None) -> object:
        """The JSON of an answer."""
        ...


class Text(NamedTuple):
    name: str  # by which others refer to it
    text: str


class Decodable(NamedTuple):
    """A schema and all schemas it refers to, each before the schemas that refer to it."""

    kind: str  # AVRO, JSON, PROTOBUF
    text: str
    references: list[Text]


def schema_id_of(value: bytes) -> int:
    """Raises Undecodable."""
    if len(value) < HEADER_BYTES or value[0] != MAGIC:
        raise Undecodable("it does not begin with a schema's id")
    return int.from_bytes(value[1:HEADER_BYTES], "big")


async def schema_of(registry: Asks, schema_id: int, topic: str) -> Decodable:
    """Raises Undecodable, and what the registry raises."""
    found = await registry.ask(
        "GET", f"/schemas/ids/{schema_id}", query={"subject": f"{topic}-value"}
    )
    fields = _object(found)
    references: dict[str, str] = {}
    await _follow(registry, fields.get("references") or [], references)
    texts = [Text(name, text) for name, text in references.items()]
    return Decodable(str(fields.get("schemaType") or "AVRO"), str(fields["schema"]), texts)


async def _follow(registry: Asks, rows: Sequence[Any], known: dict[str, str]) -> None:
    """Lists the schemas that a reference refers to before the reference itself."""
    for row in rows:
        name = str(row["name"])
        if name in known:
            continue
        if len(known) >= REFERENCES_MAX:
            raise Undecodable(f"its schema refers to more than {REFERENCES_MAX} others")
        path = f"/subjects/{quote(str(row['subject']), safe='')}/versions/{int(row['version'])}"
        fields = _object(await registry.ask("GET", path, query={"deleted": "true"}))
        await _follow(registry, fields.get("references") or [], known)
        known[name] = str(fields["schema"])


def _object(found: object) -> dict[str, Any]:
    if not isinstance(found, dict) or "schema" not in found:
        raise Undecodable("the registry's answer is no schema")
    return found


def document_of(schema: Decodable, payload: bytes) -> object:
    """The value as JSON has it. Raises Undecodable."""
    try:
        match schema.kind:
            case "AVRO":
                return _avro(schema, payload)
            case "JSON":
                return json.loads(payload)
            case "PROTOBUF":
                return _protobuf(schema, payload)
            case _:
                raise Undecodable(f"schemas of type {schema.kind} are not known")
    except Undecodable:
        raise
    except Exception as error:  # of a library that reads a stranger's bytes by a stranger's schema
        raise Undecodable(f"its schema does not fit: {type(error).__name__}: {error}") from error


def _avro(schema: Decodable, payload: bytes) -> object:
    named: dict[str, Any] = {}
    for reference in schema.references:
        fastavro.parse_schema(json.loads(reference.text), named_schemas=named)
    parsed = fastavro.parse_schema(json.loads(schema.text), named_schemas=named)
    found = fastavro.schemaless_reader(BytesIO(payload), parsed, None)
    return json.loads(json.dumps(found, default=_plain))


def _plain(value: object) -> str:
    """Writes bytes, decimals and dates as text."""
    return value.hex() if isinstance(value, bytes | bytearray) else str(value)


def _protobuf(schema: Decodable, payload: bytes) -> object:
    files = _compiled(schema)
    indexes, at = _indexes(payload)
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    main = files.file[-1]
    found = main.message_type[indexes[0]]
    names = [main.package, found.name] if main.package else [found.name]
    for index in indexes[1:]:
        found = found.nested_type[index]
        names.append(found.name)
    message: Message = message_factory.GetMessageClass(
        pool.FindMessageTypeByName(".".join(names))
    )()
    message.ParseFromString(payload[at:])
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def _compiled(schema: Decodable) -> descriptor_pb2.FileDescriptorSet:
    """The files, the schema's own last. Some registries keep the text of a schema, some the
    descriptor in base64 that confluent-kafka registers.
    """
    texts = [*(reference.text for reference in schema.references), schema.text]
    described = [_descriptor(text) for text in texts]
    files = [file for file in described if file is not None]
    if len(files) == len(described):
        return descriptor_pb2.FileDescriptorSet(file=files)
    from grpc_tools import protoc

    builtin = Path(protoc.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory(prefix="keyway-proto-") as folder:
        root = Path(folder)
        for name, text in [*schema.references, Text("schema.proto", schema.text)]:
            file = (root / name).resolve()
            if root.resolve() not in file.parents:
                raise Undecodable(f"its schema refers to {name!r}, which is no name of a file")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        out = root / "out.bin"
        words = ["protoc", f"-I{root}", f"-I{builtin}", "--include_imports"]
        if protoc.main([*words, f"--descriptor_set_out={out}", "schema.proto"]) != 0:
            raise Undecodable("its schema is no Protobuf that protoc takes")
        return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())


def _descriptor(text: str) -> descriptor_pb2.FileDescriptorProto | None:
    """None if the text is no base64, and so the text of a schema."""
    try:
        return descriptor_pb2.FileDescriptorProto.FromString(b64decode(text, validate=True))
    except (ValueError, DecodeError):
        return None


def _indexes(payload: bytes) -> tuple[list[int], int]:
    """Confluent's path of the message in its file, as zigzag varints; a lone 0 is the first."""
    count, at = _zigzag(payload, 0)
    if count == 0:
        return [0], at
    indexes: list[int] = []
    for _ in range(count):
        index, at = _zigzag(payload, at)
        indexes.append(index)
    return indexes, at


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), at
    raise Undecodable("its message index is too long")
