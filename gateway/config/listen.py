"""The section `listen` of keyway.yaml: the ports for clients."""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated, Any

from pydantic import Field, model_validator

from gateway.config.authentication import AuthenticationSection, Mechanism
from gateway.config.section import Port, Section
from gateway.config.tls import ClientAuth, ListenerTls
from gateway.core.limits import FRAME_BYTES_MAX, LISTENERS_MAX

ANY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 - to be refused

_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_DNS_NAME = rf"^{_LABEL}(\.{_LABEL})*$"
_NAME = r"^[A-Za-z0-9._-]{1,64}$"


class ServerNamesSection(Section):
    """One port for all: the name that a TLS client asks for (SNI) says which virtual broker it
    means. Names are DNS names, and all of them lead to the port, through whatever stands before it.
    """

    bootstrap: Annotated[
        str, Field(pattern=_DNS_NAME, max_length=253, json_schema_extra={"limits": "a DNS name"})
    ]
    """The name of first contact: `bootstrap.servers` of clients."""
    broker: Annotated[str, Field(max_length=230, json_schema_extra={"limits": "with one `{id}`"})]
    """The names of virtual brokers, such as `broker-{id}.kafka.example`. Each of several nodes
    has names of its own.
    """
    advertised_port: Port | None = None
    """The port that clients are told, where a load balancer has another. Without it:
    `bootstrap_port`.
    """

    @model_validator(mode="after")
    def _names(self) -> ServerNamesSection:
        if self.broker.count("{id}") != 1:
            raise ValueError("broker needs {id} once: broker-{id}.kafka.example")
        if re.match(_DNS_NAME, self.broker.replace("{id}", "1")) is None:
            raise ValueError(f"broker: {self.broker!r} with a number is no DNS name")
        if re.fullmatch(
            re.escape(self.broker).replace(r"\{id\}", "[0-9]+"), self.bootstrap, re.IGNORECASE
        ):
            raise ValueError("bootstrap is also the name of a broker")
        return self


class ListenerSection(Section):
    """Ports for clients: one for first contact, one for each virtual broker."""

    name: Annotated[
        str,
        Field(pattern=_NAME, json_schema_extra={"limits": "1 to 64 letters, digits or `._-`"}),
    ] = "clients"
    """Names the listener in logs and metrics. Several nodes need the same names."""
    host: str = "127.0.0.1"
    """The address to bind. All addresses (0.0.0.0, "::") need an `advertised_host`."""
    advertised_host: str | None = None
    """The address that clients are told. Without it: `host`."""
    bootstrap_port: Port = 9192
    """First contact: the `bootstrap.servers` of clients."""
    port_base: Port = 9200
    """The virtual broker with id n listens on `port_base` + n."""
    tls: ListenerTls | None = None
    """TLS towards clients. Without it: plain TCP."""
    sni: ServerNamesSection | None = None
    """Names in the place of ports: clients come to `bootstrap_port` for all virtual brokers. Needs
    `tls`.
    """
    authentication: AuthenticationSection | None = None
    """The gateway authenticates clients itself. Without it: their SASL exchange passes through."""

    @model_validator(mode="after")
    def _certificates(self) -> ListenerSection:
        asked = self.authentication is not None and (
            Mechanism.CERTIFICATE in self.authentication.mechanisms
        )
        if asked and (self.tls is None or self.tls.client_auth is not ClientAuth.REQUIRED):
            raise ValueError("authentication by CERTIFICATE needs tls.client_auth: required")
        return self

    @model_validator(mode="after")
    def _reachable(self) -> ListenerSection:
        if self.sni is not None:
            if self.tls is None:
                raise ValueError("sni needs tls: without it clients send no name")
            if self.advertised_host is not None:
                raise ValueError("advertised_host: with sni, clients are told its names")
        elif (self.advertised_host or self.host) in ANY_ADDRESS:
            raise ValueError("advertised_host is needed: clients cannot connect to every address")
        return self


class ListenSection(ListenerSection):
    """The ports for clients: one listener, described here, or several under `listeners`. A list in
    the place of this section is short for `listeners`.
    """

    listeners: Annotated[tuple[ListenerSection, ...], Field(max_length=LISTENERS_MAX)] = ()
    """Several listeners, in the place of the options above, such as a plain one on loopback beside
    one with TLS. Clients are told the addresses of the listener that they came to.
    """
    bootstrap_shared: bool = False
    """Other nodes on this machine listen on `bootstrap_port`, too: `keyway serve --workers`."""
    slots_per_broker: Annotated[
        int, Field(ge=1, le=16, json_schema_extra={"unit": "virtual brokers"})
    ] = 1
    """Virtual brokers of each upstream broker, so that more nodes than brokers can work. Slot s of
    broker n has the id n + s * 1,000,000, and the port `port_base` + s * `port_step` + n.
    """
    port_step: Annotated[int, Field(ge=1, le=10_000, json_schema_extra={"unit": "ports"})] = 1_000
    """The distance between the ports of two slots that follow each other."""
    frame_bytes_max: Annotated[int, Field(ge=1024, le=2_000_000_000)] = FRAME_BYTES_MAX
    """Limit of one Produce request, as `socket.request.max.bytes` of Kafka. Any other request may
    have 16 MiB.
    """

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, raw: Any) -> Any:  # noqa: ANN401
        if not isinstance(raw, list):
            return raw
        if not raw:
            raise ValueError("a list of listeners needs at least one listener")
        return {"listeners": raw}

    @model_validator(mode="after")
    def _one_or_several(self) -> ListenSection:
        if not self.listeners:
            return self
        given = sorted(self.model_fields_set & ListenerSection.model_fields.keys())
        if given:
            raise ValueError(f"{given[0]}: with listeners, each of them has its own")
        for at, listener in enumerate(self.listeners):
            if "name" not in listener.model_fields_set:
                raise ValueError(f"listeners.{at}.name is needed: each has a name of its own")
        names = Counter(section.name for section in self.listeners)
        twice = next((name for name, count in names.items() if count > 1), None)
        if twice is not None:
            raise ValueError(f"listeners: two are named {twice!r}")
        _check_ports(self.listeners)
        return self

    def all(self) -> tuple[ListenerSection, ...]:
        """Every listener; the first is the one that a node names where it names one only."""
        return self.listeners or (self,)


def _check_ports(listeners: tuple[ListenerSection, ...]) -> None:
    """Raises ValueError for two listeners that would take the same ports of the same address."""
    for at, one in enumerate(listeners):
        for other in listeners[at + 1 :]:
            hosts = {one.host, other.host}
            if len(hosts) > 1 and not hosts & set(ANY_ADDRESS):
                continue
            if one.bootstrap_port == other.bootstrap_port:
                raise ValueError(
                    f"listeners {one.name!r} and {other.name!r} have one bootstrap_port,"
                    f" {one.bootstrap_port}"
                )
            if one.sni is None and other.sni is None and one.port_base == other.port_base:
                raise ValueError(
                    f"listeners {one.name!r} and {other.name!r} have one port_base,"
                    f" {one.port_base}: their virtual brokers need ports of their own"
                )
