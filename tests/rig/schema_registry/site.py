"""A place for distribution in tests: a primary's `_schemas` on a real Kafka, registries on
loopback, and the clusters' YAML between them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from gateway.embedded.process import free_ports, start_child, stop_child
from schema_dist.core.model import Schema, SchemaId, SchemaVersion, Version
from schema_dist.core.records import schema_record
from tests.rig.kafka import create_topic, produce
from tests.rig.patience import wait_until

ROOT = Path(__file__).resolve().parents[3]
LEASE_SESSION_MS = 10_000  # as by default: a slow machine loses none
# Of processes that a test kills, so that the next one need not wait; the test broker allows less
# than Kafka's 6 s.
SHORT_LEASE_SESSION_MS = 1_000


@contextmanager
def served_registry(log: Path, *more: str) -> Iterator[str]:
    """The rig's registry as a process; its URL. `more`: its options."""
    port = free_ports(1)
    command = [sys.executable, "-m", "tests.rig.schema_registry", str(port), *more]
    child = start_child(command, log=log, cwd=ROOT)
    url = f"{'https' if '--cert' in more else 'http'}://127.0.0.1:{port}"
    try:
        wait_until(lambda: answers(url), what="the rig's registry", deadline_s=30)
        yield url
    finally:
        stop_child(child)


# One for all: making a client loads the certificates of the system.
HTTP = httpx.Client(trust_env=False, verify=False, timeout=120)


def answers(url: str) -> bool:
    """Also if it asks for a password."""
    try:
        return HTTP.get(f"{url}/subjects").status_code in (200, 401)
    except httpx.HTTPError:
        return False


def version(
    subject: str, number: int, schema_id: int, schema: Schema, *, deleted: bool = False
) -> SchemaVersion:
    return SchemaVersion(
        subject=subject,
        version=Version(number),
        id=SchemaId(schema_id),
        schema=schema,
        deleted=deleted,
    )


class Site:
    """Two clusters of one Kafka: `a` is the primary, whose log is `topic_a`."""

    def __init__(self, kafka: str, folder: Path, name: str) -> None:
        self.kafka = kafka
        self.folder = folder
        self.name = name
        self.topic_a = f"_schemas-a-{name}"
        create_topic(kafka, self.topic_a, config={"cleanup.policy": "compact"})
        self.a: dict[str, Any] = self.cluster("a", "acme-{topic}")
        self.a["registry"] = {"url": "http://127.0.0.1:1", "topic": self.topic_a}
        self.b: dict[str, Any] = self.cluster("b", "{topic}.b")
        self.schemas: dict[str, Any] = {
            "primary": "a",
            "state_topic": f"_state-{name}",
            "poll_interval_ms": 100,
            "hard_deletes": True,
            "lease_session_ms": LEASE_SESSION_MS,
        }
        self.top: dict[str, Any] = {}

    def cluster(self, name: str, pattern: str) -> dict[str, Any]:
        return {"name": name, "bootstrap_servers": self.kafka, "subject_pattern": pattern}

    def config(self) -> Path:
        """Writes the YAML."""
        path = self.folder / "clusters.yaml"
        whole = {
            "clusters": [self.a, self.b],
            "tree": {"level": 1, "children": ["a", "b"]},
            "schemas": self.schemas,
            **self.top,
        }
        path.write_text(yaml.safe_dump(whole))
        return path

    def register(self, versions: Iterable[SchemaVersion]) -> None:
        """As the primary's registry writes them."""
        produce(
            self.kafka,
            self.topic_a,
            [schema_record(stored, deleted=stored.deleted) for stored in versions],
            partition=0,
        )

    def write(self, records: Iterable[tuple[bytes | None, bytes | None]], topic: str = "") -> None:
        produce(self.kafka, topic or self.topic_a, records, partition=0)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """`keyway schemas run`, or another command, as a process."""
        name, *more = words or ("run",)
        command = [sys.executable, "-m", "schema_dist", name, str(self.config()), *more]
        return start_child(command, log=self.folder / f"{name}.log", cwd=ROOT)

    @contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        child = self.start(*words)
        try:
            yield child
        finally:
            stop_child(child)

    def log(self) -> str:
        path = self.folder / "run.log"
        return path.read_text() if path.exists() else ""

    def wait_for(self, words: str, times: int = 1) -> None:
        """Until the process has logged `words` so often."""
        wait_until(
            lambda: self.log().count(words) >= times, what=f"{words!r} in its log", deadline_s=60
        )
