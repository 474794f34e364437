"""keyway.yaml: parsed once into frozen, validated objects. Unknown fields are errors that name the
field.

Every option has a default, so that `keyway serve --upstream host:9092` alone works. Units are in
the names.
"""

from __future__ import annotations

import fnmatch
from dataclasses import fields
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

from clusters.addresses import BootstrapServers
from clusters.yaml_file import ConfigError as ConfigError
from clusters.yaml_file import first_fault, read_mapping
from dispatcher.core.model import EvictPolicy, JoinPolicy, PoisonPolicy, Policy
from gateway.core.limits import (
    DELETED_TOPICS_MS,
    FILTER_RULES_MAX,
    FILTER_SET_BYTES_MAX,
    FRAME_BYTES_MAX,
)
from gateway.core.share.declared_filters import InvalidKeyFilters, checked
from settled.core.limits import SPAN_OFFSETS_MAX

ANY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 - to be refused

Port = Annotated[int, Field(ge=1, le=65_535)]
Millis = Annotated[int, Field(ge=1)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", regex_engine="python-re")


class Sasl(_Section):
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    username: str
    password: SecretStr


class Tls(_Section):
    """TLS towards upstream. Without `ca_file` the system's trust store is used; a key without
    `key_file` is in `cert_file`.
    """

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    key_password: SecretStr | None = None
    verify_hostname: bool = True

    @model_validator(mode="after")
    def _key_of_a_certificate(self) -> Tls:
        if self.cert_file is None and (self.key_file or self.key_password) is not None:
            raise ValueError("key_file and key_password need a cert_file")
        return self


class UpstreamSection(_Section):
    bootstrap_servers: BootstrapServers = "127.0.0.1:9092"
    sasl: Sasl | None = None  # the gateway's own identity; clients bring their own
    tls: Tls | None = None
    request_timeout_ms: Millis = 30_000


class ListenSection(_Section):
    """Where clients connect. Virtual broker n listens on port_base + n."""

    host: str = "127.0.0.1"
    advertised_host: str | None = None  # default: host
    bootstrap_port: Port = 9192
    port_base: Port = 9200
    frame_bytes_max: Annotated[int, Field(ge=1024, le=2_000_000_000)] = FRAME_BYTES_MAX

    @model_validator(mode="after")
    def _reachable(self) -> ListenSection:
        if (self.advertised_host or self.host) in ANY_ADDRESS:
            raise ValueError("advertised_host is needed: clients cannot connect to every address")
        return self


class AdminSection(_Section):
    host: str = "127.0.0.1"
    port: Port = 9180


class StateSection(_Section):
    """Window state. Without `redis_url` an embedded Redis keeps its file in `directory`."""

    redis_url: SecretStr | None = None
    directory: Path = Path("keyway-data")
    commit_interval_ms: Millis = 5_000
    deleted_topics_interval_ms: Millis = DELETED_TOPICS_MS


class RegistryViewSection(_Section):
    """A schema registry for this cluster's clients, served by the node: the `registry_view` of
    `cluster` in the clusters' YAML says where (docs/schemas.md). Off without `clusters_file`.
    """

    clusters_file: Path | None = None
    cluster: str | None = None

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
    keys: tuple[str, ...] = Field(min_length=1)

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


class GroupSection(_Section):
    """Key-Shared policy of the groups whose name matches; the first match in file order wins."""

    match: str = "*"
    reliable: bool = True  # False: at most once, see dispatcher/core/unreliable.py
    # earliest, latest, or by_duration:P1DT12H (that long ago), as share.auto.offset.reset
    auto_offset_reset: Annotated[
        str,
        Field(
            pattern=r"^(earliest|latest|by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+S)?)?)$"
        ),
    ] = "latest"
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    span_max: Annotated[int, Field(ge=1, le=SPAN_OFFSETS_MAX)] = Policy().span_max
    window_records: Annotated[int, Field(ge=1, le=1_048_576)] | None = None
    in_flight_per_member_max: Annotated[int, Field(ge=1, le=100_000)] = 1_000
    prefetch_per_key: Annotated[int, Field(ge=1, le=1_000)] = 1
    lock_duration_ms: Annotated[int, Field(ge=100, le=3_600_000)] = 30_000
    renew_acknowledge: bool = True  # False: a RENEW (KIP-1222) is refused
    deliveries_max: Annotated[int, Field(ge=1, le=1_000)] = 5
    backoff_base_ms: Annotated[int, Field(ge=0, le=3_600_000)] = 1_000
    backoff_max_ms: Annotated[int, Field(ge=0, le=3_600_000)] = 60_000
    rejected: PoisonPolicy = Policy().rejected
    exhausted: PoisonPolicy = Policy().exhausted
    dead_letter_topic: str | None = None
    on_evict: EvictPolicy = EvictPolicy.REDELIVER
    join_policy: JoinPolicy = JoinPolicy.PER_KEY
    bounded_load: Annotated[float, Field(ge=1, le=100)] | None = None
    disconnect_grace_ms: Annotated[int, Field(ge=0, le=600_000)] = 3_000
    heartbeat_interval_ms: Annotated[int, Field(ge=100, le=60_000)] = 5_000
    session_timeout_ms: Annotated[int, Field(ge=500, le=600_000)] = 45_000
    filters: RuleSet = ()

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
    upstream: UpstreamSection = UpstreamSection()
    listen: ListenSection = ListenSection()
    admin: AdminSection = AdminSection()
    state: StateSection = StateSection()
    registry_view: RegistryViewSection = RegistryViewSection()
    groups: tuple[GroupSection, ...] = ()

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
