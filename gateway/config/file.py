"""keyway.yaml: parsed once into frozen, validated objects. Unknown fields are errors that name the
field.

Every option has a default, so that `keyway serve --upstream host:9092` alone works. Units are in
the names. The text below an option is its description in docs/configuration.md
(gateway/admin/config_reference.py). A section has its own file.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError, model_validator

from gateway.config.admin import AdminSection
from gateway.config.client_limits import LimitSection, no_name_twice
from gateway.config.groups import GroupSection
from gateway.config.listen import ListenSection
from gateway.config.repartition import RepartitionSection
from gateway.config.section import Section
from gateway.config.state import NodesSection, RegistryViewSection, StateSection
from gateway.config.upstream import UpstreamSection
from gateway.core.limits import LIMIT_RULES_MAX
from keyway.clusters.yaml_file import ConfigError as ConfigError
from keyway.clusters.yaml_file import first_fault, read_mapping


class Config(Section):
    """The whole of keyway.yaml."""

    upstream: UpstreamSection = UpstreamSection()
    """Addresses, identity and trust of the Kafka behind the gateway."""
    listen: ListenSection = ListenSection()
    """The ports for clients."""
    admin: AdminSection = AdminSection()
    """REST, metrics and health."""
    state: StateSection = StateSection()
    """Leases and settled records."""
    nodes: NodesSection = NodesSection()
    """Several nodes in front of one cluster."""
    registry_view: RegistryViewSection = RegistryViewSection()
    """A schema registry for this cluster's clients."""
    repartition: RepartitionSection = RepartitionSection()
    """How a topic gets more partitions."""
    limits: Annotated[
        tuple[LimitSection, ...], Field(max_length=LIMIT_RULES_MAX), AfterValidator(no_name_twice)
    ] = ()
    """What clients may take: the first entry that matches a client. Without entries: no limits."""
    groups: tuple[GroupSection, ...] = ()
    """Policies of Key-Shared groups. A group that none matches gets the defaults."""

    @model_validator(mode="after")
    def _one_redis(self) -> Config:
        if self.nodes.id is not None and self.state.embedded:
            raise ValueError(
                "nodes.id: several nodes need one state.redis_url; an embedded Redis belongs to"
                " one node"
            )
        return self

    @model_validator(mode="after")
    def _identities_at_upstream(self) -> Config:
        for listener in self.listen.all():
            if listener.authentication is not None and self.upstream.sasl is None:
                raise ValueError(
                    f"listen: the authentication of {listener.name!r} needs upstream.sasl: its"
                    " clients get users of upstream"
                )
        return self

    def group(self, name: str) -> GroupSection:
        for section in self.groups:
            if fnmatch.fnmatchcase(name, section.match):
                return section
        return GroupSection()


def load(path: Path | None, *, upstream: str | None = None) -> Config:
    """Reads `path` (none: all defaults); `upstream` replaces upstream.bootstrap_servers. Raises
    ConfigError.
    """
    raw = {} if path is None else read_mapping(path)
    if upstream is not None:
        section = raw.setdefault("upstream", {})
        if isinstance(section, dict):
            section["bootstrap_servers"] = upstream
    try:
        return Config.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(f"{path or 'options'}: {first_fault(error)}") from error


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """The place that a configuration was read from, to be read again."""

    path: Path | None = None
    upstream: str | None = None  # of the command line; wins over the file
    derived: Callable[[Config], Config] | None = None  # of one of several workers

    def read(self) -> Config:
        """Raises ConfigError."""
        config = load(self.path, upstream=self.upstream)
        return config if self.derived is None else self.derived(config)
