"""keyway.yaml: parsed once into frozen, validated objects. Unknown fields are errors that name the
field.

Every option has a default, so that `keyway serve --upstream host:9092` alone works. Units are in
the names. The text below an option is its description in docs/configuration.md
(gateway/admin/config_reference.py).
"""

from __future__ import annotations

import fnmatch
import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from dispatcher.core.model import EvictPolicy, JoinPolicy, PoisonPolicy, Policy
from gateway.core.limits import (
    DELETED_TOPICS_MS,
    FILTER_GLOB_BYTES_MAX,
    FILTER_GLOBS_MAX,
    FILTER_RULES_MAX,
    FILTER_SET_BYTES_MAX,
    FRAME_BYTES_MAX,
    MASK_RULES_MAX,
    TOKENS_MAX,
)
from gateway.core.share.declared_filters import InvalidKeyFilters, checked
from keyway.clusters.addresses import BootstrapServers
from keyway.clusters.yaml_file import ConfigError as ConfigError
from keyway.clusters.yaml_file import first_fault, read_mapping
from keyway.commit_metadata.core.limits import SPAN_OFFSETS_MAX

ANY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 - to be refused

Port = Annotated[int, Field(ge=1, le=65_535)]
Millis = Annotated[int, Field(ge=1)]


class _Section(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", regex_engine="python-re", use_attribute_docstrings=True
    )


class Sasl(_Section):
    """The gateway's own identity. Clients bring theirs: their SASL exchange passes through.

    It needs READ on topics and groups, WRITE on dead-letter topics, and DESCRIBE_CONFIGS on groups.
    To change settings of groups it needs ALTER_CONFIGS on them, to delete groups DELETE.
    """

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    """The SASL mechanism."""
    username: str
    """The name of the gateway at the broker."""
    password: SecretStr
    """Its password; never logged."""


class Tls(_Section):
    """TLS towards upstream, also for the connections of clients."""

    ca_file: Path | None = None
    """Trusted certificates, PEM. Without it the system's trust store is used."""
    cert_file: Path | None = None
    """The gateway's own certificate, PEM, for mutual TLS."""
    key_file: Path | None = None
    """The key of `cert_file`. Without it, `cert_file` holds the key, too."""
    key_password: SecretStr | None = None
    """The password of an encrypted key; never logged."""
    verify_hostname: bool = True
    """False only where the certificate of a broker names another host."""

    @model_validator(mode="after")
    def _key_of_a_certificate(self) -> Tls:
        if self.cert_file is None and (self.key_file or self.key_password) is not None:
            raise ValueError("key_file and key_password need a cert_file")
        return self


class UpstreamSection(_Section):
    """The Kafka behind the gateway."""

    bootstrap_servers: BootstrapServers = "127.0.0.1:9092"
    """Addresses of brokers, host:port, comma-separated. `keyway serve --upstream` wins over it."""
    sasl: Sasl | None = None
    """The gateway's own identity at upstream."""
    tls: Tls | None = None
    """TLS towards upstream. Without it: plain TCP."""
    request_timeout_ms: Millis = 30_000
    """Limit of one request of the gateway's own. Clients have their own limits."""


class ListenSection(_Section):
    """The ports for clients; TCP without TLS."""

    host: str = "127.0.0.1"
    """The address to bind. All addresses (0.0.0.0, "::") need an `advertised_host`."""
    advertised_host: str | None = None
    """The address that clients are told. Without it: `host`."""
    bootstrap_port: Port = 9192
    """First contact: the `bootstrap.servers` of clients."""
    bootstrap_shared: bool = False
    """Other nodes on this machine listen on `bootstrap_port`, too: `keyway serve --workers`."""
    port_base: Port = 9200
    """The virtual broker with id n listens on `port_base` + n."""
    slots_per_broker: Annotated[
        int, Field(ge=1, le=16, json_schema_extra={"unit": "virtual brokers"})
    ] = 1
    """Virtual brokers of each upstream broker, so that more nodes than brokers can work. Slot s of
    broker n has the id n + s * 1,000,000, and the port `port_base` + s * `port_step` + n.
    """
    port_step: Annotated[int, Field(ge=1, le=10_000, json_schema_extra={"unit": "ports"})] = 1_000
    """Ports from one slot to the next."""
    frame_bytes_max: Annotated[int, Field(ge=1024, le=2_000_000_000)] = FRAME_BYTES_MAX
    """Limit of one Produce request, as `socket.request.max.bytes` of Kafka. Any other request may
    have 16 MiB.
    """

    @model_validator(mode="after")
    def _reachable(self) -> ListenSection:
        if (self.advertised_host or self.host) in ANY_ADDRESS:
            raise ValueError("advertised_host is needed: clients cannot connect to every address")
        return self


