"""Do two texts mean the same schema?

Registries hand out a schema otherwise than they got it: Karapace sorts the keys of JSON, others
format Protobuf anew. So texts are compared by their meaning:

- Avro and JSON Schema: the parsed JSON, keys in any order, `1` and `1.0` alike, `1` and `true` not.
- Protobuf: the tokens, without comments and white space; imports and file options in any order. A
  serialized descriptor in base64, which some clients send, is compared by its bytes.
- A type we do not know: the text itself.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NewType

from schema_dist.core.limits import FINGERPRINTS_KEPT, WORDS_AT_ONCE
from schema_dist.core.model import AVRO, JSON, PROTOBUF, Schema, SchemaVersion

Fingerprint = NewType("Fingerprint", str)  # equal for schemas that mean the same

_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|(?P<open>\Z))|\s+"""
    r"""|(?P<word>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[\w.+-]+|[^\w\s"'])""",
    re.DOTALL,
)
_BASE64 = re.compile(r"[A-Za-z0-9+/]{8,}={0,2}")
_DEPTH_MAX = 500  # nested deeper, Python's parser gives up; no schema is


class SchemaTextError(ValueError):
    """A text that is no schema of its type; says why."""


@lru_cache(FINGERPRINTS_KEPT)
def fingerprint(schema: Schema) -> Fingerprint:
    """As `computed_fingerprint`, but remembered together with the text. Use it for what a registry
    holds, not for what strangers send.
    """
    return computed_fingerprint(schema)


def computed_fingerprint(schema: Schema) -> Fingerprint:
    """A digest of the schema's type, meaning and references. Raises SchemaTextError if the text
    cannot be parsed.
    """
    parts = [schema.type, canonical(schema.type, schema.text)]
    parts += sorted(
        json.dumps([reference.name, reference.subject, reference.version])
        for reference in schema.references
    )
    return Fingerprint(
        hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
    )


def difference(wanted: SchemaVersion, found: SchemaVersion | None) -> str | None:
    """The difference between a written version (`wanted`) and the same version read back; None if
    there is none. Deletion is not compared.
    """
    if found is None:
        return "it is not there"
    if found.id != wanted.id:
        return f"it has id {found.id}"
    try:
        same = fingerprint(found.schema) == fingerprint(wanted.schema)
    except SchemaTextError as error:
        return f"its text does not parse: {error}"
    return None if same else "its schema is another one"


def canonical(kind: str, text: str) -> str:
    """One text for all texts that mean the same. Raises SchemaTextError."""
    normal = _CANONICAL.get(kind)
    return text if normal is None else normal(text)


def _canonical_json(text: str) -> str:
    try:
        parsed = json.loads(text, parse_float=_number, parse_constant=_refuse_constant)
        return json.dumps(parsed, sort_keys=True, separators=(",", ":"))
    except RecursionError:
        raise SchemaTextError(f"nested deeper than {_DEPTH_MAX} levels") from None
    except ValueError as error:
        raise SchemaTextError(f"not JSON: {error}") from None


def _number(digits: str) -> float | int:
    number = float(digits)
    return int(number) if number.is_integer() else number


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _canonical_avro(text: str) -> str:
    made = _canonical_json(text)
    if made[:1] not in ("{", "[", '"'):
        raise SchemaTextError("an Avro schema is an object, a list or a name")
    return made


def _canonical_json_schema(text: str) -> str:
    made = _canonical_json(text)
    if made[:1] != "{" and made not in ("true", "false"):
        raise SchemaTextError("a JSON Schema is an object, true or false")
    return made


def _canonical_protobuf(text: str) -> str:
    if _BASE64.fullmatch(text):
        return f"descriptor {text.rstrip('=')}"
    statements: list[list[str]] = [[]]
    depth = 0
    for word in _tokens(text):
        statements[-1].append(word)
        depth += (word == "{") - (word == "}")
        if depth < 0:
            raise SchemaTextError("a '}' too many")
        if depth == 0 and word in (";", "}"):
            statements.append([])
    if depth or statements[-1]:
        raise SchemaTextError("the text ends inside a statement")
    whole = [statement for statement in statements if statement not in ([], [";"])]
    if not whole:
        raise SchemaTextError("no statement")
    loose = [statement for statement in whole if statement[0] in ("import", "option")]
    fixed = [statement for statement in whole if statement[0] not in ("import", "option")]
    return f"[{_listed(sorted(loose))}, {_listed(fixed)}]"


def _listed(statements: list[list[str]]) -> str:
    """The same text as json.dumps would write. It is built some words at a time, because each call
    of json.dumps keeps all other threads waiting.
    """
    return f"[{', '.join(f'[{_words(statement)}]' for statement in statements)}]"


def _words(statement: list[str]) -> str:
    starts = range(0, len(statement), WORDS_AT_ONCE)
    return ", ".join(json.dumps(statement[at : at + WORDS_AT_ONCE])[1:-1] for at in starts)


def _tokens(text: str) -> list[str]:
    found: list[str] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise SchemaTextError(f"unexpected {text[at : at + 10]!r}")
        at = match.end()
        if match["open"] is not None:  # Found in one pass, not again at each further `/*`.
            raise SchemaTextError("a comment has no end")
        word = match["word"]
        if word is not None:
            found.append(f'"{word[1:-1]}"' if word[0] == "'" else word)
    return found


_CANONICAL: Mapping[str, Callable[[str], str]] = {
    AVRO: _canonical_avro,
    JSON: _canonical_json_schema,
    PROTOBUF: _canonical_protobuf,
}


def canonical_object(value: Mapping[str, Any]) -> str:
    """A JSON object as one text that does not depend on the order of its keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
