"""The one YAML file that describes the clusters, their tree, and the topics, groups and subjects
that follow: parsed once into frozen, validated objects. An unknown field is an error with its name.

Messages, offsets and schemas are distributed by three services that read the same file; each has a
section of its own, with defaults. Names in `topics`, `groups` and `subjects` are the logical ones,
without the clusters' name patterns. Units are in the names. The text below an option is its
description in docs/configuration.md (gateway/admin/config_reference.py).
"""

# Long: the sections of one file, a class each.
from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

from keyway.clusters.addresses import BootstrapServers
from keyway.clusters.core.internal import DISTRIBUTION_TOPIC, SCHEMAS_TOPIC, TOPICS_EXCLUDED
from keyway.clusters.core.limits import CLUSTERS_MAX, NAME_CHARS_MAX, SECRETS_MAX
from keyway.clusters.core.names import NAME_CHARS_MAX as GROUP_CHARS_MAX
from keyway.clusters.core.names import Translation, compile_pattern, pair
from keyway.clusters.core.subjects import RecordNames, SubjectTranslation, pair_subjects
from keyway.clusters.core.tree import (
    ClusterName,
    Inner,
    Leaf,
    Level,
    Node,
    Tree,
    TreeError,
    build_tree,
)
from keyway.clusters.core.trust import Seals
from keyway.clusters.registries import Registry as Registry
from keyway.clusters.registries import RegistryView as RegistryView
from keyway.clusters.sections import (
    Millis,
    Name,
    Password,
    Port,
    Section,
    from_environment,
    from_file,
)
from keyway.clusters.yaml_file import ConfigError as ConfigError
from keyway.clusters.yaml_file import first_fault, read_mapping

# With `_` in front, so that no state is ever copied to another cluster.
StateTopic = Annotated[str, Field(pattern=r"^_[A-Za-z0-9._-]+$", max_length=NAME_CHARS_MAX)]
Globs = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(max_length=1_000)]

# The two kinds of children in the tree; pydantic puts the kind into the place of an error.
_LEAF, _NODE = "<cluster>", "<node>"


class Sasl(Password):
    """How Keyway's services log in to the cluster."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    """The SASL mechanism."""


class Tls(Section):
    """TLS towards the cluster. All files are PEM."""

    ca_file: Path | None = None
    """Trusted certificates. Without it the system's trust store is used."""
    cert_file: Path | None = None
    """A certificate of one's own, for mutual TLS."""
    key_file: Path | None = None
    """The key of `cert_file`."""
    verify_hostname: bool = True
    """False only where the certificate of a broker names another host."""

    @model_validator(mode="after")
    def _key_and_certificate(self) -> Tls:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file need each other")
        return self


class Cluster(Section):
    """One Kafka cluster, reached through its gateway. The patterns translate logical names into
    those used there (keyway/clusters/core/names.py).
    """

    name: Name
    """The name of the cluster in this file."""
    bootstrap_servers: BootstrapServers = Field(min_length=1)
    """Addresses of its gateway, host:port, comma-separated."""
    cluster_id: str | None = None
    """The id that its brokers must have: with another one no service starts. Without it: any."""
    sasl: Sasl | None = None
    """The identity of Keyway's services at the cluster. Without it: none."""
    tls: Tls | None = None
    """TLS towards the cluster. Without it: plain TCP."""
    registry: Registry | None = None
    """Its schema registry. Without it the cluster gets no schemas."""
    registry_view: RegistryView | None = None
    """A registry that Keyway serves to its clients."""
    topic_pattern: str = "{topic}"
    """The name of a topic here."""
    group_pattern: str = "{group.id}"
    """The id of a group here."""
    subject_pattern: str = "{topic}"
    """The topic part of a subject here."""
    pattern_values: dict[str, str] = Field(default={})
    """Values of the other fields of the patterns, such as a tenant."""

    @model_validator(mode="after")
    def _names_that_can_be_translated(self) -> Cluster:
        self.topic_names()
        self.group_names()
        self.subject_names(RecordNames.REFUSE)
        return self

    def topic_names(self) -> Translation:
        """From topic names here (source) to logical ones (target)."""
        here = compile_pattern(self.topic_pattern, self.pattern_values)
        return pair(here, compile_pattern("{topic}"))

    def group_names(self) -> Translation:
        """From group ids here (source) to logical ones (target)."""
        here = compile_pattern(self.group_pattern, self.pattern_values, main="group.id")
        logical = compile_pattern("{group.id}", main="group.id")
        return pair(here, logical, chars_max=GROUP_CHARS_MAX)

    def subject_names(self, record_names: RecordNames) -> SubjectTranslation:
        """From subjects here (source) to logical ones (target)."""
        here = compile_pattern(self.subject_pattern, self.pattern_values)
        return pair_subjects(here, compile_pattern("{topic}"), record_names)

    def client_settings(self) -> dict[str, str]:
        """For librdkafka (confluent-kafka): address, identity, trust. Raises ConfigError."""
        encrypted, known = self.tls is not None, self.sasl is not None
        settings = {"bootstrap.servers": self.bootstrap_servers}
        settings["security.protocol"] = ("SASL_" if known else "") + (
            "SSL" if encrypted else "PLAINTEXT"
        )
        if self.sasl is not None:
            settings["sasl.mechanism"] = self.sasl.mechanism
            settings["sasl.username"] = self.sasl.username
            settings["sasl.password"] = self.sasl.secret()
        if self.tls is not None:
            files = {
                "ssl.ca.location": self.tls.ca_file,
                "ssl.certificate.location": self.tls.cert_file,
                "ssl.key.location": self.tls.key_file,
            }
            settings |= {name: str(path) for name, path in files.items() if path is not None}
            if not self.tls.verify_hostname:
                settings["ssl.endpoint.identification.algorithm"] = "none"
        return settings


