"""The section `upstream` of keyway.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, model_validator

from gateway.config.section import Millis, Section, only_one
from keyway.clusters.addresses import BootstrapServers
from keyway.clusters.sections import Password


class Sasl(Password):
    """The gateway's own identity. Clients bring theirs: their SASL exchange passes through.

    It needs READ on topics and groups, WRITE on dead-letter topics, and DESCRIBE_CONFIGS on groups.
    To change settings of groups it needs ALTER_CONFIGS on them, to delete groups DELETE.
    """

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    """The SASL mechanism."""


class Tls(Section):
    """TLS towards upstream, also for the connections of clients."""

    ca_file: Path | None = None
    """Trusted certificates, PEM. Without it the system's trust store is used."""
    cert_file: Path | None = None
    """The gateway's own certificate, PEM, for mutual TLS. Needs `sasl` (docs/tls.md)."""
    key_file: Path | None = None
    """The key of `cert_file`. Without it, `cert_file` holds the key, too."""
    key_password: SecretStr | None = None
    """The password of an encrypted key; never logged."""
    key_password_file: Path | None = None
    """The file that holds it, in the place of `key_password`."""
    verify_hostname: bool = True
    """False only where the certificate of a broker names another host."""
    clients_act_as_gateway: bool = False
    """True: at Kafka every client is the gateway, by its `cert_file`, and may do what the gateway
    may. Only with a `cert_file` and without `sasl`, where there is no other way.
    """

    @model_validator(mode="after")
    def _key_of_a_certificate(self) -> Tls:
        of_key = (self.key_file, self.key_password, self.key_password_file)
        if self.cert_file is None and of_key != (None, None, None):
            raise ValueError("key_file and its password need a cert_file")
        only_one("key_password", self.key_password, self.key_password_file)
        return self


class UpstreamSection(Section):
    """The Kafka behind the gateway."""

    bootstrap_servers: BootstrapServers = "127.0.0.1:9092"
    """Addresses of brokers, host:port, comma-separated. `keyway serve --upstream` wins over it."""
    sasl: Sasl | None = None
    """The gateway's own identity at upstream."""
    tls: Tls | None = None
    """TLS towards upstream. Without it: plain TCP."""
    request_timeout_ms: Millis = 30_000
    """Limit of one request of the gateway's own. Clients have their own limits."""
    receive_buffer_bytes: Annotated[
        int, Field(ge=0, le=1_073_741_824, json_schema_extra={"unit": "bytes"})
    ] = 0
    """What the system keeps of a broker's answers for each client that does not take them yet, as
    `receive.buffer.bytes` of Kafka's consumers (65,536). 0: as it likes, which is megabytes for a
    client that was fast before; a thousand of these may use up the memory of all TCP sockets
    (`net.ipv4.tcp_mem`). With 262,144 they do not, and a consumer is slower by a tenth or more. It
    gets at most this in each round trip between the node and the broker. Linux gives no more than
    its `net.core.rmem_max`.
    """

    @model_validator(mode="after")
    def _nobody_acts_as_the_gateway(self) -> UpstreamSection:
        """Clients' connections carry the certificate, too; beside SASL it names nobody."""
        if self.tls is None:
            return self
        by_certificate = self.tls.cert_file is not None and self.sasl is None
        if by_certificate and not self.tls.clients_act_as_gateway:
            raise ValueError(
                "tls.cert_file needs sasl: else every client acts as the gateway at Kafka, with all"
                " its rights. tls.clients_act_as_gateway: true allows that"
            )
        if self.tls.clients_act_as_gateway and not by_certificate:
            raise ValueError("tls.clients_act_as_gateway needs tls.cert_file, and no sasl")
        return self
