"""A log with damaged records: named, counted, and nothing else stops."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import free_ports
from schema_dist.cli import app
from schema_dist.core.model import Schema
from schema_dist.core.records import schema_record
from tests.rig.kafka import create_topic
from tests.rig.patience import wait_until
from tests.rig.schema_registry.site import HTTP, Site, served_registry, version

pytestmark = pytest.mark.integration


def metric(port: int, name: str) -> float:
    """A figure of the running process; -1 while there is none."""
    try:
        text = HTTP.get(f"http://127.0.0.1:{port}/metrics").text
    except httpx.HTTPError:
        return -1
    return next(
        (float(line.split()[-1]) for line in text.splitlines() if line.startswith(name)), -1
    )


def has(url: str, subject: str) -> bool:
    return HTTP.get(f"{url}/subjects/{subject}/versions/1").status_code == 200


@pytest.mark.parametrize(
    ("partitions", "fault"),
    [(0, "there is no topic {topic} at "), (3, "topic {topic} at {kafka} has 3 partitions, not 1")],
)
def test_a_topic_that_cannot_be_a_log_is_named(
    kafka: KafkaCluster,
    tmp_path: Path,
    fresh_name: Callable[[str], str],
    partitions: int,
    fault: str,
) -> None:
    site = Site(kafka.bootstrap_servers, tmp_path, fresh_name("nolog"))
    topic = fresh_name("_schemas")
    if partitions:
        create_topic(kafka.bootstrap_servers, topic, partitions=partitions)
    site.a["registry"]["topic"] = topic
    ended = CliRunner().invoke(app, ["check", str(site.config())], catch_exceptions=False)
    assert (ended.exit_code, ended.stdout) == (3, "")
    assert fault.format(topic=topic, kafka=kafka.bootstrap_servers) in ended.stderr


def test_truncated_and_foreign_records_are_skipped_named_and_counted(
    kafka: KafkaCluster, tmp_path: Path, fresh_name: Callable[[str], str]
) -> None:
    site = Site(kafka.bootstrap_servers, tmp_path, fresh_name("damaged"))
    first, second, third = (
        version(
            f"acme-s{at}-value",
            1,
            at,
            Schema("AVRO", f'{{"type":"fixed","name":"F{at}","size":1}}'),
        )
        for at in (1, 2, 3)
    )
    key, value = schema_record(version("acme-cut-value", 1, 9, first.schema), deleted=False)
    port = free_ports(1)
    site.schemas["metrics_port"] = port
    with served_registry(tmp_path / "registry.log") as url:
        site.b["registry"] = {"url": url}
        site.register([first])
        site.write(
            [
                (key, value[:40]),
                (key[:20], value),
                (b"\x00\x00\x00\x00\x07\x10order-17", b"\x00\x00\x00\x00\x08\xff\xfe"),
                (key, b"[1, 2]"),
                (key, b'{"subject":"acme-cut-value","version":1,"schema":"\\"int\\""}'),
            ]
        )
        site.register([second])
        with site.running():
            wait_until(lambda: has(url, "s2.b-value"), what="the good ones", deadline_s=60)
            assert has(url, "s1.b-value")
            assert metric(port, "keyway_schemas_bad_records") == 5
            site.write([(key, value[:-1])])  # later ones are as well
            site.register([third])
            wait_until(lambda: has(url, "s3.b-value"), what="the next", deadline_s=30)
            assert metric(port, "keyway_schemas_bad_records") == 6
        assert not has(url, "cut.b-value")
    log = site.log()
    assert log.count("source_records_skipped") == 2
    for why in (
        "the key is no JSON",
        "the value is no JSON",
        "the value is no JSON object",
        "id is missing",
    ):
        assert why in log
