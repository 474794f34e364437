"""The gateway's own way to the upstream: addresses, its identity, time limits. A repr shows no
secrets.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import structlog

from gateway.core.cluster.slots import ONE_SLOT, Slots
from keyway.file_state import stat_of

log = structlog.get_logger("keyway.upstream")

SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class SaslSettings:
    mechanism: SaslMechanism
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Without `ca_file` the system's trust store is used; `cert_file` and `key_file` are the
    gateway's own.
    """

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    key_password: str | None = field(default=None, repr=False)
    verify_hostname: bool = True

    def context(self) -> ssl.SSLContext:
        """Raises OSError (also ssl.SSLError) when a file cannot be read, is no certificate, or the
        key wants another password.
        """
        context = ssl.create_default_context(
            cafile=None if self.ca_file is None else str(self.ca_file)
        )
        context.check_hostname = self.verify_hostname
        if self.cert_file is not None:
            # Never None: a key that is encrypted would be asked for at the terminal.
            context.load_cert_chain(self.cert_file, self.key_file, self.key_password or "")
        return context


class FreshContext:
    """The context of TLS as its files are now. Files that cannot be used, as while they are being
    replaced, leave it as it was.
    """

    def __init__(self, tls: TlsSettings) -> None:
        """Raises OSError, as `TlsSettings.context`."""
        self._tls = tls
        self._in_use = self._state()
        self._context = tls.context()
        self._unusable = ""  # why the files cannot be used now

    def __call__(self) -> ssl.SSLContext:
        state = self._state()
        try:
            if state != self._in_use:
                self._context = self._tls.context()
                self._in_use = state
            self._unusable = ""
        except OSError as error:
            if str(error) != self._unusable:
                self._unusable = str(error)
                log.warning("upstream_tls_files_unusable", reason=self._unusable)
        return self._context

    def _state(self) -> list[object]:
        files = (self._tls.ca_file, self._tls.cert_file, self._tls.key_file)
        return [stat_of(file) for file in files if file is not None]


@dataclass(frozen=True, slots=True)
class UpstreamSettings:
    bootstrap_servers: str  # "host:port,host:port"; an IPv6 host stands in brackets
    client_id: str = "keyway"
    slots: Slots = ONE_SLOT  # of each broker, as clients see it
    sasl: SaslSettings | None = None
    tls: TlsSettings | None = None
    connect_timeout_ms: int = 10_000  # TCP, TLS and SASL together
    request_timeout_ms: int = 30_000
    refresh_interval_ms: int = 30_000  # metadata nobody asked to refresh
    backoff_base_ms: int = 50  # reconnecting: doubles from here ...
    backoff_max_ms: int = 2_000  # ... to here

    def bootstrap(self) -> list[Address]:
        """Raises ValueError, naming the entry, for one that is not host:port. keyway.yaml has none
        with a password (`gateway.config`).
        """
        entries = [entry.strip() for entry in self.bootstrap_servers.split(",")]
        return [_address(entry) for entry in entries if entry]

    def backoff_ms(self, failures: int) -> int:
        return min(self.backoff_max_ms, self.backoff_base_ms << min(failures - 1, 16))


def _address(entry: str) -> Address:
    host, colon, port = entry.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"bootstrap server {entry!r} is not host:port")
    return Address(host, int(port))