class TreeNode(Section):
    """A node of the tree joins two subtrees."""

    level: int | None = Field(default=None, json_schema_extra={"unit": "level", "required": True})
    """The level at which the two exchange records. Levels sink from the root to the leaves."""
    children: tuple[
        Annotated[
            Annotated[str, Tag(_LEAF)] | Annotated[TreeNode, Tag(_NODE)],
            Discriminator(lambda child: _LEAF if isinstance(child, str) else _NODE),
        ],
        ...,
    ]
    """Two subtrees: each the name of a cluster, or a node."""
    targets: tuple[str, ...] = ()
    """Clusters below this node that take records from its sibling, the first that answers. Without
    it: all of them, in the order of the file.
    """

    def node(self) -> Inner:
        children: list[Node] = [
            Leaf(ClusterName(child)) if isinstance(child, str) else child.node()
            for child in self.children
        ]
        targets = tuple(ClusterName(target) for target in self.targets)
        level = None if self.level is None else Level(self.level)
        return Inner(level, tuple(children), targets)


class LinkTargets(Section):
    """Another order of targets for the distributor of one cluster at one level."""

    cluster: str
    """The cluster whose records the link copies."""
    level: int = Field(json_schema_extra={"unit": "level"})
    """The level of the link."""
    targets: Annotated[tuple[str, ...], Field(min_length=1)]
    """Clusters that take the records, the first that answers."""


class Selection(Section):
    """Names by globs: those that match one of `include` and none of `exclude`."""

    include: Globs = ("*",)
    """Globs (`*`, `?`, `[seq]`) of names that are taken."""
    exclude: Globs = ()
    """Globs of names that are not taken all the same."""

    def takes(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, glob) for glob in self.include) and not any(
            fnmatch.fnmatchcase(name, glob) for glob in self.exclude
        )


class TopicSelection(Selection):
    """Topics that match one of `include` and none of `exclude`. Names that begin with `_` never
    follow.
    """

    exclude: Globs = TOPICS_EXCLUDED
    """Globs of topics that are not taken all the same. Without it: those that Kafka Streams,
    Connect, MirrorMaker 2 and some other tools make for themselves on each cluster.
    """


class GroupSelection(Selection):
    """Groups that match one of `include` and none of `exclude`. Keyway's own and Spark's never
    follow.
    """

    include: Globs
    """Globs (`*`, `?`, `[seq]`) of groups that are taken."""


