"""The addresses of a Kafka cluster, as a gateway's settings and those of the clusters have them."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator


def _addresses_alone(text: str) -> str:
    if "@" in text:  # user:password@host: addresses are logged and shown, passwords never
        raise ValueError("holds an '@': only host:port; user and password belong in `sasl`")
    return text


BootstrapServers = Annotated[str, AfterValidator(_addresses_alone)]  # host:port, comma-separated
