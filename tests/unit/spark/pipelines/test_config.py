"""Pipeline files: the parts read, and every fault with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark.pipelines.config import Pipeline, PipelineError, load_pipeline, location_of_path
from spark.transforms.core.paths import parse_path
from spark.transforms.core.steps import Drop, Filter, Mask, Rename, Route, Timestamp

ENVIRONMENT = {"MASK_KEY": "a key of 16 bytes", "SHORT": "short", "REGISTRY": "SECRET"}
WHOLE = """\
name: flights-masked
quarantine: flights-sick
format: avro
key_format: text
registry:
  url: http://127.0.0.1:8081
  basic: {username: me, password_env: REGISTRY}
  register_schemas: true
source: {bootstrap_servers: "127.0.0.1:9192", topic: flights, start: latest}
target: {topic: flights-masked}
steps:
  - mask:
      paths: [tailnum, "legs[].tail"]
      hmac: {key_env: MASK_KEY, digits: 16}
  - mask: {part: key, keep_last: {characters: 2, filler: "#"}}
  - mask: {paths: [note], redact: {replacement: null}, missing: ignore}
  - rename: {path: dest, to: destination}
  - drop:
      paths:
        - hour
        - minute
  - timestamp:
      paths: [time_hour]
      input: {format: "%Y-%m-%d %H:%M:%S", zone: America/New_York}
      output: {format: unix_ms}
      ambiguous: later
  - filter:
      keep:
        - {path: carrier, one_of: [UA, B6]}
        - {path: distance, at_least: 100}
  - route:
      rules:
        - {path: carrier, equals: UA, topic: united}
        - {path: origin, matches: "E.*", topic: newark, missing: quarantine}
      otherwise: others
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return tmp_path / "pipeline.yaml"


def loaded(file: Path, text: str) -> Pipeline:
    file.write_text(text, encoding="utf-8")
    return load_pipeline(file)


def faults(file: Path, text: str) -> list[tuple[int, str]]:
    with pytest.raises(PipelineError) as error:
        loaded(file, text)
    for fault in error.value.faults:
        assert f"{file}:{fault.line}: {fault.reason}" in str(error.value)
    return [(found.line, found.reason) for found in error.value.faults]


def test_a_whole_file(file: Path) -> None:
    pipeline = loaded(file, WHOLE)
    kinds = [Mask, Mask, Mask, Rename, Drop, Timestamp, Filter, Route]
    assert [type(step) for step in pipeline.plan.steps] == kinds
    assert pipeline.plan.registry is not None
    assert pipeline.plan.registry.register
    assert pipeline.config.topics_written() == {
        *("flights-masked", "flights-sick", "united", "newark", "others")
    }
    assert "SECRET" not in repr(pipeline)
    assert "16 bytes" not in repr(pipeline)


def test_where_a_path_is_named(file: Path) -> None:
    pipeline = loaded(file, WHOLE)
    for step, path, line in (
        (0, "legs[].tail", 13),
        (1, "", 15),
        (3, "dest", 17),
        (4, "minute", 21),
        (5, "time_hour", 23),
        (6, "distance", 30),
        (7, "origin", 34),
    ):
        location = location_of_path(pipeline, step, parse_path(path))
        assert pipeline.line(*location) == line, path


def test_a_link_needs_neither_source_nor_target(file: Path) -> None:
    pipeline = loaded(file, 'name: p\nquarantine: q\nsteps: [{mask: {paths: ["a"], redact: {}}}]\n')
    assert pipeline.plan.quarantine == "q"
    assert pipeline.config.source is None


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("digits: 16", "digit: 16", (14, "steps.1.mask.hmac.digit: unknown field")),
        ("  - rename:", "  - renam:", (17, "renam: unknown field")),
        ("quarantine: flights-sick\n", "", (1, "quarantine: is missing")),
        ("quarantine: flights-sick", "quarantine: a b", (2, "characters that are not allowed")),
        ("        - minute", "        - mi..nute", (21, "a name expected at character 4")),
        ('"legs[].tail"', '"legs[1].tail"', (13, "`.` or `[]` expected at character 5")),
        ("path: dest,", 'path: "legs[]",', (17, "must end with the name of a field")),
        ("format: avro", "format: yaml", (3, "format: Input should be 'json', 'avro' or 'text'")),
        ("zone: America/New_York", "zone: New_York", (24, "no time zone 'New_York'")),
        ("output: {format: unix_ms}", "output: {format: ms}", (25, "'ms' is neither one of")),
        ("characters: 2", "characters: -1", (15, "greater than or equal to 0")),
        ("digits: 16", "digits: 8", (14, "greater than or equal to 16")),
        ("digits: 16", 'digits: "16"', (14, "a whole number is expected")),
        ("at_least: 100", 'at_least: "100"', (30, "at_least: a number is expected")),
        ("one_of: [UA, B6]", "one_of: []", (29, "must not be empty")),
        ('matches: "E.*"', 'matches: "E("', (34, "not a regular expression")),
        (", equals: UA", "", (33, "exactly one of equals, one_of, matches")),
        ("topic: united", "topic: flights", (31, "records that go to flights would be read again")),
        ("quarantine: flights-sick", "quarantine: flights", (2, "would be read again for ever")),
        ("target: {topic: flights-masked}", "target: {topic: flights}", (10, "read again")),
        ("key_env: MASK_KEY", "key_env: NOT_SET", (14, "variable NOT_SET is not set")),
        ("key_env: MASK_KEY", "key_env: SHORT", (14, "in SHORT is shorter than 16 bytes")),
        ("password_env: REGISTRY", "password_env: GONE", (5, "GONE is not set")),
        ("  register_schemas: true\n", "", (16, "set registry.register_schemas to true")),
        ("key_format: text", "key_format: text\nformat: avro", (5, "format is given twice")),
        ("part: key, keep_last", "part: key, paths: [a], keep_last", (15, "without fields")),
        ("start: latest", "start: now", (9, "Input should be 'earliest' or 'latest'")),
        ("{topic: flights-masked}", "{topic: t, sasl: {username: u, password: p}}", (10, "need")),
    ],
)
def test_every_fault_names_its_line(
    file: Path, old: str, new: str, expected: tuple[int, str]
) -> None:
    assert WHOLE.count(old) >= 1
    ((line, reason),) = faults(file, WHOLE.replace(old, new, 1))
    assert line == expected[0]
    assert expected[1] in reason


def test_all_faults_are_told_at_once(file: Path) -> None:
    text = WHOLE.replace("digits: 16", "digit: 16").replace("path: dest", "path: de..st")
    assert [line for line, _ in faults(file, text)] == [14, 17]


def test_files_that_are_no_pipeline(file: Path) -> None:
    assert faults(file, "- a") == [(1, "a mapping is expected at the top")]
    assert faults(file, "") == [(1, "a mapping is expected at the top")]
    ((line, _),) = faults(file, "a: [")
    assert line == 1
    file.write_bytes(b"\xff")
    with pytest.raises(PipelineError, match="not UTF-8 at byte 0"):
        load_pipeline(file)
    with pytest.raises(PipelineError, match="No such file"):
        load_pipeline(file.with_name("nowhere.yaml"))


def test_a_fault_does_not_show_a_secret(file: Path) -> None:
    text = WHOLE.replace("password_env: REGISTRY", "password: [SECRET]")
    assert all("SECRET" not in reason for _, reason in faults(file, text))
