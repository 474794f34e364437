"""Sections of keyway.yaml as the settings of the parts: one place knows both."""

from __future__ import annotations

from gateway.config.file import Config, ConfigError
from gateway.core.cluster.slots import Slots
from gateway.core.forwarding.rewrite import Address as ShownAddress
from gateway.listen.server import ServerSettings
from gateway.upstream.settings import SaslSettings, TlsSettings, UpstreamSettings


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
            password=section.sasl.password.get_secret_value(),
        ),
        tls=None
        if tls is None
        else TlsSettings(
            ca_file=tls.ca_file,
            cert_file=tls.cert_file,
            key_file=tls.key_file,
            key_password=None if tls.key_password is None else tls.key_password.get_secret_value(),
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
        upstream_ssl = None if upstream.tls is None else upstream.tls.context()
    except OSError as error:
        what = "a file cannot be read, is no PEM, or its key has another key_password"
        raise ConfigError(f"upstream.tls: {what}: {error}") from error
    return ServerSettings(
        bootstrap_servers=tuple(ShownAddress(a.host, a.port) for a in upstream.bootstrap()),
        host=listen.host,
        advertised_host=listen.advertised_host,
        bootstrap_port=listen.bootstrap_port,
        bootstrap_shared=listen.bootstrap_shared,
        port_base=listen.port_base,
        port_step=listen.port_step,
        slots=upstream.slots,
        frame_bytes_max=listen.frame_bytes_max,
        upstream_ssl=upstream_ssl,
        upstream_sasl=upstream.sasl is not None,
    )
