"""A value taken apart by a process: its answer, and its end whatever it does."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import psutil
import pytest

from gateway.admin import value_decoder
from gateway.admin.limits import DECODE_BYTES_MAX
from gateway.admin.value_decoder import Undecoded, ValueDecoder
from gateway.admin.values import Decoded
from gateway.config.state import RegistryViewSection

VALUE = b"\0\0\0\1\2abc"  # of schema 258
TELLS = """
import json, sys
topic, value = sys.argv[-1], sys.stdin.buffer.read()
print(json.dumps({"format": "avro", "schema_id": 258, "document": [topic, value[5:].decode()]}))
"""


def decoded(program: str, value: bytes = VALUE) -> Decoded | Undecoded | None:
    words = (sys.executable, "-c", program)
    return asyncio.run(ValueDecoder(words).decoded("orders", value))


def test_the_document_of_a_value() -> None:
    assert decoded(TELLS) == Decoded(["orders", "abc"], "avro", 258)


@pytest.mark.parametrize("value", [b"", b"\0\0\0", b"abcdef", b"\1\0\0\0\7abc"])
def test_a_value_without_a_schema_starts_no_process(value: bytes) -> None:
    assert decoded("raise SystemExit(1)", value) is None


def test_a_node_without_a_registry_says_so() -> None:
    found = asyncio.run(ValueDecoder.of(RegistryViewSection()).decoded("orders", VALUE))
    assert found == Undecoded("schema 258: this node has no registry_view", 258)
    section = RegistryViewSection(clusters_file=Path("c.yaml"), cluster="a")
    assert tuple(ValueDecoder.of(section).words[-3:]) == ("decode", "c.yaml", "a")


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ('print(\'{"problem": "schema 258: it is gone"}\')', "schema 258: it is gone"),
        ("print('no JSON')", "schema 258: it cannot be read"),
        ("raise SystemExit(1)", "schema 258: it cannot be read"),
        (f"print('x' * {DECODE_BYTES_MAX + 1})", "schema 258: it cannot be read"),
    ],
)
def test_the_reason_of_a_failure(program: str, problem: str) -> None:
    assert decoded(program) == Undecoded(problem, 258)


def test_a_process_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(value_decoder, "DECODE_S_MAX", 2.0)
    file = tmp_path / "pid"
    program = f"import os, time; open({str(file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    assert decoded(program) == Undecoded("schema 258: it takes too long", 258)
    if file.exists():  # else it was ended before its first line
        assert not psutil.pid_exists(int(file.read_text()))
