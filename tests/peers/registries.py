"""The registries that `make schemas-peers` was given, and their answers by their own REST."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pytest

from tests.rig.schema_registry.site import HTTP, Site

KARAPACE = "KEYWAY_TESTS_KARAPACE"
KAFKA = "KEYWAY_TESTS_KARAPACE_KAFKA"
TOPIC = "KEYWAY_TESTS_KARAPACE_TOPIC"
IMPORTING = "KEYWAY_TESTS_IMPORT_REGISTRY"


@dataclass(frozen=True)
class Peer:
    """A running registry. `kafka` and `topic`: of its log; without them it is used over REST."""

    url: str
    kafka: str | None = None
    topic: str = "_schemas"

    def make_target(self, site: Site) -> None:
        """Distribution writes to this registry."""
        site.b["registry"] = {"url": self.url}
        if self.kafka is not None:
            site.b["bootstrap_servers"] = self.kafka
            site.b["registry"] |= {"writes": "log", "topic": self.topic}

    def make_source(self, site: Site) -> None:
        """Distribution reads this registry: its log, or its REST where there is none."""
        if self.kafka is None:
            site.a["registry"] = {"url": self.url, "reads": "rest"}
            return
        site.a["bootstrap_servers"] = self.kafka
        site.a["registry"] = {"url": self.url, "topic": self.topic}
        site.schemas["lease_session_ms"] = 10_000  # Kafka's own minimum is 6 s

    def get(self, path: str) -> Any:
        return HTTP.get(self.url + path).json()

    def register(self, subject: str, body: dict[str, Any]) -> int:
        """By the registry's own clients; its id."""
        answer = HTTP.post(f"{self.url}/subjects/{subject}/versions", json=body)
        assert answer.status_code == 200, answer.text
        return int(answer.json()["id"])

    def shown(self, subject: str) -> dict[int, tuple[int, bool]]:
        """By version: its id, and whether it is live."""
        path = f"/subjects/{subject}/versions"
        every, live = self.get(f"{path}?deleted=true"), self.get(path)
        if not isinstance(every, list):
            return {}
        found = {it: self.get(f"{path}/{it}?deleted=true") for it in every}
        return {at: (it.get("id", 0), at in live) for at, it in found.items()}


def peer(name: str) -> Peer:
    """`karapace` or `import`; skips the test if it was not given."""
    url = os.environ.get(KARAPACE if name == "karapace" else IMPORTING)
    if not url:
        pytest.skip(f"needs a running registry (make schemas-peers): {name}")
    if name == "karapace":
        return Peer(url, os.environ[KAFKA], os.environ[TOPIC])
    return Peer(url)
