"""The sections of the clusters' YAML about a cluster's schema registry."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from keyway.clusters.sections import Name, Password, Port, Section


class Registry(Section):
    """A schema registry with Confluent's REST interface. Schemas are read from its log, the topic
    `topic`, unless it `reads` over REST; they are written over REST in IMPORT mode, unless it
    `writes` to its log (docs/schemas.md has the abilities of each registry).
    """

    url: str = Field(pattern=r"^https?://")
    """The address of its REST interface."""
    basic: Password | None = None
    """Basic authentication. Without it: none."""
    ca_file: Path | None = None
    """Trusted certificates, PEM. Without it the system's trust store is used."""
    reads: Literal["log", "rest"] = "log"
    """Schemas are read from the topic, or over REST."""
    writes: Literal["rest", "log"] = "rest"
    """Schemas are written over REST in IMPORT mode, or to the topic."""
    topic: Name = "_schemas"
    """The topic that is its log."""

    @field_validator("url")
    @classmethod
    def _address_alone(cls, text: str) -> str:
        if "@" in text:  # it is logged and shown, as bootstrap_servers
            raise ValueError("holds an '@': user and password belong in `basic`")
        return text


class RegistryView(Section):
    """A registry that the cluster's clients use: it reads the cluster's `_schemas`, knows logical
    subjects only, and passes writes on to the primary, with the client's credentials.
    """

    host: str = "127.0.0.1"
    """The address to bind."""
    port: Port = 8081
    """The port of the view."""
    cert_file: Path | None = None
    """The certificate of the view, PEM. With it: TLS."""
    key_file: Path | None = None
    """The key of `cert_file`, PEM."""
    authenticate: bool | None = None
    """True: the primary decides about each reader, so it needs a `registry`. Without it: if its
    registry has `basic`.
    """

    @model_validator(mode="after")
    def _key_and_certificate(self) -> RegistryView:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file need each other")
        return self
