"""The one YAML file that describes the clusters, their tree, and the topics, groups and subjects
that follow: parsed once into frozen, validated objects. An unknown field is an error with its name.

Messages, offsets and schemas are distributed by three services that read the same file; each has a
section of its own, with defaults. Names in `topics`, `groups` and `subjects` are the logical ones,
without the clusters' name patterns. Units are in the names.
"""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    SecretStr,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

from clusters.addresses import BootstrapServers
from clusters.core.copies import NO_SECRET
from clusters.core.limits import CLUSTERS_MAX, NAME_CHARS_MAX
from clusters.core.names import NAME_CHARS_MAX as GROUP_CHARS_MAX
from clusters.core.names import Translation, compile_pattern, pair
from clusters.core.subjects import RecordNames, SubjectTranslation, pair_subjects
from clusters.core.tree import ClusterName, Inner, Leaf, Level, Node, Tree, TreeError, build_tree
from clusters.yaml_file import ConfigError as ConfigError
from clusters.yaml_file import first_fault, read_mapping

Millis = Annotated[int, Field(ge=1)]
Port = Annotated[int, Field(ge=1, le=65_535)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$", max_length=NAME_CHARS_MAX)]
Globs = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(max_length=1_000)]

# The two kinds of children in the tree; pydantic puts the kind into the place of an error.
_LEAF, _NODE = "<cluster>", "<node>"


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", regex_engine="python-re")


class Password(Section):
    """Of a user name. In the file, or in the environment variable that `password_env` names."""

    username: str
    password: SecretStr | None = None
    password_env: str | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Password:
        if (self.password is None) == (self.password_env is None):
            raise ValueError("either password or password_env is needed")
        return self

    def secret(self) -> str:
        """Raises ConfigError if the environment variable is not set."""
        if self.password is not None:
            return self.password.get_secret_value()
        assert self.password_env is not None
        return from_environment(self.password_env)


class Sasl(Password):
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"


class Tls(Section):
    """Without `ca_file` the system's trust store is used. All files are PEM."""

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    verify_hostname: bool = True

    @model_validator(mode="after")
    def _key_and_certificate(self) -> Tls:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file need each other")
        return self


class Registry(Section):
    """A schema registry with Confluent's REST interface. Schemas are read from its log, the topic
    `topic`, unless it `reads` over REST; they are written over REST in IMPORT mode, unless it
    `writes` to its log (docs/schemas.md has the abilities of each registry).
    """

    url: str = Field(pattern=r"^https?://")
    basic: Password | None = None
    ca_file: Path | None = None
    reads: Literal["log", "rest"] = "log"
    writes: Literal["rest", "log"] = "rest"
    topic: Name = "_schemas"

    @field_validator("url")
    @classmethod
    def _address_alone(cls, text: str) -> str:
        if "@" in text:  # it is logged and shown, as bootstrap_servers
            raise ValueError("holds an '@': user and password belong in `basic`")
        return text


class RegistryView(Section):
    """A registry that the cluster's clients use: it reads the cluster's `_schemas`, knows logical
    subjects only, and passes writes on to the primary. With `authenticate` the primary decides
    about each reader; without a value, it does if its registry has `basic`. Writes carry the
    client's credentials anyway.
    """

    host: str = "127.0.0.1"
    port: Port = 8081
    cert_file: Path | None = None  # PEM; with it, TLS
    key_file: Path | None = None
    authenticate: bool | None = None

    @model_validator(mode="after")
    def _key_and_certificate(self) -> RegistryView:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file need each other")
        return self


