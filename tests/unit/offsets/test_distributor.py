"""Commits that are a group's own work become entries; those of the committer do not."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import Any

import pytest

from keyway.clusters.config import OffsetsSection
from keyway.clusters.core.internal import OFFSETS_TOPIC
from keyway.commit_metadata.core import metadata as settled_metadata
from offsets.client import Refused
from offsets.commits import Change
from offsets.core.consumer_offsets import OffsetCommitted, OffsetDeleted
from offsets.core.entries import Applied
from offsets.core.plan import Committed, Refusal
from offsets.core.translate import Unsafe
from offsets.distributor import Distributor
from offsets.state_topic import StateTopic
from tests.rig.offsets_in_memory import FACTS, STREAM, MemoryClient, MemoryPartitions, MemorySource

PLACE = ("billing", "topic", 0)


def told(last: int, settled_ms: int, *, origin: int = 7_000_000) -> str:
    return settled_metadata.encode(6, [(7, last)], origin=origin, settled_ms=settled_ms)


def distributor_on(
    client: MemoryClient, *, state_topic: StateTopic | None = None, **settings: Any
) -> Distributor:
    return Distributor(
        client,
        MemorySource(client),
        MemoryPartitions(client),
        state_topic or StateTopic(client),
        OffsetsSection(**settings),
        linked=lambda _: True,
        wanted_topic=lambda _: True,
        now_ms=lambda: client.now_ms,
        facts={"topic": FACTS},
    )


def distributed(distributor: Distributor, text: str, committed_ms: int) -> int:
    """How many entries a commit of the gateway makes; the cursor stays."""
    client = distributor.client
    assert isinstance(client, MemoryClient)
    client.positions[PLACE] = Committed(6, text, committed_ms)
    distributor.poll()
    return distributor.distribute()


def test_work_behind_a_cursor_that_stays_is_news() -> None:
    """The record at the cursor hangs in retries; those behind it are settled here."""
    distributor = distributor_on(MemoryClient("B", now_ms=9_000))
    distributor.state_topic.write_applied({PLACE: Applied(6, told(9, 1_000), "A", 1_000)})
    assert distributed(distributor, told(9, 1_000), 5_000) == 0, "the committer's own"
    again = told(9, 1_000, origin=8_000_000)
    assert distributed(distributor, again, 6_000) == 0, "the gateway took it over"
    assert distributed(distributor, told(40, 8_000), 9_000) == 1
    entry = distributor.state_topic.state.entries[PLACE, "B"]
    assert entry.progress is not None
    assert (entry.committed_ms, entry.progress.settled) == (8_000, {STREAM: [(7, 40)]})


def test_a_plain_commit_at_the_applied_offset_is_no_news() -> None:
    distributor = distributor_on(MemoryClient("B", now_ms=9_000))
    distributor.state_topic.write_applied({PLACE: Applied(6, "streams", "A", 1_000)})
    assert distributed(distributor, "another word", 5_000) == 0


def test_a_group_that_reads_the_state_topic_makes_no_entry() -> None:
    """Each entry would move its position, for another entry."""
    distributor = distributor_on(MemoryClient("B", now_ms=9_000))
    client = distributor.client
    assert isinstance(client, MemoryClient)
    client.positions["reader", OFFSETS_TOPIC, 0] = Committed(6, "", 5_000)
    client.positions["reader", "topic", 0] = Committed(6, "", 5_000)
    distributor.poll()
    assert distributor.distribute() == 1
    assert list(distributor.state_topic.state.entries) == [(("reader", "topic", 0), "B")]


def restarted(client: MemoryClient, state_topic: StateTopic, **settings: Any) -> int:
    """How many entries are written anew in the first rounds; no group commits."""
    distributor = distributor_on(client, state_topic=state_topic, **settings)
    count = 0
    for _ in range(3):
        distributor.poll()
        count += distributor.distribute()
        client.now_ms += 60_000
    return count


def test_a_margin_that_was_changed_counts_after_a_restart() -> None:
    """Also for a group that never commits again."""
    client = MemoryClient("B", now_ms=9_000)
    state_topic = StateTopic(client)
    client.positions[PLACE] = Committed(6, "", 5_000)
    assert restarted(client, state_topic) == 1
    assert restarted(client, state_topic) == 0, "it is told"
    assert restarted(client, state_topic, margin_ms=0) == 1
    assert state_topic.state.entries[PLACE, "B"].margin_ms == 0
    assert restarted(client, state_topic, margin_ms=0) == 0


def test_other_writers_that_are_named_count_after_a_restart() -> None:
    client = MemoryClient("A", now_ms=9_000)
    state_topic = StateTopic(client)
    client.positions[PLACE] = Committed(6, "", 5_000)
    assert restarted(client, state_topic) == 1
    assert state_topic.state.entries[PLACE, "A"].unsafe == ()
    assert restarted(client, state_topic, several_origins=True) == 1
    assert state_topic.state.entries[PLACE, "A"].unsafe == (Unsafe.ORIGINS,)
    assert restarted(client, state_topic, several_origins=True) == 0


def test_nothing_is_looked_at_again_before_the_commits_are_read() -> None:
    """A commit that is read later would stay behind an entry of former settings."""
    client = MemoryClient("B", now_ms=9_000)
    state_topic = StateTopic(client)
    client.positions[PLACE] = Committed(6, "", 5_000)
    assert restarted(client, state_topic) == 1
    position = client.positions.pop(PLACE)
    distributor = distributor_on(client, state_topic=state_topic, margin_ms=0)
    source = distributor.source
    assert isinstance(source, MemorySource)
    source.caught_up = False
    distributor.poll()
    client.positions[PLACE] = position
    source.caught_up = True
    client.now_ms += 60_000
    distributor.poll()
    assert distributor.distribute() == 1


class _InParts(MemorySource):
    """A long `__consumer_offsets`, of which a poll reads one part."""

    caught_up = False

    def __init__(self, client: MemoryClient, *parts: Change) -> None:
        super().__init__(client)
        self.parts = list(parts)

    def poll(self) -> Collection[Change]:
        part = self.parts.pop(0)
        self.caught_up = not self.parts
        return [part]


@pytest.mark.parametrize("again", [True, False])
def test_a_group_that_was_deleted_and_commits_again_is_not_told_as_deleted(*, again: bool) -> None:
    client = MemoryClient("B", now_ms=9_000)
    state_topic = StateTopic(client)
    client.positions[PLACE] = Committed(6, "", 5_000)
    assert restarted(client, state_topic) == 1
    later = OffsetCommitted(*PLACE, 6, -1, "", 5_000)
    elsewhere = OffsetCommitted("another", "topic", 0, 6, -1, "", 5_000)
    distributor = distributor_on(client, state_topic=state_topic)
    source = _InParts(client, OffsetDeleted(*PLACE), later if again else elsewhere)
    distributor.source = source
    distributor.poll()
    assert not state_topic.state.entries[PLACE, "B"].deleted, "the log is not read to its end"
    distributor.poll()
    assert state_topic.state.entries[PLACE, "B"].deleted is not again


def test_a_round_looks_again_at_some_groups_and_each_has_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All 10,000 places of a large cluster in each round were a tenth of its CPU."""
    monkeypatch.setattr("offsets.distributor.PLACES_AT_ONCE", 2)
    client = MemoryClient("B", now_ms=9_000)
    places = [(f"group-{number}", "topic", 0) for number in range(5)]
    client.positions |= {place: Committed(6, "", 5_000) for place in places}
    distributor = distributor_on(client)
    count = 0
    for _ in range(3):  # of two entries each
        distributor.poll()
        count += distributor.distribute()
    assert count == 5
    looked: list[str] = []
    monkeypatch.setattr(Distributor, "_look_at", lambda _, place, __: looked.append(place[0]))
    seen = []
    for _ in range(6):
        client.now_ms += 4_000  # of the 10 s within which each is looked at
        distributor.poll()
        seen.append(len(looked))
        looked.sort()
    assert max(b - a for a, b in pairwise([0, *seen])) == 2
    assert set(looked) == {place[0] for place in places}


