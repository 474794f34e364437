"""The ledger of a large registry that is adopted is written part by part."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from schema_dist import state_topic
from schema_dist.core.ledger import SettingEntry
from schema_dist.state_topic import StateTopic


class Bounded:
    """A producer whose queue holds 100,000 records, as librdkafka's."""

    def __init__(self, _settings: object) -> None:
        self.queued = self.sent = 0
        made.append(self)

    def produce(
        self, _topic: str, *, key: bytes, value: bytes, on_delivery: Callable[..., None]
    ) -> None:
        del key, value, on_delivery
        if self.queued == 100_000:
            raise BufferError("Local: Queue full")
        self.queued += 1

    def flush(self, _seconds: float) -> int:
        self.sent += self.queued
        self.queued = 0
        return 0


made: list[Bounded] = []


def test_more_entries_than_a_producer_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_topic, "Producer", Bounded)
    entries = [SettingEntry("mode", f"s{at}-value", ours=True) for at in range(100_001)]
    asyncio.run(StateTopic({"bootstrap.servers": "127.0.0.1:1"}, "t").note(entries))
    assert made.pop().sent == len(entries)
