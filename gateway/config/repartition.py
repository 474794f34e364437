"""The section `repartition` of keyway.yaml: how a topic gets more partitions."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gateway.config.section import Section

_Wait = Annotated[int, Field(ge=0, le=3_600_000)]


class RepartitionSection(Section):
    """A repartition keeps to the values that its node had when it began (docs/repartition.md)."""

    adoption_timeout_ms: _Wait = 30_000
    """Producers have this long to ask for Metadata by themselves. Then their connections are
    closed, and they do.
    """
    settle_ms: _Wait = 3_000
    """Records of new partitions wait this long for a producer that sends an earlier batch again."""
    delivery_timeout_ms: _Wait = 300_000
    """The largest `delivery.timeout.ms` of producers: no batch of before comes later than that."""
    consumer_hold_timeout_ms: Annotated[int, Field(ge=0, le=86_400_000)] = 3_600_000
    """Consumers of classic and KIP-848 groups get records of new partitions as soon as their group
    has committed the earlier records, and after this time in any case.
    """