def test_a_group_that_was_deleted_while_no_service_ran_is_told_as_deleted() -> None:
    """Its tombstones are compacted away, so nothing says so; its entries stayed for good."""
    client = MemoryClient("B", now_ms=9_000)
    state_topic = StateTopic(client)
    other = ("shipping", "topic", 0)
    client.positions |= {PLACE: Committed(6, "", 5_000), other: Committed(7, "", 5_000)}
    assert restarted(client, state_topic) == 2
    del client.positions[PLACE]
    assert restarted(client, state_topic) == 0
    assert {place for (place, _), entry in state_topic.state.entries.items() if entry.deleted} == {
        PLACE
    }
    del client.positions[other]
    client.unknown = {"shipping": Refused(Refusal.CLUSTER_AWAY, "no coordinator")}
    distributor = distributor_on(client, state_topic=state_topic)
    distributor.poll()
    assert not state_topic.state.entries[other, "B"].deleted, "no answer proves nothing"
    client.unknown = {}
    distributor.poll()
    assert state_topic.state.entries[other, "B"].deleted, "its coordinator is there again"


def test_commits_that_are_listed_are_no_news_after_a_restart() -> None:
    """They have the time at which they were seen, and looked like the latest work of all."""
    client = MemoryClient("B", now_ms=9_000)
    state_topic = StateTopic(client)
    client.positions[PLACE] = Committed(6, "", 5_000)
    assert restarted(client, state_topic) == 1
    distributor = distributor_on(client, state_topic=state_topic)
    distributor.source.timed = False  # type: ignore[misc]
    client.positions[PLACE] = Committed(6, "", client.now_ms)
    distributor.poll()
    assert distributor.distribute() == 0
    assert state_topic.state.entries[PLACE, "B"].committed_ms == 5_000
    client.positions[PLACE] = Committed(8, "", client.now_ms)
    distributor.poll()
    assert distributor.distribute() == 1
