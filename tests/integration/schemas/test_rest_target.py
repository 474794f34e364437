"""From the primary's real `_schemas` to a registry that honours IMPORT mode."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.embedded.kafka import KafkaCluster
from gateway.embedded.process import free_ports, kill_child, stop_child
from schema_dist.cli import app
from schema_dist.core.model import JSON, PROTOBUF, Reference, Schema, Version
from schema_dist.core.records import compatibility_record, schema_key
from schema_dist.errors import LogError
from schema_dist.log_reader import LogReader
from tests.rig.patience import wait_until
from tests.rig.schema_registry.history import Held, go_on, record
from tests.rig.schema_registry.site import (
    HTTP,
    SHORT_LEASE_SESSION_MS,
    Site,
    served_registry,
    version,
)

pytestmark = pytest.mark.integration

KILLS = int(os.environ.get("KEYWAY_TESTS_SCHEMA_KILLS", "4"))  # make campaign NAME=schemas: 20
KILLS_OF_LOG = 4
FIRST_ID = 5_000  # no other test has these in a log that tests share


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    with served_registry(tmp_path / "registry.log") as url:
        yield url


@pytest.fixture
def site(
    kafka: KafkaCluster, tmp_path: Path, fresh_name: Callable[[str], str], registry: str
) -> Site:
    made = Site(kafka.bootstrap_servers, tmp_path, fresh_name("rest"))
    made.b["registry"] = {"url": registry}
    return made


def get(url: str, path: str) -> Any:
    return HTTP.get(url + path).json()


def shown(url: str) -> dict[tuple[str, int], dict[str, Any]]:
    """All versions, soft-deleted ones as well, and whether they are live."""
    live = {(row["subject"], row["version"]) for row in get(url, "/schemas") or ()}
    return {
        place: {**row, "live": place in live}
        for row in get(url, "/schemas?deleted=true") or ()
        for place in [(row["subject"], row["version"])]
    }


ORDER = Schema(
    "AVRO",
    '{"type": "record", "name": "Order", "fields": [{"name": "c", "type": "Customer"}]}',
    (Reference("Customer", "acme-customer-value", Version(1)),),
)
COMMON = Schema(PROTOBUF, 'syntax = "proto3";\nmessage P { string a = 1; }\n')
USES_COMMON = Schema(
    PROTOBUF,
    'syntax = "proto3";\nimport "common.proto";\nmessage Q { P p = 1; }\n',
    (Reference("common.proto", "acme-common-value", Version(1)),),
)
POINTS = Schema(
    JSON,
    '{"type": "object", "properties": {"s": {"$ref": "shared.json"}}}',
    (Reference("shared.json", "acme-shared-value", Version(2)),),
)


def test_same_id_same_version_own_subject_and_references(site: Site, registry: str) -> None:
    versions = [
        version("acme-customer-value", 1, 7, record("Customer", "name")),
        version("acme-orders-value", 4, 8, ORDER),
        version("acme-common-value", 1, 9, COMMON),
        version("acme-q-value", 1, 10, USES_COMMON),
        version("acme-j-key", 1, 11, Schema(JSON, '{"type": "object", "title": "J"}')),
        version("acme-points-value", 1, 17, POINTS),  # before the schema that it refers to
        version("acme-shared-value", 2, 16, Schema(JSON, '{"type": "string"}')),
        version("evil-orders-value", 1, 12, record("Foreign")),
        version("acme-broken-value", 1, 13, Schema("AVRO", "{not JSON")),
        version("_internal-value", 1, 14, record("Internal")),
    ]
    site.register(versions)
    site.write([compatibility_record("acme-orders-value", "FULL"), (b"no JSON", b"{}")])
    with site.running():
        wait_until(lambda: len(shown(registry)) == 7, what="seven versions", deadline_s=120)
        found = shown(registry)
        assert found["orders.b-value", 4] == {
            "subject": "orders.b-value",
            "version": 4,
            "id": 8,
            "schema": ORDER.text,
            "references": [{"name": "Customer", "subject": "customer.b-value", "version": 1}],
            "live": True,
        }
        assert found["q.b-value", 1]["references"][0]["subject"] == "common.b-value"
        assert found["j.b-key", 1]["schemaType"] == "JSON"
        assert found["points.b-value", 1]["references"] == [
            {"name": "shared.json", "subject": "shared.b-value", "version": 2}
        ]
        wait_until(
            lambda: get(registry, "/config/orders.b-value").get("compatibilityLevel") == "FULL",
            what="the compatibility level",
            deadline_s=30,
        )
        # News: a second version, a soft delete, a hard delete, in the order of the log.
        site.register([version("acme-customer-value", 2, 15, record("Customer", "name", "town"))])
        site.register([replace(versions[4], deleted=True)])
        wait_until(
            lambda: ("j.b-key", 1) in shown(registry) and not shown(registry)["j.b-key", 1]["live"],
            what="the soft delete",
            deadline_s=30,
        )
        site.write([(schema_key(versions[4]), None)])
        wait_until(
            lambda: ("j.b-key", 1) not in shown(registry), what="the hard delete", deadline_s=30
        )
        assert shown(registry)["customer.b-value", 2]["id"] == 15
        wait_until(  # set to IMPORT for the writes
            lambda: get(registry, "/mode/customer.b-value").get("error_code") == 40409,
            what="the mode to be taken back",
            deadline_s=30,
        )
    log = site.log()
    assert "evil-orders-value version 1 (id 12): subject_fits_no_pattern" in log
    assert "broken.b-value version 1 (id 13): schema_does_not_parse" in log
    assert "the key is no JSON" in log
    assert "_internal" not in log


def test_a_collision_is_refused_before_anything_is_written(site: Site, registry: str) -> None:
    site.schemas["metrics_port"] = free_ports(1)
    local = {"schema": '"string"'}
    for subject in ("own-value", "taken.b-value"):
        assert HTTP.post(f"{registry}/subjects/{subject}/versions", json=local).json() == {"id": 1}
    site.register(
        [
            version("acme-first-value", 1, 1, record("First")),  # id 1 is "string" there
            version("acme-taken-value", 1, 5, record("Second")),  # version 1 is "string" there
            version("acme-third-value", 1, 6, record("Third")),
            version(
                "acme-fourth-value",
                1,
                7,
                replace(
                    record("Fourth"), references=(Reference("F", "acme-first-value", Version(1)),)
                ),
            ),
        ]
    )
    with site.running():
        wait_until(lambda: ("third.b-value", 1) in shown(registry), what="the third", deadline_s=60)
        site.wait_for("refused", 3)
        wait_until(lambda: "LAST-WRITE" in status(site), what="the status", deadline_s=30)
        told = metrics(site)
    found = shown(registry)
    assert set(found) == {("own-value", 1), ("taken.b-value", 1), ("third.b-value", 1)}
    assert (
        "first.b-value version 1 (id 1): id_taken: id 1 is the id of another schema" in site.log()
    )
    assert "taken.b-value version 1 (id 5): version_taken" in site.log()
    assert "fourth.b-value version 1 (id 7): reference_missing" in site.log()
    for reason, count in (("id_taken", 1), ("version_taken", 1), ("reference_missing", 1)):
        assert told[f'refused{{reason="{reason}",target="b"}}'] == count
    assert told['collisions{target="b"}'] == 2
    assert told['writes_total{kind="Register",target="b"}'] == 1
    assert (told['behind{target="b"}'], told['in_sync{target="b"}']) == (0, 1)
    summary, *rows = [line.split() for line in status(site).splitlines() if "b" in line[:12]]
    assert summary[:4] == ["b", "1", "0", "3"]
    assert [row[:4] for row in rows if row[0] == "first.b-value"] == [
        ["first.b-value", "1", "1", "id_taken"]
    ]


def killed(site: Site, times: int) -> Held:
    """SIGKILL at moments drawn from a seed, while versions come, go and are deleted; the contents
    of the source at the end. The site's next process has the usual lease again.
    """
    usual = site.schemas["lease_session_ms"]
    site.schemas["lease_session_ms"] = SHORT_LEASE_SESSION_MS
    draw = random.Random(14)
    source: Held = {}
    subjects = [f"acme-s{at}-value" for at in range(8)]
    for number in range(times):
        child = site.start()
        started = site.log().count("schemas_distributed")
        go_on(site, draw, source, subjects, first_id=FIRST_ID + number * 10)
        if number % 3:  # two of three are killed at work, one perhaps before it has the lease
            site.wait_for("schemas_distributed", started + 1)
            time.sleep(draw.uniform(0, 0.4))  # the moment of the kill
        kill_child(child)
    site.schemas["lease_session_ms"] = usual
    return source


def metrics(site: Site) -> dict[str, float]:
    """The running process's figures, without the beginning of their names."""
    text = HTTP.get(f"http://127.0.0.1:{site.schemas['metrics_port']}/metrics").text
    lines = [line.removeprefix("keyway_schemas_").rsplit(" ", 1) for line in text.splitlines()]
    return {name: float(value) for name, value in lines if not name.startswith("#")}


