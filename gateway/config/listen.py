"""The section `listen` of keyway.yaml: the ports for clients."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from gateway.config.section import Port, Section
from gateway.core.limits import FRAME_BYTES_MAX

ANY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 - to be refused


class ListenSection(Section):
    """The ports for clients; TCP without TLS."""

    host: str = "127.0.0.1"
    """The address to bind. All addresses (0.0.0.0, "::") need an `advertised_host`."""
    advertised_host: str | None = None
    """The address that clients are told. Without it: `host`."""
    bootstrap_port: Port = 9192
    """First contact: the `bootstrap.servers` of clients."""
    bootstrap_shared: bool = False
    """Other nodes on this machine listen on `bootstrap_port`, too: `keyway serve --workers`."""
    port_base: Port = 9200
    """The virtual broker with id n listens on `port_base` + n."""
    slots_per_broker: Annotated[
        int, Field(ge=1, le=16, json_schema_extra={"unit": "virtual brokers"})
    ] = 1
    """Virtual brokers of each upstream broker, so that more nodes than brokers can work. Slot s of
    broker n has the id n + s * 1,000,000, and the port `port_base` + s * `port_step` + n.
    """
    port_step: Annotated[int, Field(ge=1, le=10_000, json_schema_extra={"unit": "ports"})] = 1_000
    """Ports from one slot to the next."""
    frame_bytes_max: Annotated[int, Field(ge=1024, le=2_000_000_000)] = FRAME_BYTES_MAX
    """Limit of one Produce request, as `socket.request.max.bytes` of Kafka. Any other request may
    have 16 MiB.
    """

    @model_validator(mode="after")
    def _reachable(self) -> ListenSection:
        if (self.advertised_host or self.host) in ANY_ADDRESS:
            raise ValueError("advertised_host is needed: clients cannot connect to every address")
        return self