class MessagesSection(Section):
    """How records are copied (spark/). Each link, one source cluster and level, is one query."""

    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once"
    """With Kafka's transactions, or without them: then a crash repeats records."""
    trigger_interval_ms: Annotated[int, Field(ge=0)] = 1_000
    """The pause between two batches; 0: none."""
    records_per_batch_max: Annotated[int, Field(ge=1)] = 400_000
    """Limit of one batch of a link."""
    bytes_per_batch_max: Annotated[
        int, Field(ge=1_000_000, json_schema_extra={"unit": "bytes"})
    ] = 268_435_456
    """Limit of one batch of a link. A batch that would exceed it is cut."""
    rate_records_per_s: Annotated[int, Field(ge=1)] | None = None
    """Limit of one link. Without it: as fast as it can."""
    create_topics: bool = True
    """False: a topic that the target lacks stops with that reason."""
    topic_configs: dict[str, str] = Field(default={})
    """Settings of topics that are created, over those copied from the source."""
    copied_configs: tuple[str, ...] = (
        "cleanup.policy",
        "retention.ms",
        "retention.bytes",
        "max.message.bytes",
        "min.compaction.lag.ms",
        "delete.retention.ms",
    )
    """Settings that a created topic takes from the source."""
    on_gap: Literal["stop", "continue"] = "stop"
    """When retention deleted records before they were read."""
    on_recreated: Literal["stop", "continue"] = "stop"
    """When the topic of the source was deleted and created again (it has another topic id)."""
    on_refused: Literal["stop", "skip", "dead_letter"] = "stop"
    """When the target refuses a record, such as one that is too large: its topic stops there, or
    goes on without the record, which is counted, or with the record in `dead_letter_topic`.
    """
    dead_letter_topic: Name = "_keyway-refused"
    """The topic on the target for `on_refused: dead_letter`."""
    transaction_timeout_ms: Annotated[int, Field(ge=1_000, le=900_000)] = 60_000
    """After this time Kafka ends the transaction of a killed link. A link's own transactions last
    at most an eighth of it, and at most 5 s.
    """
    pipeline: Path | None = None
    """A pipeline file. Every fresh record goes through its steps on the way out of its cluster."""
    status_topic: StateTopic = DISTRIBUTION_TOPIC
    """The state of the links: a compacted topic on every cluster."""
    state_directory: Path = Path("keyway-distribution")
    """Checkpoints of Spark."""
    metrics_port: Port | None = None
    """Prometheus, on loopback. Without it: no metrics."""

    def configs_of_new(self, source: Mapping[str, str]) -> dict[str, str]:
        """The configs of a topic that is created on the target. `source`: its configs here."""
        copied = {name: source[name] for name in self.copied_configs if name in source}
        return copied | self.topic_configs


class OffsetsSection(Section):
    """How committed offsets follow (offsets/)."""

    mode: Literal["auto", "exact", "timestamp"] = "auto"
    """`auto`: exact where records have origins, else by timestamp."""
    margin_ms: Annotated[int, Field(ge=0)] = 60_000
    """A position by timestamp is set back by this much: these records come again."""
    margin_max_ms: Annotated[int, Field(ge=0)] = 3_600_000
    """A late link may raise the margin to this."""
    lag_window_ms: Millis = 600_000
    """How far back the log is searched for late records."""
    several_origins: bool = False
    """True: tools other than Keyway's links write a topic on several clusters, so that a timestamp
    promises nothing.
    """
    before_log_start: Literal["skip", "earliest"] = "skip"
    """For a group that retention has overtaken."""
    apply: bool = True
    """False: entries are distributed, and `keyway offsets apply` commits them."""
    empty_ms: Annotated[int, Field(ge=0)] = 30_000
    """A group that has committed a position itself is moved away from it only after this time
    without members and without such commits: before that, it may only be restarting. Make it longer
    than the interval of commits of applications that assign partitions by hand (Flink, Storm).
    """
    rewind: bool = False
    """True: a reset to an earlier offset on the source is followed, too."""
    commits: Literal["auto", "tail", "list"] = "auto"
    """Commits are read from `__consumer_offsets` (tail), or asked for (list)."""
    flags_in_metadata: bool = False
    """True: the copy flags are in the commit metadata, too."""
    interval_ms: Millis = 1_000
    """The pause between two rounds."""
    state_directory: Path = Path("keyway-distribution")
    """The index of each cluster's records, a file that a restart reads instead of the logs. It can
    be deleted.
    """
    refresh_ms: Millis = 10_000
    """From one look at topics, log starts, and groups that stand still to the next. If there are
    more than 1,000 partitions, 1,000 have their turn each time.
    """


class SchemasSection(Section):
    """How schemas are distributed (schema_dist/)."""

    primary: str | None = None
    """The cluster whose registry the others follow, the only one where schemas are registered.
    Without it nothing is distributed.
    """
    record_names: Literal["refuse", "keep", "translate"] = "refuse"
    """For subjects without a topic in their name."""
    poll_interval_ms: Millis = 1_000
    """The interval of questions to the primary."""
    hard_deletes: bool = False
    """True: a version that the primary deleted for good is deleted for good on the targets, too.
    Without it: it is soft-deleted there, so that its id can still be read.
    """
    removals_at_once_max: int = Field(default=100, ge=0, json_schema_extra={"unit": "versions"})
    """Versions that may go at once from a target without a record of it in the primary's log. More
    than this and a tenth of all are refused. 0: only the tenth.
    """
    state_topic: StateTopic = SCHEMAS_TOPIC
    """Ledger and status: a compacted topic on every cluster."""
    lease_session_ms: Millis = 10_000
    """After this time a killed process gives way to the next one."""
    metrics_port: Port | None = None
    """Prometheus, on loopback. Without it: no metrics."""