class Role(StrEnum):
    """The rights of a caller of REST: each role has those of the ones before it."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def includes(self, other: Role) -> bool:
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(other)


def _digest(text: SecretStr) -> SecretStr:
    if re.fullmatch(r"[0-9a-f]{64}", text.get_secret_value()) is None:
        raise ValueError("64 hex digits are expected: `keyway token` prints them")
    return text


class TokenSection(_Section):
    """Somebody who may use REST. `keyway token` makes a token and prints this entry for it."""

    name: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9._@-]{1,64}$",
            json_schema_extra={"limits": "1 to 64 letters, digits or `._@-`"},
        ),
    ]
    """The name in the audit; not secret."""
    role: Role
    """`viewer` reads; `operator` also changes groups; `admin` may do everything."""
    sha256: Annotated[SecretStr, AfterValidator(_digest)]
    """The SHA-256 of the token, 64 hex digits. The token itself is nowhere."""
    groups: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)] = ("*",)
    """Globs (`*`, `?`, `[seq]`) for the names of groups that the token sees and may change."""
    keys: bool | None = None
    """Whether it is shown keys and headers of records. Without it: to `operator` and `admin`."""
    values: bool = False
    """Whether it may look at the values of parked records, one at a time; each look is audited."""


class MaskRule(_Section):
    """Fields that nobody sees in the values of parked records. All rules that match a topic count.
    A value that cannot be taken apart into fields is then not shown at all.
    """

    topic: str = "*"
    """A glob (`*`, `?`, `[seq]`) for names of topics."""
    fields: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]
    """Globs for paths of fields, like `card.number` or `*.iban`. `*` matches all of the value."""


class AdminSection(_Section):
    """REST, metrics and health. Without `tokens` all who reach it may do everything, so it is bound
    to loopback only.
    """

    host: str = "127.0.0.1"
    """The address to bind. An address beyond loopback needs `tokens`."""
    port: Port = 9180
    """The port that `keyway group` asks by default."""
    tokens: Annotated[tuple[TokenSection, ...], Field(max_length=TOKENS_MAX)] = ()
    """The tokens that REST accepts."""
    clusters_file: Path | None = None
    """The clusters' file, for the dashboard's links, `/v1/clusters`, `/v1/links`, `/v1/offsets` and
    `/v1/schemas`. Without it: 404.
    """
    masks: Annotated[tuple[MaskRule, ...], Field(max_length=MASK_RULES_MAX)] = ()
    """Fields that are masked in the values of parked records."""
    metrics_open: bool = False
    """True: `/metrics` needs no token, for a Prometheus that has none. It names all groups."""

    @model_validator(mode="after")
    def _closed_to_strangers(self) -> AdminSection:
        if not self.tokens and not is_loopback(self.host):
            raise ValueError(
                f"tokens is needed for host {self.host}, which others can reach: make one with"
                " `keyway token`, or set host to 127.0.0.1"
            )
        for what in ("name", "sha256"):
            values = [getattr(token, what) for token in self.tokens]
            if len(set(values)) < len(values):
                raise ValueError(f"tokens: two have the same {what}")
        return self


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class StateSection(_Section):
    """Window state: leases and settled records."""

    redis_url: SecretStr | None = None
    """The Redis of the node. Without it an embedded Redis keeps its file in `directory`."""
    directory: Path = Path("keyway-data")
    """Of the embedded Redis; relative to the working directory of the node."""
    commit_interval_ms: Millis = 5_000
    """Interval of commits to Kafka. A lost Redis brings back the records settled since the last."""
    deleted_topics_interval_ms: Millis = DELETED_TOPICS_MS
    """From one look for deleted topics to the next. Two that miss a topic delete its state."""


class NodesSection(_Section):
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
    """The name of this node, another one for each. Without it the node stands alone."""


class RegistryViewSection(_Section):
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


class FilterRule(_Section):
    """Members whose client id matches `client_id` (glob) take only keys that match one of `keys`
    (globs). In keyway.yaml or set over REST: the bounds are the same.
    """

    client_id: str = Field(min_length=1)
    """A glob (`*`, `?`, `[seq]`) for the client ids of members."""
    keys: tuple[str, ...] = Field(
        min_length=1,
        description=f"Globs (`*`, `?`) over the bytes of a key: at most {FILTER_GLOBS_MAX}, each of"
        f" at most {FILTER_GLOB_BYTES_MAX} bytes.",
    )

    @field_validator("keys")
    @classmethod
    def _within_bounds(cls, keys: tuple[str, ...]) -> tuple[str, ...]:
        try:
            checked(tuple(key.encode() for key in keys))
        except InvalidKeyFilters as invalid:
            raise ValueError(str(invalid)) from invalid
        return keys

    @property
    def text_bytes(self) -> int:
        """The length of all its text in UTF-8."""
        return len(self.client_id.encode()) + sum(len(key.encode()) for key in self.keys)


def _bounded(rules: tuple[FilterRule, ...]) -> tuple[FilterRule, ...]:
    size = sum(rule.text_bytes for rule in rules)
    if size > FILTER_SET_BYTES_MAX:
        raise ValueError(f"{size} bytes of client ids and keys: at most {FILTER_SET_BYTES_MAX}")
    return rules


RuleSet = Annotated[
    tuple[FilterRule, ...], Field(max_length=FILTER_RULES_MAX), AfterValidator(_bounded)
]


class FilterRules(_Section):
    """The rules of one group; the first whose `client_id` matches a member decides."""

    rules: RuleSet
    """The rules in their order."""


class GroupSection(_Section):
    """Key-Shared policy of the groups whose name matches; the first entry that matches wins. An
    admin's settings for the group in Kafka (`share.auto.offset.reset`, ...) win over this file.
    """

    match: str = "*"
    """A glob (`*`, `?`, `[seq]`) for names of groups."""
    reliable: bool = True
    """False: at most once. A record is settled when it is sent, and nothing is in Redis."""
    auto_offset_reset: Annotated[
        str,
        Field(
            pattern=r"^(earliest|latest|by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+S)?)?)$",
            json_schema_extra={"limits": "`earliest`, `latest`, or like `by_duration:P1DT12H`"},
        ),
    ] = "latest"
    """Start of a new group: the first record, the next one, or those of so long ago."""
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    """`read_uncommitted` adds the records of aborted transactions."""
    span_max: Annotated[
        int, Field(ge=1, le=SPAN_OFFSETS_MAX, json_schema_extra={"unit": "offsets"})
    ] = Policy().span_max
    """Offsets from the oldest record that is not aside to the last one read, of one partition."""
    held_max: Annotated[int, Field(ge=0, le=4_194_304, json_schema_extra={"unit": "records"})] = (
        Policy().held_max
    )
    """Records that wait aside while other keys go on, of one partition: parked ones and others."""
    window_records: Annotated[int, Field(ge=1, le=1_048_576)] | None = None
    """Limit of unsettled records of the span, of one partition. Without it: the span alone."""
    in_flight_per_member_max: Annotated[
        int, Field(ge=1, le=100_000, json_schema_extra={"unit": "records"})
    ] = 1_000
    """Records of one partition that a member may hold."""
    prefetch_per_key: Annotated[
        int, Field(ge=1, le=1_000, json_schema_extra={"unit": "records"})
    ] = 1
    """Records of one key in flight. Above 1, a failed one brings back those behind it."""
    lock_duration_ms: Annotated[int, Field(ge=100, le=3_600_000)] = 30_000
    """A record that is not acknowledged by then is delivered again."""
    renew_acknowledge: bool = True
    """False: members may not extend their locks (RENEW of KIP-1222)."""
    deliveries_max: Annotated[
        int, Field(ge=1, le=1_000, json_schema_extra={"unit": "deliveries"})
    ] = 5
    """Deliveries of a record before it is exhausted."""
    backoff_base_ms: Annotated[int, Field(ge=0, le=3_600_000)] = 1_000
    """Pause before the first redelivery. It doubles with each one; other keys go on."""
    backoff_max_ms: Annotated[int, Field(ge=0, le=3_600_000)] = 60_000
    """Limit of that pause."""
    rejected: PoisonPolicy = Policy().rejected
    """For a record that a member rejects: dropped, parked, or written to the dead letters."""
    exhausted: PoisonPolicy = Policy().exhausted
    """The same for a record without success and without a REJECT in `deliveries_max`."""
    dead_letter_topic: str | None = None
    """The topic of dead letters. It must exist; `dead_letter` needs it."""
    on_evict: EvictPolicy = EvictPolicy.REDELIVER
    """`ack`: the records of an evicted member count as done (at most once)."""
    join_policy: JoinPolicy = JoinPolicy.PER_KEY
    """When a new member takes over: each key as soon as none of its records is in flight, or
    nothing before all records sent at its join are settled (PIP-282).
    """
    bounded_load: (
        Annotated[float, Field(ge=1, le=100, json_schema_extra={"unit": "times the mean"})] | None
    ) = None
    """Limit of a member's keys with unsettled records. Without it the ring alone decides."""
    disconnect_grace_ms: Annotated[int, Field(ge=0, le=600_000)] = 3_000
    """A member without a connection for so long is evicted."""
    assignment_interval_ms: Annotated[int, Field(ge=0, le=15_000)] = 1_000
    """A member that joins others so soon after another join has no partitions before its next
    heartbeat, as from Kafka. 0: every join has them.
    """
    heartbeat_interval_ms: Annotated[int, Field(ge=100, le=60_000)] = 5_000
    """The interval of heartbeats that members are told."""
    session_timeout_ms: Annotated[int, Field(ge=500, le=600_000)] = 45_000
    """A member without a heartbeat for so long is evicted."""
    filters: RuleSet = Field(
        default=(),
        description="Rules for the keys of members; the first that matches decides. In all at most"
        f" {FILTER_SET_BYTES_MAX:,} bytes of client ids and keys.",
    )

    @model_validator(mode="before")
    @classmethod
    def _poison_has_two_policies(cls, section: object) -> object:
        if isinstance(section, dict) and "poison" in section:
            policies = [policy.value for policy in PoisonPolicy]
            value = section["poison"] if section["poison"] in policies else "block"
            raise ValueError(
                f"poison is not an option any more: write `rejected: {value}` (a member rejects"
                f" the record) and `exhausted: {value}` (its deliveries are used up) instead"
            )
        return section

    @model_validator(mode="after")
    def _consistent(self) -> GroupSection:
        if not (self.dead_letter_topic or "").strip():
            for name in ("rejected", "exhausted"):
                if getattr(self, name) is PoisonPolicy.DEAD_LETTER:
                    raise ValueError(f"{name}: dead_letter needs a dead_letter_topic")
        if self.session_timeout_ms <= self.heartbeat_interval_ms:
            raise ValueError("session_timeout_ms must exceed heartbeat_interval_ms")
        return self

    def policy(self) -> Policy:
        """The dispatcher's share of the section: fields of the same names."""
        return Policy(**{field.name: getattr(self, field.name) for field in fields(Policy)})


class Config(_Section):
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
    groups: tuple[GroupSection, ...] = ()
    """Policies of Key-Shared groups. A group that none matches gets the defaults."""

    @model_validator(mode="after")
    def _one_redis(self) -> Config:
        if self.nodes.id is not None and self.state.redis_url is None:
            raise ValueError(
                "nodes.id: several nodes need one state.redis_url; an embedded Redis belongs to"
                " one node"
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
