"""The section `admin` of keyway.yaml: REST, and who may use it."""

from __future__ import annotations

import ipaddress
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr, model_validator

from gateway.config.section import Port, Section
from gateway.config.tls import ServerTls
from gateway.core.limits import MASK_RULES_MAX, TOKENS_MAX


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


class TokenSection(Section):
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


class MaskRule(Section):
    """Fields that nobody sees in the values of parked records. All rules that match a topic count.
    A value that cannot be taken apart into fields is then not shown at all.
    """

    topic: str = "*"
    """A glob (`*`, `?`, `[seq]`) for names of topics."""
    fields: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]
    """Globs for paths of fields, like `card.number` or `*.iban`. `*` matches all of the value."""


class AdminSection(Section):
    """REST, metrics and health. Without `tokens` all who reach it may do everything, so it is bound
    to loopback only.
    """

    host: str = "127.0.0.1"
    """The address to bind. An address beyond loopback needs `tokens`."""
    port: Port = 9180
    """The port that `keyway group` asks by default."""
    tokens: Annotated[tuple[TokenSection, ...], Field(max_length=TOKENS_MAX)] = ()
    """The tokens that REST accepts."""
    tls: ServerTls | None = None
    """TLS of REST, the dashboard and metrics. Without it: plain HTTP."""
    nodes_ca_file: Path | None = None
    """The authorities of other nodes' certificates, where several nodes have `tls`. Without it: the
    system's. A certificate names the host at which the node is asked (docs/several-nodes.md).
    """
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
