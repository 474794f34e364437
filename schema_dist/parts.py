"""Readers, writers and names, built from the clusters' YAML."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from keyway.clusters.config import Cluster, ClustersConfig, ConfigError, Registry
from keyway.clusters.core.internal import is_internal
from keyway.clusters.core.names import compile_pattern
from keyway.clusters.core.subjects import (
    RecordNames,
    SubjectTranslation,
    pair_subjects,
    split_subject,
)
from schema_dist.confirming import Confirming
from schema_dist.core.contents import Contents
from schema_dist.core.desired import Follows
from schema_dist.lease import Lease
from schema_dist.log_reader import LogReader
from schema_dist.log_writer import LogTarget
from schema_dist.rest_client import RestClient, nothing_to_ask
from schema_dist.rest_reader import RestReader
from schema_dist.rest_writer import RestTarget
from schema_dist.state_topic import StateTopic
from schema_dist.target_sync import Allowed, TargetRegistry
from schema_dist.transport import Connections

_DEFAULT_TOPIC = "_schemas"


def log_topic(cluster: Cluster) -> str:
    """The topic of a cluster's registry."""
    return _DEFAULT_TOPIC if cluster.registry is None else cluster.registry.topic


class Source(Protocol):
    """A registry that is read again and again."""

    async def read(self) -> Contents: ...


@dataclass(frozen=True, slots=True)
class TargetParts:
    """Everything that distribution to one cluster needs."""

    name: str
    target: TargetRegistry
    state: StateTopic
    names: SubjectTranslation  # the source's subjects to the target's
    follows: Follows


def primary_of(config: ClustersConfig) -> Cluster:
    """Raises ConfigError if no primary is named."""
    if config.schemas.primary is None:
        raise ConfigError("schemas.primary is missing: the cluster whose schemas the others follow")
    return config.cluster(config.schemas.primary)


def targets_of(config: ClustersConfig) -> list[Cluster]:
    """All clusters but the primary."""
    primary = primary_of(config)
    return [cluster for cluster in config.clusters if cluster.name != primary.name]


def names_between(config: ClustersConfig, source: Cluster, target: Cluster) -> SubjectTranslation:
    """Raises PatternError for a pair that could make one subject of two."""
    return pair_subjects(
        compile_pattern(source.subject_pattern, source.pattern_values),
        compile_pattern(target.subject_pattern, target.pattern_values),
        RecordNames(config.schemas.record_names),
    )


def followed(config: ClustersConfig, source: Cluster) -> Follows:
    """The distributed subjects of the source, by their logical names; never internal ones.
    A subject that fits no pattern counts as followed, so that it is reported.
    """
    logical = source.subject_names(RecordNames(config.schemas.record_names))

    def follows(subject: str) -> bool:
        if is_internal(split_subject(subject).name):
            return False
        name = logical.there(subject)
        return not isinstance(name, str) or config.subjects.takes(name)

    return follows


@asynccontextmanager
async def rest_client(
    registry: Registry, before_write: Callable[[], Awaitable[None]] = nothing_to_ask
) -> AsyncIterator[RestClient]:
    """Raises ConfigError if its password is not in the environment."""
    basic = registry.basic
    user = None if basic is None else (basic.username, basic.secret())
    ca_file = None if registry.ca_file is None else str(registry.ca_file)
    async with Connections(user=user, ca_file=ca_file) as http:
        yield RestClient(registry.url, http, before_write)


@asynccontextmanager
async def lookups(config: ClustersConfig, cluster: Cluster) -> AsyncIterator[RestClient]:
    """The registry that knows the schemas of the cluster's records: its own, or else its view.
    Raises ConfigError.
    """
    if cluster.registry is not None:
        async with rest_client(cluster.registry) as client:
            yield client
        return
    view = cluster.registry_view
    if view is None:
        raise ConfigError(f"cluster {cluster.name} has neither a registry nor a registry_view")
    primary = config.schemas.primary
    asked = None if primary is None else config.cluster(primary).registry
    basic = None if asked is None else asked.basic
    user = None if basic is None else (basic.username, basic.secret())
    scheme = "http" if view.cert_file is None else "https"
    ca_file = None if view.cert_file is None else str(view.cert_file)
    async with Connections(user=user, ca_file=ca_file) as http:
        yield RestClient(f"{scheme}://{view.host}:{view.port}", http)


@asynccontextmanager
async def source_of(cluster: Cluster) -> AsyncIterator[Source]:
    """The reader of a cluster's registry."""
    registry = cluster.registry
    if registry is not None and registry.reads == "rest":
        async with rest_client(registry) as client:
            yield RestReader(client)
        return
    reader = LogReader(cluster.client_settings(), log_topic(cluster))
    try:
        yield reader
    finally:
        reader.close()


@asynccontextmanager
async def confirming_of(primary: Cluster) -> AsyncIterator[Confirming]:
    """Asks the primary's registry by name, if it has an address."""
    if primary.registry is None:
        yield Confirming(None)
        return
    async with rest_client(primary.registry) as client:
        yield Confirming(client.presence)


def allowed(config: ClustersConfig, confirming: Confirming) -> Allowed:
    """What the configuration allows to be removed or set."""
    section = config.schemas
    return Allowed(confirming, section.hard_deletes, section.removals_at_once_max)


@asynccontextmanager
async def reader_of(config: ClustersConfig, cluster: Cluster) -> AsyncIterator[Source]:
    """A reader of any cluster's registry. A target that is written over REST is also read over
    REST.
    """
    registry = cluster.registry
    if (
        registry is not None
        and registry.writes == "rest"
        and cluster.name != config.schemas.primary
    ):
        cluster = cluster.model_copy(
            update={"registry": registry.model_copy(update={"reads": "rest"})}
        )
    async with source_of(cluster) as reader:
        yield reader


@asynccontextmanager
async def target_of(
    config: ClustersConfig, cluster: Cluster, lease: Lease | None = None
) -> AsyncIterator[TargetParts]:
    """The parts of one target. `lease`: that of the process that distributes; it shuts out a former
    holder. Without a lease nothing is distributed, and nobody is shut out.
    """
    primary, registry = primary_of(config), cluster.registry
    async with AsyncExitStack() as stack:
        client = (
            None
            if registry is None
            else await stack.enter_async_context(
                rest_client(registry, nothing_to_ask if lease is None else lease.still_ours)
            )
        )
        target: TargetRegistry
        if registry is not None and client is not None and registry.writes == "rest":
            target = RestTarget(client)
        else:
            log = LogTarget(cluster.client_settings(), log_topic(cluster), client)
            stack.callback(log.close)
            target = log
        state = StateTopic(
            cluster.client_settings(),
            config.schemas.state_topic,
            None if lease is None else lease.still_ours,
        )
        yield TargetParts(
            name=cluster.name,
            target=target,
            state=state,
            names=names_between(config, primary, cluster),
            follows=followed(config, primary),
        )
