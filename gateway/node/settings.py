"""Sections of keyway.yaml as the settings of the parts: one place knows both."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from typing import TypeVar

from gateway.config.authentication import AuthenticationSection, Mechanism
from gateway.config.file import Config, ConfigError
from gateway.config.listen import ListenerSection, ListenSection
from gateway.config.tls import ClientAuth, ListenerTls, ServerTls, TlsVersion
from gateway.config.upstream import Tls
from gateway.core.cluster.slots import Slots
from gateway.core.forwarding.rewrite import Address as ShownAddress
from gateway.core.identity.claims import TokenRules
from gateway.core.tls.server_names import ServerNames
from gateway.listen.settings import (
    AuthenticationSettings,
    BearerSettings,
    ListenerSettings,
    ServerSettings,
)
from gateway.upstream.settings import FreshContext, SaslSettings, TlsSettings, UpstreamSettings
from keyway.clusters.sections import given_secret
from keyway.tls.certificates import TlsFiles

_T = TypeVar("_T")


def upstream_settings(config: Config) -> UpstreamSettings:
    """Raises ConfigError for a bootstrap server that is not host:port."""
    section = config.upstream
    tls = section.tls
    settings = UpstreamSettings(
        bootstrap_servers=section.bootstrap_servers,
        sasl=None
        if section.sasl is None
        else SaslSettings(
            mechanism=section.sasl.mechanism,
            username=section.sasl.username,
            password=_secret("upstream.sasl", section.sasl.secret),
        ),
        tls=None
        if tls is None
        else TlsSettings(
            ca_file=tls.ca_file,
            cert_file=tls.cert_file,
            key_file=tls.key_file,
            key_password=_key_password("upstream.tls", tls),
            verify_hostname=tls.verify_hostname,
        ),
        request_timeout_ms=section.request_timeout_ms,
        slots=Slots(config.listen.slots_per_broker),
    )
    try:
        if not settings.bootstrap():
            raise ConfigError("upstream.bootstrap_servers: empty")
    except ValueError as error:
        raise ConfigError(f"upstream.bootstrap_servers: {error}") from error
    return settings


def server_settings(config: Config, upstream: UpstreamSettings) -> ServerSettings:
    """Raises ConfigError for TLS files that cannot be read."""
    listen = config.listen
    try:
        upstream_ssl = None if upstream.tls is None else FreshContext(upstream.tls)
    except OSError as error:
        what = "a file cannot be read, is no PEM, or its key has another key_password"
        raise ConfigError(f"upstream.tls: {what}: {error}") from error
    return ServerSettings(
        bootstrap_servers=tuple(ShownAddress(a.host, a.port) for a in upstream.bootstrap()),
        listeners=tuple(_listener(listener, option) for listener, option in _named(listen)),
        bootstrap_shared=listen.bootstrap_shared,
        port_step=listen.port_step,
        slots=upstream.slots,
        frame_bytes_max=listen.frame_bytes_max,
        upstream_ssl=upstream_ssl,
        upstream_receive_bytes=config.upstream.receive_buffer_bytes,
        upstream_sasl=upstream.sasl is not None,
    )


def _named(listen: ListenSection) -> Iterator[tuple[ListenerSection, str]]:
    """Each listener, with its place in keyway.yaml."""
    if not listen.listeners:
        yield listen, "listen"
    for at, listener in enumerate(listen.listeners):
        yield listener, f"listen.listeners.{at}"


def _listener(section: ListenerSection, option: str) -> ListenerSettings:
    sni = section.sni
    return ListenerSettings(
        name=section.name,
        host=section.host,
        advertised_host=section.advertised_host,
        bootstrap_port=section.bootstrap_port,
        port_base=section.port_base,
        tls=None if section.tls is None else tls_files(section.tls, f"{option}.tls"),
        server_names=None if sni is None else ServerNames(sni.bootstrap, sni.broker),
        advertised_port=None if sni is None else sni.advertised_port,
        authentication=None
        if section.authentication is None
        else _authentication(section.authentication),
        option=option,
    )


def _authentication(section: AuthenticationSection) -> AuthenticationSettings:
    bearer = section.oauthbearer
    by_certificate = Mechanism.CERTIFICATE in section.mechanisms
    return AuthenticationSettings(
        mechanisms=()
        if by_certificate
        else tuple(mechanism.value for mechanism in section.mechanisms),
        identities_file=section.identities_file,
        users_file=section.users_file,
        plain_passwords=section.plain_passwords,
        bearer=None
        if bearer is None
        else BearerSettings(
            rules=TokenRules(
                issuer=bearer.issuer,
                audiences=bearer.audience,
                principal_claim=bearer.principal_claim,
                skew_s=bearer.clock_skew_ms / 1000,
            ),
            algorithms=tuple(algorithm.value for algorithm in bearer.algorithms),
            jwks_file=bearer.jwks_file,
            jwks_url=bearer.jwks_url,
        ),
        session_lifetime_ms=section.session_lifetime_ms,
        failed_delay_ms=section.failed_delay_ms,
    )


def _key_password(option: str, tls: Tls | ServerTls) -> str | None:
    return _secret(option, lambda: given_secret(tls.key_password, tls.key_password_file))


def _secret(option: str, read: Callable[[], _T]) -> _T:
    """Raises ConfigError, with the option."""
    try:
        return read()
    except ConfigError as error:
        raise ConfigError(f"{option}: {error}") from error


_CLIENT_AUTH = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}
_VERSIONS = {TlsVersion.V1_2: ssl.TLSVersion.TLSv1_2, TlsVersion.V1_3: ssl.TLSVersion.TLSv1_3}


def tls_files(section: ServerTls, option: str) -> TlsFiles:
    """Raises ConfigError."""
    of_clients = section if isinstance(section, ListenerTls) else None
    return TlsFiles(
        cert_file=section.cert_file,
        key_file=section.key_file,
        key_password=_key_password(option, section),
        client_ca_file=None if of_clients is None else of_clients.client_ca_file,
        client_auth=ssl.CERT_NONE if of_clients is None else _CLIENT_AUTH[of_clients.client_auth],
        version_min=_VERSIONS[section.version_min],
    )
