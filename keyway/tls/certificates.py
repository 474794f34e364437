"""The certificates of one port, read from their files and read again when these change.

A new context replaces the one before: handshakes under way end with the old certificate, later ones
have the new one, and open connections stay. Files that cannot be used change nothing; the reason is
told until they can.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

import structlog

from keyway.file_state import stat_of
from keyway.tls.core.expiry import expires_s, pem_blocks
from keyway.tls.limits import CERTIFICATE_WARNING_S, CERTIFICATES_LOOK_S

log = structlog.get_logger("keyway.tls")


ContextT = TypeVar("ContextT", bound=ssl.SSLContext)


class UnusableFiles(Exception):
    """One line with the files that cannot be used, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """The PEM files of one port with TLS. A repr shows no secrets."""

    cert_file: Path
    key_file: Path | None = None  # None: in cert_file
    key_password: str | None = field(default=None, repr=False)
    client_ca_file: Path | None = None
    client_auth: ssl.VerifyMode = ssl.CERT_NONE
    version_min: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2

    def paths(self) -> tuple[Path, ...]:
        given = (self.cert_file, self.key_file, self.client_ca_file)
        return tuple(path for path in given if path is not None)


@dataclass(frozen=True, slots=True)
class Expiring:
    """A certificate of one of the files."""

    file: str  # the option that names it
    position: int  # in its file; the first of cert_file is the port's own
    expires_s: int  # seconds since the epoch


def plain_context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


class Certificates(Generic[ContextT]):
    """`port` names the listener in logs, metrics and REST; `make`: a context for a server, without
    certificates yet. Raises UnusableFiles.
    """

    def __init__(self, port: str, files: TlsFiles, make: Callable[[], ContextT]) -> None:
        self.port = port
        self.files = files
        self._make = make
        self.problem: str | None = None  # why the files as they are now are not in use
        self._state = _state_of(files)
        self.context, self.expiring = _load(files, make)

    def following(self) -> ssl.SSLContext:
        """A context for a server that keeps it: each of its connections gets the newest one."""
        first = self.context

        def take_newest(asked: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
            asked.context = self.context

        first.sni_callback = take_newest
        return first

    def changed(self) -> bool:
        """Since the last look; or what is there is not in use, and may be by now."""
        state = _state_of(self.files)
        same, self._state = state == self._state, state
        return not same or self.problem is not None

    def reload(self) -> bool:
        """False: the files cannot be used, and all is as it was."""
        self._state = _state_of(self.files)
        before = self.problem
        try:
            self.context, self.expiring = _load(self.files, self._make)
        except UnusableFiles as unusable:
            self.problem = str(unusable)
            if self.problem != before:
                log.error("certificates_not_reloaded", listener=self.port, detail=self.problem)
            return False
        self.problem = None
        expires = min(certificate.expires_s for certificate in self.expiring)
        log.info("certificates_reloaded", listener=self.port, first_expires_s=expires)
        return True


def _wall_s() -> float:
    return datetime.now(UTC).timestamp()


class AllCertificates:
    """The certificates of every port of the node. `wall_s`: the time that certificates are bound
    to.
    """

    def __init__(self, wall_s: Callable[[], float] = _wall_s) -> None:
        self.ports: list[Certificates[Any]] = []
        self._wall_s = wall_s
        self.reloads = 0
        self.reloads_failed = 0

    def add(self, certificates: Certificates[Any]) -> None:
        self.ports.append(certificates)

    def reload(self) -> Sequence[tuple[Certificates[Any], bool]]:
        """Each port, and whether its files could be used."""
        return [(port, self._reload(port)) for port in self.ports]

    def troubles(self) -> list[str]:
        """A line for each certificate that is over: clients refuse it."""
        now_s = self._wall_s()
        return [
            f"listener {port.port}: {_place(certificate)} expired on {_day(certificate)}"
            for port in self.ports
            for certificate in port.expiring
            if certificate.expires_s <= now_s
        ]

    def warnings(self) -> list[str]:
        """A line for each one that ends soon, and for files that cannot be used."""
        now_s = self._wall_s()
        soon = [
            f"listener {port.port}: {_place(certificate)} expires on {_day(certificate)}"
            for port in self.ports
            for certificate in port.expiring
            if now_s < certificate.expires_s <= now_s + CERTIFICATE_WARNING_S
        ]
        unused = [
            f"listener {port.port}: the certificate of before stays in use: {port.problem}"
            for port in self.ports
            if port.problem is not None
        ]
        return [*unused, *soon]

    def look(self) -> None:
        for port in self.ports:
            if port.changed():
                self._reload(port)

    async def look_forever(self) -> None:
        while True:
            await asyncio.sleep(CERTIFICATES_LOOK_S)
            self.look()

    async def reload_at(self, event: asyncio.Event) -> None:
        while True:
            await event.wait()
            event.clear()
            self.reload()

    def _reload(self, certificates: Certificates[Any]) -> bool:
        known = certificates.problem
        done = certificates.reload()
        if done:
            self.reloads += 1
        elif certificates.problem != known:
            self.reloads_failed += 1
        return done


def _load(files: TlsFiles, make: Callable[[], ContextT]) -> tuple[ContextT, tuple[Expiring, ...]]:
    context = make()
    context.minimum_version = files.version_min
    context.verify_mode = files.client_auth
    what = "key_file" if files.key_file is not None else "cert_file"
    try:
        # Never None: a key that is encrypted would be asked for at the terminal.
        context.load_cert_chain(files.cert_file, files.key_file, files.key_password or "")
        if files.client_ca_file is not None:
            what = "client_ca_file"
            context.load_verify_locations(files.client_ca_file)
        what = "cert_file"
        expiring = tuple(_expiring(files))
    except ssl.SSLError as error:
        raise UnusableFiles(_unusable(files, what, error)) from error
    except (OSError, ValueError) as error:
        raise UnusableFiles(f"{_named(files)}: {error}") from error
    return context, expiring


def _unusable(files: TlsFiles, what: str, error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"{_named(files)}: the key is not that of the certificate"
    if what == "client_ca_file":
        return f"client_ca_file {files.client_ca_file}: no PEM certificate: {error}"
    return (
        f"{_named(files)}: no PEM certificate and key, or the key has another key_password: {error}"
    )


def _place(certificate: Expiring) -> str:
    return (
        f"certificate {certificate.position} of {certificate.file}"
        if certificate.position
        else f"certificate of {certificate.file}"
    )


def _day(certificate: Expiring) -> str:
    try:
        return datetime.fromtimestamp(certificate.expires_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError):  # beyond the year 9999
        return "a day that no calendar has"


def _named(files: TlsFiles) -> str:
    key = "" if files.key_file is None else f", key_file {files.key_file}"
    return f"cert_file {files.cert_file}{key}"


def _expiring(files: TlsFiles) -> list[Expiring]:
    """Raises OSError, ValueError."""
    found = []
    for option in ("cert_file", "client_ca_file"):
        path = getattr(files, option)
        if path is None:
            continue
        blocks = pem_blocks(path.read_text(encoding="ascii", errors="replace"))
        ends = [expires_s(ssl.PEM_cert_to_DER_cert(block)) for block in blocks]
        found += [Expiring(option, position, end) for position, end in enumerate(ends)]
    return found


def _state_of(files: TlsFiles) -> tuple[object, ...]:
    return tuple(stat_of(path) for path in files.paths())
