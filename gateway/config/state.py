"""The sections of keyway.yaml about where state is kept, and who shares it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, model_validator

from gateway.config.section import Millis, Section, only_one
from gateway.core.limits import DELETED_TOPICS_MS
from keyway.clusters.sections import given_secret


class StateSection(Section):
    """Window state: leases and settled records."""

    redis_url: SecretStr | None = None
    """The Redis of the node: redis://, rediss://, unix://, or redis+sentinel:// for the primary
    that Sentinels name. Without it an embedded Redis keeps its file in `directory`.
    """
    redis_url_file: Path | None = None
    """The file that holds it, in the place of `redis_url`."""
    directory: Path = Path("keyway-data")
    """The folder of the embedded Redis; relative to the working directory of the node."""
    commit_interval_ms: Millis = 5_000
    """Interval of commits to Kafka. A lost Redis brings back the records settled since the last."""
    deleted_topics_interval_ms: Millis = DELETED_TOPICS_MS
    """The pause between two looks for deleted topics. When two looks in a row miss a topic, its
    state is deleted.
    """

    @model_validator(mode="after")
    def _one_url(self) -> StateSection:
        only_one("redis_url", self.redis_url, self.redis_url_file)
        return self

    @property
    def embedded(self) -> bool:
        """The node starts a Redis of its own."""
        return self.redis_url is None and self.redis_url_file is None

    def url(self) -> str | None:
        """None: the Redis is embedded. Raises ConfigError."""
        return given_secret(self.redis_url, self.redis_url_file)


class NodesSection(Section):
    """Several nodes in front of one cluster share a Redis, and divide the virtual brokers among
    them (docs/several-nodes.md).
    """

    id: Annotated[
        str | None,
        Field(
            pattern=r"^[A-Za-z0-9._-]{1,64}$",
            json_schema_extra={"limits": "1 to 64 letters, digits or `._-`"},
        ),
    ] = None
    """The name of this node; each node has another name. Without it the node stands alone."""


class RegistryViewSection(Section):
    """A schema registry for this cluster's clients, served by the node: the `registry_view` of
    `cluster` in the clusters' YAML says where (docs/schemas.md). Off unless both are given.
    """

    clusters_file: Path | None = None
    """The YAML file of the clusters."""
    cluster: str | None = None
    """The name of this cluster in it."""

    @model_validator(mode="after")
    def _both_or_none(self) -> RegistryViewSection:
        if (self.clusters_file is None) != (self.cluster is None):
            raise ValueError("clusters_file and cluster need each other")
        return self
