"""`keyway pipeline check` on real records behind a gateway: table, JSON, lines, exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gateway.embedded.kafka import KafkaCluster
from keyway.clusters.config import Cluster
from spark.pipelines.cli import app
from spark.pipelines.sample import SampleError, newest_records
from tests.rig.kafka import produce

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore")]

ROOT = Path(__file__).resolve().parents[2]
PIPELINE = """\
name: p
quarantine: sick
source: {bootstrap_servers: "%s", topic: "%s"}
target: {topic: masked}
steps:
  - mask:
      paths: [tail]
      hmac: {key_env: MASK_KEY, digits: 16}
  - rename: {path: to, to: dest}
  - filter: {keep: [{path: n, at_least: 2}]}
  - route: {rules: [{path: n, equals: 2, topic: twos}]}
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def made(tmp_path: Path, front: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    monkeypatch.setenv("MASK_KEY", "sixteen byte key")

    def make(topic: str, text: str = PIPELINE) -> Path:
        file = tmp_path / "p.yaml"
        file.write_text(text % (front, topic))
        return file

    return make


@pytest.fixture
def filled(kafka: KafkaCluster, topic: Callable[..., str]) -> str:
    name = topic(partitions=2)
    for number in range(4):
        value = b'{"tail": "N%d", "to": "IAH", "n": %d.0}' % (number, number)
        produce(kafka.bootstrap_servers, name, [(b"k", value)], partition=number % 2)
    return name


def test_json_shows_before_and_after(made: Callable[..., Path], filled: str) -> None:
    result = run("check", str(made(filled)), "-n", "4", "-o", "json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert (answer["records"], answer["filtered"], answer["quarantined"]) == (4, 2, 0)
    shown = {(row["partition"], row["offset"]): row for row in answer["shown"]}
    assert list(shown) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [row["topic"] for row in shown.values()] == [None, "twos", None, "masked"]
    three = shown[1, 1]
    assert three["before"] == {"key": "k", "value": '{"tail": "N3", "to": "IAH", "n": 3.0}'}
    (digits,) = [change["after"] for change in three["changes"] if change["field"] == "value.tail"]
    digits = json.loads(digits)
    assert len(digits) == 16
    assert three["after"]["value"] == f'{{"tail": "{digits}", "dest": "IAH", "n": 3.0}}'
    assert three["changes"][1:] == [
        {"field": "value.to", "before": '"IAH"', "after": None},
        {"field": "value.dest", "before": None, "after": '"IAH"'},
    ]


def test_table(made: Callable[..., Path], filled: str) -> None:
    result = run("check", str(made(filled)), "-n", "2")
    assert result.exit_code == 0, result.output
    header, *rows = result.stdout.splitlines()
    assert header.split() == ["PARTITION", "OFFSET", "TO", "FIELD", "BEFORE", "AFTER"]
    assert rows[0].split()[:5] == ["0", "1", "twos", "value.tail", '"N2"']
    assert rows[3].split()[:5] == ["1", "1", "masked", "value.tail", '"N3"']
    assert rows[-1].endswith("p.yaml: 4 steps, 4 records tried, 0 of them to quarantine")


def test_a_path_that_no_record_has_names_its_line(made: Callable[..., Path], filled: str) -> None:
    wrong = PIPELINE.replace("[tail]", "[tailnum]").replace(
        "path: n, at_least", "path: nn, at_least"
    )
    result = run("check", str(made(filled, wrong)))
    assert result.exit_code == 1
    assert "p.yaml:7: no field tailnum in the value of any of 4 records" in result.stderr
    assert "p.yaml:10: no field nn" in result.stderr
    rare = wrong.replace("digits: 16}", "digits: 16}\n      missing: ignore").replace(
        "at_least: 2", "at_least: 2, missing: ignore"
    )
    assert run("check", str(made(filled, rare))).exit_code == 0


def test_quarantine_is_shown_with_line_and_reason(
    made: Callable[..., Path], filled: str, kafka: KafkaCluster
) -> None:
    produce(kafka.bootstrap_servers, filled, [(b"k", b"\xffno json")], partition=0)
    file = made(filled)
    result = run("check", str(file), "-n", "1")
    assert result.exit_code == 0
    assert f"{file}:6: not UTF-8 at byte 0" in result.stdout
    answer = json.loads(run("check", str(file), "-o", "json").stdout)
    (sick,) = [row for row in answer["shown"] if row["problem"]]
    assert sick["topic"] == "sick"
    assert sick["problem"] == {"line": 6, "step": 1, "reason": "not UTF-8 at byte 0"}
    assert sick["before"]["value"] == {"base64": "/25vIGpzb24="}
    numbers = PIPELINE.replace("at_least: 2", 'matches: "2"')
    assert run("check", str(made(filled, numbers))).exit_code == 1, "all in quarantine"


def test_a_wrong_file_is_told_without_kafka(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE.replace("rename:", "renam:") % ("127.0.0.1:1", "t"))
    result = run("check", str(file))
    assert result.exit_code == 2
    assert "p.yaml:9: steps.2.renam: unknown field" in result.stderr
    assert "MASK_KEY is not set" not in result.stderr, "only of a file in form"


def test_kafka_that_is_away_and_topics_that_are_not_there(
    made: Callable[..., Path], fresh_name: Callable[[str], str]
) -> None:
    result = run("check", str(made(fresh_name("no-topic"))))
    assert result.exit_code == 3
    assert "no-topic" in result.stderr
    assert run("check", str(made("t")), "-n", "0").exit_code == 0, "the file alone"


def test_an_empty_topic_is_no_fault(made: Callable[..., Path], topic: Callable[..., str]) -> None:
    result = run("check", str(made(topic())))
    assert result.exit_code == 0
    assert "0 records tried" in result.stdout


def test_it_runs_as_a_module(made: Callable[..., Path], filled: str) -> None:
    command = [
        sys.executable,
        "-m",
        "spark.pipelines.cli",
        "check",
        str(made(filled)),
        "-o",
        "json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["records"] == 4


def test_a_sample_is_the_newest_of_every_partition(
    kafka: KafkaCluster, topic: Callable[..., str]
) -> None:
    name = topic(partitions=3)
    for partition, count in enumerate((50, 3, 0)):
        records: list[Any] = [(None, b"%d" % at) for at in range(count)]
        produce(kafka.bootstrap_servers, name, records, partition=partition)
    cluster = Cluster(name="c", bootstrap_servers=kafka.bootstrap_servers)
    sample = newest_records(cluster, name, 5)
    assert [(message.partition, message.offset) for message in sample] == [
        *((0, 49), (1, 2), (0, 48), (1, 1), (0, 47))
    ]
    assert len(newest_records(cluster, name, 100)) == 53
    assert newest_records(cluster, name, 0) == []
    with pytest.raises(SampleError, match="nowhere"):
        newest_records(cluster, "nowhere", 5)