def status(site: Site) -> str:
    """`keyway schemas status`, as a table. Its exit code is that of refusals."""
    ended = CliRunner().invoke(app, ["status", str(site.config())], catch_exceptions=False)
    assert ended.exit_code == 1
    return ended.stdout


@pytest.mark.deep
def test_killed_at_any_moment(site: Site, registry: str) -> None:
    source = killed(site, KILLS)
    expected = {
        (subject.replace("acme-", "").replace("-value", ".b-value"), at): (
            held.id,
            not held.deleted,
        )
        for (subject, at), held in source.items()
    }
    with site.running():
        wait_until(
            lambda: (
                {place: (row["id"], row["live"]) for place, row in shown(registry).items()}
                == expected
            ),
            what="the contents of the source",
            deadline_s=60,
        )
        wait_until(lambda: _modes(registry, expected) == set(), what="no mode", deadline_s=30)


@pytest.mark.deep
def test_killed_while_it_writes_a_log(
    kafka: KafkaCluster, tmp_path: Path, fresh_name: Callable[[str], str]
) -> None:
    """The target has no registry: its `_schemas` is all."""
    site = Site(kafka.bootstrap_servers, tmp_path, fresh_name("log"))
    site.b["subject_pattern"] = f"{site.name}-{{topic}}"  # others of the session write there, too
    source = killed(site, KILLS_OF_LOG)

    async def there() -> dict[tuple[str, int], tuple[int, bool]]:
        reader = LogReader({"bootstrap.servers": site.kafka}, "_schemas")
        try:
            found = list((await reader.read()).versions())
        except LogError:
            return {}  # it is not there yet
        finally:
            reader.close()
        own = [held for held in found if held.subject.startswith(site.name)]
        return {held.place: (held.id, held.deleted) for held in own}

    expected = {
        (subject.replace("acme-", f"{site.name}-"), at): (held.id, held.deleted)
        for (subject, at), held in source.items()
    }
    assert expected
    with site.running():
        wait_until(
            lambda: asyncio.run(there()) == expected, what="the source's versions", deadline_s=60
        )


def _modes(registry: str, places: dict[tuple[str, int], Any]) -> set[str]:
    subjects = {subject for subject, _ in places} | {"_keyway-probe"}
    return {subject for subject in subjects if "mode" in get(registry, f"/mode/{subject}")}


@pytest.mark.deep
def test_a_second_process_is_refused(site: Site) -> None:
    site.register([version("acme-x-value", 1, 1, record("X"))])
    with site.running() as first:
        site.wait_for("schemas_distributed")
        second = site.start()
        assert second.wait(300) == 2
        assert "another process distributes the schemas of this primary" in site.log()
        assert first.poll() is None
        stop_child(first)
        with site.running():
            site.wait_for("schemas_distributed", 2)