class Cluster(Section):
    """One Kafka cluster, reached through its gateway. `cluster_id`, if given, must be that of its
    brokers. The patterns translate logical names into those used there (clusters/core/names.py);
    `pattern_values` are the values of their other fields, such as a tenant.
    """

    name: Name
    bootstrap_servers: BootstrapServers = Field(min_length=1)
    cluster_id: str | None = None
    sasl: Sasl | None = None
    tls: Tls | None = None
    registry: Registry | None = None
    registry_view: RegistryView | None = None
    topic_pattern: str = "{topic}"
    group_pattern: str = "{group.id}"
    transactional_id_pattern: str = "{transactional.id}"
    subject_pattern: str = "{topic}"
    pattern_values: dict[str, str] = {}

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
    """Two subtrees: a cluster's name, or a node. `targets`: the clusters below this node that take
    records from its sibling, the first that answers; without it all of them, in the order here.
    """

    level: int | None = None  # one that is missing is refused with the reason (clusters/core/tree)
    children: tuple[
        Annotated[
            Annotated[str, Tag(_LEAF)] | Annotated[TreeNode, Tag(_NODE)],
            Discriminator(lambda it: _LEAF if isinstance(it, str) else _NODE),
        ],
        ...,
    ]
    targets: tuple[str, ...] = ()

    def node(self) -> Inner:
        children: list[Node] = [
            Leaf(ClusterName(it)) if isinstance(it, str) else it.node() for it in self.children
        ]
        targets = tuple(ClusterName(it) for it in self.targets)
        level = None if self.level is None else Level(self.level)
        return Inner(level, tuple(children), targets)


class LinkTargets(Section):
    """Another order of targets for the distributor of one cluster at one level."""

    cluster: str
    level: int
    targets: Annotated[tuple[str, ...], Field(min_length=1)]


class Selection(Section):
    """Names by globs: those that match one of `include` and none of `exclude`."""

    include: Globs = ("*",)
    exclude: Globs = ()

    def takes(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, glob) for glob in self.include) and not any(
            fnmatch.fnmatchcase(name, glob) for glob in self.exclude
        )


class MessagesSection(Section):
    """How records are copied (spark/). Each link, one source cluster and level, is one query."""

    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once"
    trigger_interval_ms: Annotated[int, Field(ge=0)] = 1_000  # from batch to batch; 0: at once
    records_per_batch_max: Annotated[int, Field(ge=1)] = 400_000
    rate_records_per_s: Annotated[int, Field(ge=1)] | None = (
        None  # per link; none: as fast as it can
    )
    create_topics: bool = True  # False: a topic that the target lacks stops with that reason
    topic_configs: dict[str, str] = {}  # of created topics, over those copied from the source
    copied_configs: tuple[str, ...] = (
        "cleanup.policy",
        "retention.ms",
        "retention.bytes",
        "max.message.bytes",
        "min.compaction.lag.ms",
        "delete.retention.ms",
    )
    on_gap: Literal["stop", "continue"] = "stop"  # retention deleted records before they were read
    on_recreated: Literal["stop", "continue"] = "stop"  # the source topic has another topic id
    transaction_timeout_ms: Annotated[int, Field(ge=1_000, le=900_000)] = 60_000
    # A pipeline file whose steps every fresh record goes through, on its way out of its cluster.
    pipeline: Path | None = None
    status_topic: Name = "_keyway-distribution"  # compacted, on every cluster
    state_directory: Path = Path("keyway-distribution")  # Spark's checkpoints
    metrics_port: Port | None = None  # Prometheus, on loopback


class OffsetsSection(Section):
    """How committed offsets follow (offsets/). `several_origins`: other tools than Keyway's links
    write a topic on several clusters, so a timestamp promises nothing.
    """

    mode: Literal["auto", "exact", "timestamp"] = "auto"  # auto: exact where records have origins
    margin_ms: Annotated[int, Field(ge=0)] = 60_000  # by timestamp; the records of a minute again
    margin_max_ms: Annotated[int, Field(ge=0)] = 3_600_000  # as far as a late link may raise it
    lag_window_ms: Millis = 600_000  # how far back the log is searched for late records
    several_origins: bool = False
    before_log_start: Literal["skip", "earliest"] = "skip"  # a group that retention has overtaken
    apply: bool = True  # False: entries are distributed, and committed by `keyway offsets apply`
    rewind: bool = False  # a reset to an earlier offset on the source is followed, too
    commits: Literal["auto", "tail", "list"] = "auto"  # from __consumer_offsets, or by asking
    flags_in_metadata: bool = False  # copy flags in commit metadata, too
    interval_ms: Millis = 1_000  # from round to round
    refresh_ms: Millis = 10_000  # topics, log starts, and positions of groups that stand still


