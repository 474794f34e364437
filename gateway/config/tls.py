"""The TLS of a port, for the sections `listen` and `admin` of keyway.yaml."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from pydantic import SecretStr, model_validator

from gateway.config.section import Section, only_one


class ClientAuth(StrEnum):
    """Certificates of clients, by Kafka's names of `ssl.client.auth`."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


class TlsVersion(StrEnum):
    V1_2 = "1.2"
    V1_3 = "1.3"


class ServerTls(Section):
    """TLS of the port. The files are PEM. They are read again when they change, at SIGHUP, and at
    `POST /v1/tls/reload`. Files that cannot be used leave the certificate as it is.
    """

    cert_file: Path
    """The certificate and behind it the chain to its authority."""
    key_file: Path | None = None
    """The key of the certificate. Without it, `cert_file` holds the key, too."""
    key_password: SecretStr | None = None
    """The password of an encrypted key; never logged."""
    key_password_file: Path | None = None
    """The file that holds it, in the place of `key_password`."""
    version_min: TlsVersion = TlsVersion.V1_2
    """The oldest version of TLS that is spoken."""

    @model_validator(mode="after")
    def _one_password(self) -> ServerTls:
        only_one("key_password", self.key_password, self.key_password_file)
        return self


class ListenerTls(ServerTls):
    """TLS towards the clients of this listener. The files are PEM. They are read again when they
    change, at SIGHUP, and at `POST /v1/tls/reload`. Files that cannot be used leave the certificate
    as it is.
    """

    client_auth: ClientAuth = ClientAuth.NONE
    """Certificates of clients, as Kafka's `ssl.client.auth`: `requested` checks one that comes,
    `required` refuses clients without one.
    """
    client_ca_file: Path | None = None
    """The authorities of clients' certificates. `requested` and `required` need it."""

    @model_validator(mode="after")
    def _authorities_of_clients(self) -> ListenerTls:
        if self.client_auth is ClientAuth.NONE and self.client_ca_file is not None:
            raise ValueError("client_ca_file needs client_auth: requested or required")
        if self.client_auth is not ClientAuth.NONE and self.client_ca_file is None:
            raise ValueError(f"client_auth: {self.client_auth} needs a client_ca_file")
        return self
