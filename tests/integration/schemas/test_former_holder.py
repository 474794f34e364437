"""A process that lost the lease and does not know it yet: Kafka refuses what it notes, and so it
writes nothing to the target.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gateway.embedded.kafka import KafkaCluster
from schema_dist.core.ledger import SettingEntry
from schema_dist.errors import AwayError, LeaseError
from schema_dist.state_topic import StateTopic

pytestmark = pytest.mark.integration


async def sure() -> None:
    """The lease, as a process sees it that was frozen right behind its look."""


def test_a_former_holder_can_note_nothing(
    kafka: KafkaCluster, fresh_name: Callable[[str], str]
) -> None:
    settings, topic = {"bootstrap.servers": kafka.bootstrap_servers}, fresh_name("state")
    first, second = StateTopic(settings, topic, sure), StateTopic(settings, topic, sure)
    one, other = (SettingEntry("mode", it, ours=True) for it in ("one", "other"))

    async def run() -> None:
        await first.load()
        await first.note([one])
        assert (await second.load()).modes == {"one"}
        for entries in ([], [other]):  # also before a removal, which notes nothing
            with pytest.raises((LeaseError, AwayError)) as refused:
                await first.note(entries)
            assert isinstance(refused.value, LeaseError) == (entries == [])
        await second.note([])
        await second.note([other])
        assert (await StateTopic(settings, topic).load()).modes == {"one", "other"}

    asyncio.run(run())