class SchemasSection(Section):
    """How schemas are distributed (schema_dist/). `primary`: the cluster whose registry the others
    follow, the only one where schemas are registered; without it nothing is distributed.
    """

    primary: str | None = None
    record_names: Literal["refuse", "keep", "translate"] = "refuse"  # of subjects without a topic
    poll_interval_ms: Millis = 1_000  # how often the primary is asked for news
    state_topic: Name = "_keyway-schemas"  # compacted, on every cluster: ledger and status
    lease_session_ms: Millis = 10_000  # a killed process gives way to the next one after it
    metrics_port: Port | None = None  # Prometheus, on loopback


class ClustersConfig(Section):
    """The whole file. `seal_secret_env` names an environment variable whose value the seals of
    copied records depend on: the same on every cluster, and known to no client.
    """

    clusters: Annotated[tuple[Cluster, ...], Field(min_length=2, max_length=CLUSTERS_MAX)]
    tree: TreeNode
    targets: tuple[LinkTargets, ...] = ()
    topics: Selection = Selection()
    groups: Selection = Selection()
    subjects: Selection = Selection()
    seal_secret_env: str | None = None
    messages: MessagesSection = MessagesSection()
    offsets: OffsetsSection = OffsetsSection()
    schemas: SchemasSection = SchemasSection()

    @field_validator("clusters")
    @classmethod
    def _each_once(cls, clusters: tuple[Cluster, ...]) -> tuple[Cluster, ...]:
        names = [it.name for it in clusters]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"cluster {name} is listed {names.count(name)} times")
        return clusters

    @model_validator(mode="after")
    def _a_tree_of_these_clusters(self) -> ClustersConfig:
        try:
            tree = self.checked_tree()
        except TreeError as error:
            raise ValueError(f"tree: {error}") from error
        names = {ClusterName(it.name) for it in self.clusters}
        if self.schemas.primary is not None and self.schemas.primary not in names:
            raise ValueError(f"schemas: primary {self.schemas.primary} is not one of the clusters")
        for name in tree.clusters:
            if name not in names:
                raise ValueError(f"tree: {name} is not one of the clusters")
        for name in sorted(names - set(tree.clusters)):
            raise ValueError(f"tree: cluster {name} has no place in it, so no level")
        return self

    def checked_tree(self) -> Tree:
        """Raises TreeError; never for a file that `load` has accepted."""
        chosen: dict[tuple[ClusterName, Level], tuple[ClusterName, ...]] = {}
        for link in self.targets:
            place = (ClusterName(link.cluster), Level(link.level))
            if place in chosen:
                raise TreeError(f"targets of {link.cluster} at level {link.level} are given twice")
            chosen[place] = tuple(ClusterName(it) for it in link.targets)
        return build_tree(self.tree.node(), targets=chosen)

    def cluster(self, name: str) -> Cluster:
        """Raises ConfigError if there is none of that name."""
        for cluster in self.clusters:
            if cluster.name == name:
                return cluster
        listed = ", ".join(it.name for it in self.clusters)
        raise ConfigError(f"no cluster {name}: there are {listed}")

    def seal_secret(self) -> str:
        """Raises ConfigError if the environment variable is not set."""
        return NO_SECRET if self.seal_secret_env is None else from_environment(self.seal_secret_env)


def from_environment(name: str) -> str:
    """Raises ConfigError if it is not set."""
    value = os.environ.get(name)
    if not value:
        raise ConfigError(f"the environment variable {name} is not set")
    return value


def load(path: Path) -> ClustersConfig:
    """Raises ConfigError."""
    raw = read_mapping(path)
    try:
        return ClustersConfig.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_fault(error, unnamed=(_LEAF, _NODE))}") from None
