"""The records that are looked for, and their order. Ages are in test_lag.py."""

from __future__ import annotations

import pytest

from dispatcher.store.base import WindowKey
from gateway.core.cluster.topology import TopicPartition
from gateway.core.reading.cache import Source
from gateway.operations import oldest_records
from gateway.operations.oldest_records import CursorPosition, OldestRecords
from gateway.reading.record_times import Seen
from gateway.upstream.errors import Unreachable
from tests.rig.virtual_time import run

KEYS = [WindowKey("g", "topic", partition) for partition in range(5)]
PLACES = {
    key: CursorPosition(Source(TopicPartition("t", b"t" * 16, key.partition), 1), 7) for key in KEYS
}


class Times:
    """Upstream tells of all partitions but those that are away."""

    def __init__(self) -> None:
        self.away: set[int] = set()
        self.looked: list[int] = []

    def in_cache(self, source: Source, position: int) -> Seen | None:  # noqa: ARG002
        return None

    async def look(self, source: Source, position: int) -> Seen:
        self.looked.append(source.tp.partition)
        if source.tp.partition in self.away:
            raise Unreachable("away")
        return Seen(position + 1, position, 1_000)


def test_partitions_that_fail_do_not_keep_the_others_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(oldest_records, "OLDEST_PER_LOOK", 2)
    times = Times()
    times.away = {0, 1}

    async def work() -> None:
        oldest = OldestRecords(times)
        for _ in range(3):
            await oldest.look(PLACES, again=False)
        assert times.looked == [0, 1, 2, 3, 4, 0]
        known = [oldest.timestamp_ms(key, PLACES[key]) for key in KEYS]
        assert known == [None, None, 1_000, 1_000, 1_000]
        assert oldest.empty_until(KEYS[0], PLACES[KEYS[0]]) == 7, "nothing was learned of it"

    run(work())


def test_a_record_that_was_found_stays_while_upstream_is_away() -> None:
    times = Times()

    async def work() -> None:
        oldest = OldestRecords(times)
        await oldest.look(PLACES, again=False)
        times.away = {0}
        await oldest.look(PLACES, again=True)
        assert oldest.timestamp_ms(KEYS[0], PLACES[KEYS[0]]) == 1_000
        moved = PLACES[KEYS[0]]._replace(cursor=8)
        assert oldest.timestamp_ms(KEYS[0], moved) is None, "another record, another time"
        oldest.forget(KEYS)
        assert oldest.timestamp_ms(KEYS[1], PLACES[KEYS[1]]) is None

    run(work())