class ClustersConfig(Section):
    """The whole file."""

    clusters: Annotated[tuple[Cluster, ...], Field(min_length=2, max_length=CLUSTERS_MAX)]
    """The clusters."""
    tree: TreeNode
    """The tree. Its leaves are the clusters; its root is a node."""
    targets: tuple[LinkTargets, ...] = ()
    """Another order of targets for single links."""
    topics: TopicSelection = TopicSelection()
    """Topics that follow, by their logical names."""
    groups: GroupSelection | None = None
    """Groups whose offsets follow, by their logical names. `keyway offsets run` needs it."""
    subjects: Selection = Selection()
    """Subjects that follow, by their logical names."""
    seal_secret_env: Annotated[
        tuple[Annotated[str, Field(min_length=1)], ...],
        Field(max_length=SECRETS_MAX),
        BeforeValidator(lambda given: (given,) if isinstance(given, str) else given),
    ] = ()
    """The environment variable with a secret for the seals of copied records: the same on every
    cluster, and known to no client. Without it a seal is a checksum, which any client can make.
    A list `[NEW, OLD]`: the first seals, all are believed.
    """
    seal_secret_file: Annotated[
        tuple[Path, ...],
        Field(max_length=SECRETS_MAX),
        BeforeValidator(lambda given: (given,) if isinstance(given, str) else given),
    ] = ()
    """The same in a file, or a list of files, in the place of `seal_secret_env`."""
    believe_checksums: bool = False
    """With a secret: copies that were sealed without one are believed, too. For the time in which a
    first secret is introduced.
    """
    messages: MessagesSection = MessagesSection()
    """How records are copied."""
    offsets: OffsetsSection = OffsetsSection()
    """How committed offsets follow."""
    schemas: SchemasSection = SchemasSection()
    """How schemas are distributed."""

    @field_validator("clusters")
    @classmethod
    def _each_once(cls, clusters: tuple[Cluster, ...]) -> tuple[Cluster, ...]:
        names = [cluster.name for cluster in clusters]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"cluster {name} is listed {names.count(name)} times")
        return clusters

    @model_validator(mode="after")
    def _one_place_of_secrets(self) -> ClustersConfig:
        if self.seal_secret_env and self.seal_secret_file:
            raise ValueError("either seal_secret_env or seal_secret_file, not both")
        return self

    @model_validator(mode="after")
    def _somebody_who_authenticates(self) -> ClustersConfig:
        named = [cluster for cluster in self.clusters if cluster.name == self.schemas.primary]
        if any(cluster.registry is not None for cluster in named):
            return self
        for cluster in self.clusters:
            if cluster.registry_view is not None and cluster.registry_view.authenticate:
                lacks = (
                    f"{named[0].name} has no registry" if named else "schemas.primary is missing"
                )
                raise ValueError(
                    f"cluster {cluster.name}: registry_view: authenticate asks the primary's"
                    f" registry, but {lacks}"
                )
        return self

    @model_validator(mode="after")
    def _a_tree_of_these_clusters(self) -> ClustersConfig:
        try:
            tree = self.checked_tree()
        except TreeError as error:
            raise ValueError(f"tree: {error}") from error
        names = {ClusterName(cluster.name) for cluster in self.clusters}
        if self.schemas.primary is not None and self.schemas.primary not in names:
            raise ValueError(f"schemas: primary {self.schemas.primary} is not one of the clusters")
        for name in tree.clusters:
            if name not in names:
                raise ValueError(f"tree: {name} is not one of the clusters")
        for name in sorted(names - set(tree.clusters)):
            raise ValueError(f"tree: cluster {name} is not in it")
        return self

    def checked_tree(self) -> Tree:
        """Raises TreeError; never for a file that `load` has accepted."""
        chosen: dict[tuple[ClusterName, Level], tuple[ClusterName, ...]] = {}
        for link in self.targets:
            place = (ClusterName(link.cluster), Level(link.level))
            if place in chosen:
                raise TreeError(f"targets of {link.cluster} at level {link.level} are given twice")
            chosen[place] = tuple(ClusterName(target) for target in link.targets)
        return build_tree(self.tree.node(), targets=chosen)

    def cluster(self, name: str) -> Cluster:
        """Raises ConfigError if there is none of that name."""
        for cluster in self.clusters:
            if cluster.name == name:
                return cluster
        listed = ", ".join(cluster.name for cluster in self.clusters)
        raise ConfigError(f"no cluster {name}: there are {listed}")

    def seals(self) -> Seals:
        """Raises ConfigError if a secret is not in its place."""
        secrets = tuple(from_environment(variable) for variable in self.seal_secret_env)
        secrets += tuple(from_file(file) for file in self.seal_secret_file)
        return Seals(secrets, checksums=self.believe_checksums)


def load(path: Path) -> ClustersConfig:
    """Raises ConfigError."""
    raw = read_mapping(path)
    try:
        return ClustersConfig.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_fault(error, unnamed=(_LEAF, _NODE))}") from None
