"""Settings of the server and of its listeners."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gateway.core.cluster.slots import ONE_SLOT, Slots
from gateway.core.forwarding.rewrite import Address
from gateway.core.identity.claims import TokenRules
from gateway.core.limits import FRAME_BYTES_MAX
from gateway.core.tls.server_names import ServerNames
from keyway.tls.certificates import TlsFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerSettings:
    """Tokens of OAUTHBEARER. Either `jwks_file` or `jwks_url`."""

    rules: TokenRules
    algorithms: tuple[str, ...]
    jwks_file: Path | None = None
    jwks_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationSettings:
    """The gateway authenticates clients itself. Without `mechanisms` by their certificates."""

    mechanisms: tuple[str, ...]
    identities_file: Path
    users_file: Path | None = None
    plain_passwords: bool = False
    bearer: BearerSettings | None = None
    session_lifetime_ms: int = 0  # 0: no limit
    failed_delay_ms: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """Port 0 means any free one; port_base 0 likewise. With `server_names`, `bootstrap_port` is the
    only port.
    """

    name: str = "clients"
    host: str = "127.0.0.1"
    advertised_host: str | None = None  # None: host
    bootstrap_port: int = 9192
    port_base: int = 9200  # virtual broker n listens on port_base + n
    tls: TlsFiles | None = None
    server_names: ServerNames | None = None
    authentication: AuthenticationSettings | None = None  # None: upstream authenticates clients
    advertised_port: int | None = None  # of the server names; None: bootstrap_port
    option: str = "listen"  # its place in keyway.yaml, for messages


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """`bootstrap_servers` are upstream's. The first listener is the one that REST names."""

    bootstrap_servers: tuple[Address, ...]
    listeners: tuple[ListenerSettings, ...] = (ListenerSettings(),)
    bootstrap_shared: bool = False  # with other nodes on this machine
    port_step: int = 1_000  # from one slot of a broker to its next
    slots: Slots = ONE_SLOT
    frame_bytes_max: int = FRAME_BYTES_MAX
    drain_s: float = 5.0  # at stop, for requests that are not answered yet
    upstream_ssl: Callable[[], ssl.SSLContext] | None = None  # as its files are now
    upstream_receive_bytes: int = 0  # kept by the system for a client; 0: as it likes
    upstream_sasl: bool = False  # it serves only clients that have authenticated
