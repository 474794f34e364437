"""The codec against kafka-clients itself: every table, every version, byte for byte and by name.

One Java process answers for all cases. Random messages of ours go through kafka-clients' generated
classes and must come back as the same bytes, and its JSON of them must agree with our decoder:
so two fields of one type cannot be swapped unseen. Random bytes made from Kafka's own schemas go
through our codec and must come out as kafka-clients writes them. Skeletons show that the defaults
are the same at every depth.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from zlib import crc32

import pytest

from gateway.core.wire.apis import (
    APIS,
    KNOWN,
    ApiKey,
    request_header_version,
    response_header_version,
)
from gateway.core.wire.decode import decode
from gateway.core.wire.encode import encode
from gateway.core.wire.errors import ErrorCode
from gateway.core.wire.frames import SIZE_BYTES, parse_request_header, request_frame
from gateway.core.wire.schema import Schema
from tests.conformance.wire.oracle import ask
from tests.rig.wire_values import Values, kafka_json, skeleton

DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
READS_PER_VERSION = 12 if DEEP else 4
MAKES_PER_VERSION = 6 if DEEP else 2


@dataclass(frozen=True)
class Case:
    schema: Schema
    version: int
    command: str
    data: bytes = b""  # our encoding, for read and skeleton


def _cases(key: int, schema: Schema) -> Iterator[Case]:
    what = schema.name.rpartition(" ")[2]
    for version in range(schema.versions.first, schema.versions.last + 1):
        plan = schema.plan(version)
        for index in range(READS_PER_VERSION):
            seed = crc32(f"{schema.name} {version} {index}".encode())
            # The first one is empty: all defaults.
            message = Values(seed).message(schema, version) if index else {}
            data = encode(plan, message)
            yield Case(schema, version, f"read {key} {what} {version} {data.hex()}", data)
        data = encode(plan, skeleton(schema.fields, version))
        yield Case(schema, version, f"skeleton {key} {what} {version}", data)
        for index in range(MAKES_PER_VERSION):
            yield Case(schema, version, f"make {key} {what} {version} {1_000 * version + index}")


HEADERS = [
    request_frame(key, version, correlation, client, b"")[SIZE_BYTES:]
    for key, version, correlation, client in [
        (1, 11, 7, "client"),
        (1, 12, -1, None),
        (17, 1, 2**31 - 1, ""),
        (18, 3, 0, "é" * 100),
        (78, 2, 5, "x" * 32_767),
    ]
]


Answers = dict[str, list[tuple[Case, str]]]  # by schema name


@dataclass(frozen=True)
class Said:
    headers: list[str]
    answers: Answers
    facts: list[list[str]]


@pytest.fixture(scope="module")
def said() -> Said:
    cases = [
        case
        for key, api in APIS.items()
        for schema in (api.request, api.response)
        for case in _cases(key, schema)
    ]
    headers = [f"header {header.hex()}" for header in HEADERS]
    lines = iter(ask([*headers, *(case.command for case in cases), "facts"]))
    of_headers = list(islice(lines, len(headers)))
    by_schema: Answers = {}
    for case, answer in zip(cases, islice(lines, len(cases)), strict=True):
        by_schema.setdefault(case.schema.name, []).append((case, answer))
    return Said(of_headers, by_schema, [line.split(" ") for line in lines])


@pytest.fixture(scope="module")
def answers(said: Said) -> Answers:
    return said.answers


NAMES = [schema.name for api in APIS.values() for schema in (api.request, api.response)]


@pytest.mark.parametrize("name", NAMES)
def test_what_we_write_is_what_kafka_clients_read_and_write(answers: Answers, name: str) -> None:
    reads = [(case, said) for case, said in answers[name] if case.command.startswith("read")]
    versions = {case.version for case, _ in reads}
    assert len(reads) == READS_PER_VERSION * len(versions)
    for case, said in reads:
        status, _, rest = said.partition(" ")
        assert status == "ok", f"{case.command[:200]}: {said}"
        data, _, text = rest.partition(" ")
        assert data == case.data.hex(), f"{name} v{case.version}"
        decoded = decode(case.schema.plan(case.version), case.data, 0)
        assert encode(case.schema.plan(case.version), decoded) == case.data
        assert kafka_json(case.schema.fields, case.version, decoded) == json.loads(text)


@pytest.mark.parametrize("name", NAMES)
def test_what_kafka_makes_we_read_and_write_as_kafka_clients_do(
    answers: Answers, name: str
) -> None:
    makes = [(case, said) for case, said in answers[name] if case.command.startswith("make")]
    assert makes
    for case, said in makes:
        status, _, rest = said.partition(" ")
        assert status == "ok", f"{case.command}: {said}"
        made, _, canonical = rest.partition(" ")
        plan = case.schema.plan(case.version)
        assert encode(plan, decode(plan, bytes.fromhex(made), 0)).hex() == canonical, case.command


@pytest.mark.parametrize("name", NAMES)
def test_defaults_are_those_of_kafka_clients(answers: Answers, name: str) -> None:
    skeletons = [(case, said) for case, said in answers[name] if "skeleton" in case.command]
    assert skeletons
    for case, said in skeletons:
        assert said == f"ok {case.data.hex()}", case.command


def test_error_codes_are_kafka_clients_own(said: Said) -> None:
    theirs = {words[2]: int(words[1]) for words in said.facts if words[0] == "error"}
    assert theirs == {code.name: code.value for code in ErrorCode}


def test_apis_are_kafka_clients_own(said: Said) -> None:
    theirs = [words[1:] for words in said.facts if words[0] == "api"]
    assert {words[1]: int(words[0]) for words in theirs} == {key.name: int(key) for key in ApiKey}
    with_versions = {int(words[0]): words for words in theirs if len(words) > 3}
    assert with_versions.keys() == KNOWN.keys()
    for key, words in with_versions.items():
        api = KNOWN[key]
        assert [api.name, api.min_version, api.max_version] == [
            words[2],
            int(words[3]),
            int(words[4]),
        ]
        ours = [
            f"{request_header_version(key, version)}/{response_header_version(key, version)}"
            for version in range(api.min_version, api.max_version + 1)
        ]
        assert ours == words[5:], api.name


def test_request_headers_are_kafka_clients_own(said: Said) -> None:
    for frame, answer in zip(HEADERS, said.headers, strict=True):
        found = re.fullmatch(r"ok (\d+) (\d+) (-?\d+) =(\S*) (\d+) ([0-9a-f]+)", answer)
        assert found is not None, answer
        header = parse_request_header(frame)
        assert [header.api_key, header.api_version, header.correlation_id, header.body_at] == [
            int(found[index]) for index in (1, 2, 3, 5)
        ]
        # kafka-clients reads no client id as an empty one; we keep the difference.
        assert (header.client_id or "") == found[4]
        if header.client_id is not None:
            assert frame.hex() == found[6]
