"""Values whose first bytes name a schema, taken apart by a process that asks the cluster's registry
(`python -m schema_dist decode`).

Value and schema are strangers' bytes: a library that hangs over them, or takes all memory, must not
hold up the node's clients. A start takes a second; a look at a value is a person's.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, create_subprocess_exec
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from gateway.admin.limits import DECODE_BYTES_MAX, DECODE_S_MAX, DECODES_AT_ONCE
from gateway.admin.values import Decoded
from gateway.config.state import RegistryViewSection

FRAMED = b"\0"  # Confluent's framing: a zero, and the schema's id in four bytes
_HEADER_BYTES = 5


@dataclass(frozen=True, slots=True)
class Undecoded:
    """Why a value with a schema is not taken apart, in a line."""

    problem: str
    schema_id: int


@dataclass(slots=True)
class ValueDecoder:
    """`words` take a topic as their last argument, the value on stdin, and print a line of JSON.
    Empty: the node has no registry.
    """

    words: Sequence[str] = ()
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(DECODES_AT_ONCE))

    @classmethod
    def of(cls, section: RegistryViewSection) -> ValueDecoder:
        if section.clusters_file is None or section.cluster is None:
            return cls()
        command = (sys.executable, "-m", "schema_dist", "decode")
        return cls((*command, str(section.clusters_file), section.cluster))

    async def decoded(self, topic: str, value: bytes) -> Decoded | Undecoded | None:
        """None: the value names no schema."""
        if not value.startswith(FRAMED) or len(value) < _HEADER_BYTES:
            return None
        schema_id = int.from_bytes(value[1:_HEADER_BYTES], "big")
        if not self.words:
            return Undecoded(f"schema {schema_id}: this node has no registry_view", schema_id)
        try:
            async with self._turns, asyncio.timeout(DECODE_S_MAX):
                found = json.loads(await self._answer(topic, value))
        except TimeoutError:
            return Undecoded(f"schema {schema_id}: it takes too long", schema_id)
        except (OSError, ValueError, asyncio.LimitOverrunError):
            return Undecoded(f"schema {schema_id}: it cannot be read", schema_id)
        if "problem" in found:
            return Undecoded(str(found["problem"]), schema_id)
        return Decoded(found["document"], found["format"], schema_id)

    async def _answer(self, topic: str, value: bytes) -> bytes:
        """Raises OSError, ValueError; a process that is not done when this ends is killed."""
        process = await create_subprocess_exec(
            *self.words, topic, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=DECODE_BYTES_MAX
        )
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(value)
            with suppress(ConnectionError):
                await process.stdin.drain()
            process.stdin.close()
            return await process.stdout.readline()
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
