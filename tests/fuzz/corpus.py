"""The recorded traffic that fuzzing begins with: exchanges of real clients with a node.

`corpus.jsonl.xz` holds one exchange per line; `python -m tests.fuzz.record` makes it anew. Nothing
in it is secret: topics, groups and hosts are those of the recording on loopback.
"""

from __future__ import annotations

import json
import lzma
from base64 import b64decode, b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("corpus.jsonl.xz")


class Exchange(NamedTuple):
    """A request and its response, each without the size prefix."""

    client: str
    key: int
    version: int
    local: bool  # answered by the gateway; else the response is upstream's
    request: bytes
    response: bytes | None  # None: a Produce that asks for none


def read(file: Path = FILE) -> list[Exchange]:
    rows = [json.loads(line) for line in lzma.decompress(file.read_bytes()).splitlines()]
    return [
        Exchange(
            client=row["client"],
            key=row["key"],
            version=row["version"],
            local=row["local"],
            request=b64decode(row["request"]),
            response=None if row["response"] is None else b64decode(row["response"]),
        )
        for row in rows
    ]


def write(exchanges: Iterable[Exchange], file: Path = FILE) -> None:
    lines = [
        json.dumps(
            exchange._asdict()
            | {
                "request": b64encode(exchange.request).decode(),
                "response": None
                if exchange.response is None
                else b64encode(exchange.response).decode(),
            }
        )
        for exchange in exchanges
    ]
    file.write_bytes(lzma.compress("\n".join(lines).encode(), preset=9))
