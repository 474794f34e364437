"""A process that lost the lease and does not know it yet: Kafka refuses what it notes, and so it
writes nothing to the target.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gateway.embedded.kafka import KafkaCluster
from schema_dist.core.ledger import SettingEntry
from schema_dist.errors import AwayError
from schema_dist.state_topic import StateTopic

pytestmark = pytest.mark.integration


async def sure() -> None:
    """The lease, as a process sees it that was frozen right behind its look."""


class Looks:
    """The lease of a process that was frozen behind its first look: the second one waits."""

    def __init__(self) -> None:
        self._first = True
        self.second = asyncio.Event()

    async def still_ours(self) -> None:
        if not self._first:
            self.second.set()
            await asyncio.Event().wait()
        self._first = False


def test_a_former_holder_can_note_nothing(
    kafka: KafkaCluster, fresh_name: Callable[[str], str]
) -> None:
    settings, topic = {"bootstrap.servers": kafka.bootstrap_servers}, fresh_name("state")
    first, second = StateTopic(settings, topic, sure), StateTopic(settings, topic, sure)
    one, other = (SettingEntry("mode", value, ours=True) for value in ("one", "other"))

    async def run() -> None:
        await first.load()
        await first.note([one])
        assert (await second.load()).modes == {"one"}
        for entries in ([], [other]):  # also before a removal, which notes nothing
            with pytest.raises(AwayError):
                await first.note(entries)
        await second.note([])
        await second.note([other])
        assert (await StateTopic(settings, topic).load()).modes == {"one", "other"}

    asyncio.run(run())


def test_a_former_holder_that_wakes_up_late_ends_alone(
    kafka: KafkaCluster, fresh_name: Callable[[str], str]
) -> None:
    """It was frozen between its look at the lease and the word that shuts others out, so it shuts
    out its successor: which has the lease, loads the ledger once more, and goes on.
    """
    settings, topic = {"bootstrap.servers": kafka.bootstrap_servers}, fresh_name("state")
    looks = Looks()
    former = StateTopic(settings, topic, looks.still_ours)
    holder = StateTopic(settings, topic, sure)
    mode = SettingEntry("mode", "one", ours=True)

    async def run() -> None:
        await holder.load()
        waking = asyncio.ensure_future(former.load())
        await looks.second.wait()
        with pytest.raises(AwayError, match="another process has loaded its ledger"):
            await holder.note([mode])
        assert (await holder.load()).modes == set()
        await holder.note([mode])
        assert not waking.done(), "it waits for its lease, which it has lost"
        waking.cancel()
        with pytest.raises(AwayError):
            await former.note([])

    asyncio.run(run())
