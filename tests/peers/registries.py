"""The registries that the campaign schemas-peers was given, and what their own REST answers."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from tests.rig.schema_registry.site import HTTP, Site

KARAPACE = "KEYWAY_TESTS_KARAPACE"
KAFKA = "KEYWAY_TESTS_KARAPACE_KAFKA"
TOPIC = "KEYWAY_TESTS_KARAPACE_TOPIC"
IMPORTING = "KEYWAY_TESTS_IMPORT_REGISTRY"
USER = "KEYWAY_TESTS_REGISTRY_USER"
PASSWORD = "KEYWAY_PEERS_PASSWORD"
CA_FILE = "KEYWAY_TESTS_REGISTRY_CA"


def known() -> tuple[str, bytes] | None:
    """Name and password for both registries; None if they ask for none."""
    user = os.environ.get(USER)
    return (user, os.environ[PASSWORD].encode()) if user else None


def section(url: str) -> dict[str, Any]:
    """The `registry` of a cluster."""
    made: dict[str, Any] = {"url": url}
    if user := os.environ.get(USER):
        made["basic"] = {"username": user, "password_env": PASSWORD}
    if ca_file := os.environ.get(CA_FILE):
        made["ca_file"] = ca_file
    return made


@dataclass(frozen=True)
class Peer:
    """A running registry. `kafka` and `topic`: of its log; without them it is used over REST.
    `section`: its address, identity and trust in the clusters' YAML.
    """

    url: str
    kafka: str | None = None
    topic: str = "_schemas"
    section: dict[str, Any] = field(default_factory=dict)
    user: tuple[str, bytes] | None = None

    def make_target(self, site: Site) -> None:
        """Distribution writes to this registry."""
        site.b["registry"] = {"url": self.url} | self.section
        if self.kafka is not None:
            site.b["bootstrap_servers"] = self.kafka
            site.b["registry"] |= {"writes": "log", "topic": self.topic}

    def make_source(self, site: Site) -> None:
        """Distribution reads this registry: its log, or its REST where there is none."""
        if self.kafka is None:
            site.a["registry"] = {"url": self.url, "reads": "rest"} | self.section
            return
        site.a["bootstrap_servers"] = self.kafka
        site.a["registry"] = {"url": self.url, "topic": self.topic} | self.section

    def get(self, path: str) -> Any:
        return HTTP.get(self.url + path, auth=self.user).json()

    def delete(self, path: str) -> bool:
        """Whether it said yes."""
        return HTTP.request("DELETE", self.url + path, auth=self.user).is_success

    def client(self) -> SchemaRegistryClient:
        """A stock client, with the same identity and trust."""
        settings = {"url": self.url}
        if self.user is not None:
            settings["basic.auth.user.info"] = f"{self.user[0]}:{self.user[1].decode()}"
        if "ca_file" in self.section:
            settings["ssl.ca.location"] = self.section["ca_file"]
        return SchemaRegistryClient(settings)

    def register(self, subject: str, body: dict[str, Any]) -> int:
        """By the registry's own clients; its id."""
        url = f"{self.url}/subjects/{subject}/versions"
        answer = HTTP.request("POST", url, json=body, auth=self.user)
        assert answer.status_code == 200, answer.text
        return int(answer.json()["id"])

    def shown(self, subject: str) -> dict[int, tuple[int, bool]]:
        """By version: its id, and whether it is live."""
        path = f"/subjects/{subject}/versions"
        every, live = self.get(f"{path}?deleted=true"), self.get(path)
        if not isinstance(every, list):
            return {}
        found = {version: self.get(f"{path}/{version}?deleted=true") for version in every}
        return {at: (row.get("id", 0), at in live) for at, row in found.items()}


def peer(name: str) -> Peer:
    """`karapace` or `import`; skips the test if it was not given."""
    url = os.environ.get(KARAPACE if name == "karapace" else IMPORTING)
    if not url:
        pytest.skip(f"needs a running registry (make campaign NAME=schemas-peers): {name}")
    if name == "karapace":
        return Peer(url, os.environ[KAFKA], os.environ[TOPIC], section(url), known())
    return Peer(url, section=section(url), user=known())
